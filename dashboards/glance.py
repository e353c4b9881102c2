"""What first screens of many bridges share: how much is wrong, the fullest uplinks, the last moves.

A bridge, or a bar of an uplink, leads to the dashboard of its bridge.
"""

from __future__ import annotations

from dashboards import frame, panels
from dashboards.panels import Ask, Column, number, of_host, ranking, rows
from dashboards.queries import (
    BRIDGES,
    BY_UPLINK,
    MOST,
    RANGE,
    REASONS,
    how_many_are_wrong,
    of_links_up,
    short_host,
)

UTILIZATION = of_links_up(BRIDGES, BRIDGES("uplink_utilization_ratio"))
# As many bars as can be read in a low panel.
FEW = 3


def wrong_now(*, width: int) -> panels.Panel:
    """With how many services anything is wrong, on dashboards that do not say what."""
    return number(
        "Wrong now",
        "How many services something is known to be wrong with: the service is down, a bridge is not "
        "connected, an uplink is down or unrelieved, a value is invalid, or an alert of severity warning "
        "or critical fires. A job in which nobody leads counts as one more. Good: 0. Click it to see on "
        "the fleet dashboard where it is.",
        Ask(how_many_are_wrong()),
        steps=panels.NONE_IS_GOOD,
        link=frame.TO_FLEET,
        width=width,
    )


def worst_uplinks(*, width: int, height: int, most: int = MOST) -> panels.Panel:
    """The busiest uplinks now."""
    worst = f"topk({most}, max {BY_UPLINK} ({UTILIZATION}))"
    how_many = {MOST: "ten", FEW: "three"}[most]
    return ranking(
        "Worst uplinks",
        f"The {how_many} busiest uplinks now, by the share of capacity in the busier direction. Good: "
        "none in orange or red for long. Click a bar to see its bridge.",
        of_host(worst, "{{uplink}} {{bridge}} {{host}}"),
        unit=panels.RATIO,
        decimals=0,
        steps=panels.UTILIZATION,
        maximum=1,
        link=frame.FROM_SERIES,
        width=width,
        height=height,
    )


def last_moves(*, width: int, height: int) -> panels.Panel:
    """The last moves of all chosen bridges, also of those whose service is down."""
    bound = BRIDGES("port_bound_timestamp_seconds", f'reason=~"{REASONS}"')
    moved = f"last_over_time({bound}[{RANGE}]) >= $__from / 1000"
    by_move = "max by (job, instance, bridge, port, uplink, reason)"
    return rows(
        "Last ten moves",
        "The VM ports that were moved last in the time shown, on all bridges: when, to which uplink, "
        "and why. A repeated move of a port for the same reason is one row. `ovs-lbt explain PORT` "
        "on that host says more. Click a name to see the bridge.",
        [
            Column(
                "When",
                expr=short_host(f"topk({MOST}, {by_move} ({moved})) * 1000"),
                unit=panels.TIME,
                width=170,
            ),
            Column("VM port", "port"),
            Column("To", "uplink", width=85),
            Column("Reason", "reason", words=panels.WHY, width=95),
            Column("Bridge", "bridge", link=frame.FROM_ROW, width=80),
            Column("Host", "host", link=frame.FROM_ROW),
            Column("Instance", "instance", hidden=True),
            Column("Job", "job", hidden=True),
        ],
        sort=["When"],
        width=width,
        height=height,
    )
