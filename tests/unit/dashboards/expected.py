"""What the tests expect of the dashboards: the values of tiles, colours, words, order.

No program writes these tables. The values of tiles follow from the events of simulated.py alone.
"""

from __future__ import annotations

from dashboards.colours import UNKNOWN

# While a service is down, or all services of a job are on standby, zero is not known.
_UNKNOWN = "service dead -, service back 0, all dead -, all back 0, no leader -"
# While the switch of hv2 does not answer, its uplinks are not known either.
_LINKS = f"no answer -, still a bad value 0, {_UNKNOWN}"
# Nothing is known about a bridge while its own service is down.
_OWN = "service dead -, service back 0, all dead -, all back 0"
_NOT_SHOWN = "all dead, 5 minutes shown -, all back"

# By view, dashboard and query: the value at each moment; none where the query has no answer.
TILES = {
    "two hosts/fleet/Services down A": "quiet 0, service dead 1, service back 0, all dead 3, all back 0",
    "two hosts/fleet/Bridges not connected A": f"quiet 0, no answer 1, still a bad value 0, {_UNKNOWN}",
    "two hosts/fleet/Uplinks down A": f"quiet 0, uplink down 1, failed back 0, {_LINKS}",
    "two hosts/fleet/Unrelieved uplinks A": f"quiet 0, full 1, spread 0, {_LINKS}",
    "two hosts/fleet/Configuration errors A": f"quiet 0, bad value 1, corrected 0, {_UNKNOWN}",
    "two hosts/decisions/Planned A": "quiet 0, full 2, spread 6, moved 7, pinned 8, refused 9, "
    f"uplink down 14, failed back 18, drained 19, undrained 20, {_NOT_SHOWN} 20",
    "two hosts/decisions/Applied A": "quiet 0, full 2, spread 6, moved 7, pinned 8, uplink down 12, "
    f"failed back 16, drained 17, undrained 18, {_NOT_SHOWN} 18",
    "two hosts/decisions/Refused A": f"quiet 0, refused 1, uplink down 2, {_NOT_SHOWN} 2",
    "two hosts/decisions/Failovers A": f"quiet 0, uplink down 4, {_NOT_SHOWN} 4",
    "two hosts/decisions/Bridges in observe mode A": "quiet 1, service dead -, service back 1, "
    "bridge gone 0, all dead -, all back 0, no leader -",
    # From the fault of a part of hv1 on, an alert fires about its service.
    "two hosts/decisions/Wrong now A": "quiet 0, full 1, spread 0, uplink down 1, failed back 0, "
    "bad value 1, no answer 2, still a bad value 1, all dead 3, no leader 4",
    "two hosts/controller/Deciding A": "quiet 2, service dead 1, service back 2, all dead -, "
    "all back 2, no leader 1",
    "hv1 br0/bridge/Switch A": "quiet 1, service dead -1, service back 1, all dead -1, all back 1",
    "hv1 br0/bridge/Uplinks down A": f"quiet 0, uplink down 1, failed back 0, {_OWN}",
    "hv1 br0/bridge/Configuration errors A": f"quiet 0, bad value 1, corrected 0, {_OWN}",
    "hv1 br1/bridge/Switch A": "quiet 1, service dead -1, bridge gone -, all dead -1, no leader -",
    "hv2 br0/bridge/Switch A": "quiet 1, no answer 0, service dead 1, all dead -1, no leader -",
    "hv2 br0/bridge/Uplinks down A": "quiet 0, no answer -, service dead 0, all dead -",
    # Four of forty hosts have a fault. Whether the dead one is connected is not known.
    "forty hosts/fleet/Services down A": "now 1",
    "forty hosts/fleet/Bridges not connected A": None,
    "forty hosts/fleet/Uplinks down A": "now 1",
    "forty hosts/fleet/Unrelieved uplinks A": "now 1",
    "forty hosts/fleet/Configuration errors A": "now 1",
    "forty hosts/decisions/Wrong now A": "now 4",
    # The link of an uplink that an operator has drained may be down.
    "uplink that is drained/fleet/Uplinks down A": "now 0",
    "uplink that is drained/bridge/Uplinks down A": "now 0",
    "uplink that is drained/decisions/Wrong now A": "now 0",
    "uplink that is standby/fleet/Uplinks down A": "now 1",
    "uplink that is standby/bridge/Uplinks down A": "now 1",
    "uplink that is standby/decisions/Wrong now A": "now 1",
}

# The value from which a panel or a column has a colour, after the colour without data. No other panel
# has colours: optimality, for example, is high on a bridge without load.
STEPS = {
    f"{UNKNOWN}, 0 green, 1 red": {
        *("Services down", "Bridges not connected", "Uplinks down", "Unrelieved uplinks"),
        *("Configuration errors", "Wrong now", "Bridges/Uplinks down", "Bridges/Unrelieved"),
        *("Bridges/Errors", "Services/Configuration errors"),
    },
    f"{UNKNOWN}, 0 green, 0.5 orange": {
        *("Refused", "Failovers", "Refusals/Refused"),
        *("Uplinks now/Changes", "VM ports now/Frames dropped"),
    },
    f"{UNKNOWN}, 0 green, 0.75 orange, 0.95 red": {
        *("Busiest uplink", "Worst uplinks", "Bridges/Busiest uplink"),
        *("Uplinks now/Sent", "Uplinks now/Received"),
    },
    f"{UNKNOWN}, 0 blue": {"Planned", "Applied", "Bridges in observe mode", "Top talkers"},
    f"{UNKNOWN}, 0 red, 1 blue": {"Deciding"},
    f"{UNKNOWN}, 0 green, 30 orange, 120 red": {"Services/Last decision"},
    # Words have their own colours.
    UNKNOWN: {
        *("Switch", "Uplinks now/Link", "Uplinks now/Relief", "Alerts/Severity"),
        *("Rules of VM ports/Now", "Services/Scraped", "Services/Role", "Bridges/Switch"),
    },
}

_LINK = "0 down red, 1 up green, 2 no answer red, 4 cut off red, 5 lossy orange, 6 no answer red"
# The words and colours of the values of a panel or a column.
WORDS = {
    "Switch": "-1 service down red, 0 no answer red, 1 connected green",
    "Uplinks now/Link": _LINK,
    "Links": _LINK,
    "Uplinks now/Relief": "0 fine green, 1 nothing helps red",
    "Unrelieved uplinks": "0 fine green, 1 nothing helps red",
    "Alerts/Severity": "1 info blue, 2 warning orange, 3 critical red",
    "Alerts/State": "firing firing red, pending pending orange",
    "Rules of VM ports/Now": "0 kept green, 1 broken red",
    "Services/Scraped": "0 down red, 1 up green",
    "Services/Role": "0 standby blue, 1 leads green",
    "Bridges/Switch": "0 no answer red, 1 connected green",
    "Connection to switches": "0 no answer red, 1 connected green",
    "Which service leads": "0 standby blue, 1 leads green, 2 nobody leads red, 3 down red",
}

# The columns that order the rows of a table, the most important first. +: the lowest value first.
SORTED = {
    "Uplinks now": "+Uplink",
    "Alerts": "Severity, Alert",
    "Last ten moves": "When",
    "VM ports now": "Sent",
    "Rules of VM ports": "Now",
    "Tunnel endpoints": "Sent",
    "Lost between uplinks": "+Uplink",
    "Services": "+Scraped",
    "Refusals": "Refused",
    "Bridges": "+Switch, Errors, Uplinks down, Unrelieved, Busiest uplink",
}
