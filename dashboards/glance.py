"""Panels at the top of several dashboards: the number of problems, the busiest uplinks, the last moves.

Names of bridges and bars of uplinks link to the dashboard of their bridge.
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
# The number of bars that fit into a low panel.
FEW = 3


def wrong_now(*, width: int) -> panels.Panel:
    """Return a panel, linked to the fleet dashboard, with the number of services with problems."""
    return number(
        "Wrong now",
        "The number of services with a known problem: the service is down, a bridge is not connected, "
        "an uplink is down, no move relieves an uplink above the threshold, a value is invalid, or an "
        "alert of severity warning or critical is firing. Each job without a leader adds 1. Good: 0. "
        "Click the number to see the problems on the fleet dashboard.",
        Ask(how_many_are_wrong()),
        steps=panels.NONE_IS_GOOD,
        link=frame.TO_FLEET,
        width=width,
    )


def worst_uplinks(*, width: int, height: int, most: int = MOST) -> panels.Panel:
    """Return a panel with the `most` uplinks that are busiest now."""
    worst = f"topk({most}, max {BY_UPLINK} ({UTILIZATION}))"
    how_many = {MOST: "ten", FEW: "three"}[most]
    return ranking(
        "Worst uplinks",
        f"The {how_many} busiest uplinks now, by utilization in the busier direction. Good: no bar "
        "stays orange or red for long. Click a bar to see its bridge.",
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
    """Return a table of the last moves on all selected bridges, even if their service is down."""
    bound = BRIDGES("port_bound_timestamp_seconds", f'reason=~"{REASONS}"')
    moved = f"last_over_time({bound}[{RANGE}]) >= $__from / 1000"
    by_move = "max by (job, instance, bridge, port, uplink, reason)"
    return rows(
        "Last ten moves",
        "The last moves of VM ports on all bridges in the time range, with time, new uplink and "
        "reason. Repeated moves of a port for the same reason share one row. `ovs-lbt explain "
        "PORT` on the host has details. Click a name to see the bridge.",
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
