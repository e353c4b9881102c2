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
  /            show matching VM ports; Enter keeps the filter, Esc shows all
  b            show the next bridge, or all
  e            explain the selected VM port; Esc returns
  m            move the selected VM port to an uplink, now
  p  u         pin the selected VM port to an uplink, unpin the VM port
  d            drain an uplink, or undrain a drained uplink
               m p u d ask first: y confirms, any other key cancels
  space        update now
  +  -         update more often, less often
  h  ?         this help
  q            quit

columns:
  UPLINK       the uplink's interface
  STATE        the uplink's role, or down
  Mbit/s       the uplink's capacity
  LOAD         the utilization in a direction; the mark is the threshold
  PORT         the VM port's interface
  USED-BY      the VM, if it has a name or an ID
  TEAM-UPLINK  the uplink in use; in parentheses (observe mode): planned uplink
  MbTX/s       Mbit/s sent, between the service's last two polls
  MbRX/s       Mbit/s received
  %DRP         percent of packets that the port dropped in the last 3 s, or in
               the interval if that is longer; the worse of both directions.
               -: not counted, as for LOCAL. Drops in queues are not included
  WHY          reason for the uplink: the policy, or the last move's reason"""
