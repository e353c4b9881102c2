"""Contains the help text of `top`: its keys and its columns."""

from __future__ import annotations

SUMMARY = """\
Shows uplinks with load bars, the VM ports on them, and the last decisions,
live, like the network screen of esxtop on ESXi."""

INTERVAL_S = 2.0
LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.5, 60.0
# The columns by which VM ports can be sorted, and whether the highest value comes first.
SORTS = {
    "port": False,
    "used-by": False,
    "uplink": False,
    "tx": True,
    "rx": True,
    "drops": True,
    "why": False,
}
SORT = "tx"

TEXT = """\
keys:
  up down j k  select a VM port; also PgUp PgDn Home End
  s  <  >      sort by the next column, by the one to the left, to the right
  r            reverse the sort order
  /            show only VM ports with a text; Enter keeps it, Esc shows all
  b            show the next bridge, or all
  e            explain the selected VM port; Esc goes back
  m            move the selected VM port to an uplink, now
  p  u         pin it to an uplink, unpin it
  d            drain an uplink; undrain it, if it is drained
               m p u d ask first: y confirms, any other key cancels
  space        update now
  +  -         update more often, less often
  h  ?         this help
  q            quit

columns:
  UPLINK       its interface
  STATE        its role, or down
  Mbit/s       its capacity
  LOAD         a direction's share of the capacity; the mark is the threshold
  PORT         the VM port: its interface
  USED-BY      its VM, if the VM has a name or an id
  TEAM-UPLINK  the uplink it uses; in parentheses (observe mode): would use
  MbTX/s       Mbit/s sent, between the service's last two polls
  MbRX/s       Mbit/s received
  %DRP         percent of packets that the port dropped in the last 3 s, or in
               the interval if that is longer; the worse of both directions.
               -: not counted, as for LOCAL. Drops in queues are not included
  WHY          why it is there: its policy, or the reason of its last move"""
