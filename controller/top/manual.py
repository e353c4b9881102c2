"""What `top` shows and which keys it takes: the text of its help, on the screen and off."""

from __future__ import annotations

SUMMARY = """\
Shows uplinks with bars of their load, the VM ports on them, and the last
decisions, live, as esxtop's network screen does on ESXi."""

INTERVAL_S = 2.0
LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.5, 60.0
# By which column VM ports are sorted: its name, and whether the highest come first.
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

KEYS = (
    ("up down j k", "select a VM port; also PgUp PgDn Home End"),
    ("s  <  >", "sort by the next column, by the one to the left, to the right"),
    ("r", "sort the other way round"),
    ("/", "show only VM ports with a text; Enter keeps it, Esc shows all"),
    ("b", "show the next bridge, or all"),
    ("e", "explain the selected VM port; Esc goes back"),
    ("m", "move the selected VM port to an uplink, now"),
    ("p  u", "pin it to an uplink, unpin it"),
    ("d", "drain an uplink; undrain it, if it is drained"),
    ("", "m p u d ask first: y does it, any other key does not"),
    ("space", "look now"),
    ("+  -", "look more often, less often"),
    ("h  ?", "this help"),
    ("q", "quit"),
)
COLUMNS = (
    ("UPLINK", "its interface"),
    ("STATE", "its role, or down"),
    ("Mbit/s", "its capacity"),
    ("LOAD", "a direction's share of the capacity; the mark is the threshold"),
    ("PORT", "the VM port: its interface"),
    ("USED-BY", "its VM, if that has a name or an id of its own"),
    ("TEAM-UPLINK", "the uplink it uses; observed, in parentheses: would use"),
    ("MbTX/s", "Mbit/s that is sent, between the service's last two polls"),
    ("MbRX/s", "Mbit/s that is received"),
    ("%DRP", "percent of packets that the port dropped in the last 3 s, or in"),
    ("", "the interval if that is longer; of both directions the worse."),
    ("", "- : not counted, as for LOCAL. What queues drop is not in it"),
    ("WHY", "why it is there: its policy, or the reason of its last move"),
)


def text() -> str:
    """Keys and columns."""
    return "\n".join(["keys:", *_listed(KEYS), "", "columns:", *_listed(COLUMNS)])


def _listed(entries: tuple[tuple[str, str], ...]) -> list[str]:
    return [f"  {name:<12} {what}".rstrip() for name, what in entries]
