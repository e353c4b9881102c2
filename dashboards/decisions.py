"""The dashboard of decisions: the causes of moves, the moves, and their results."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards import frame, glance, panels
from dashboards.frame import Section
from dashboards.panels import Ask, Column, events, lines, number, of_host, rows, states
from dashboards.queries import (
    BRIDGES,
    BY_BRIDGE,
    ON_BRIDGE,
    ON_UPLINK,
    RANGE,
    and_all,
    at_any_time,
    each_step,
    highest,
    in_range,
    in_service,
    known,
    known_of_uplinks,
    of_connected,
    short_host,
    slowest,
)

WHERE = "{{host}} {{bridge}}"
UPLINK = "{{host}} {{bridge}} {{uplink}}"
# The largest number of selected bridges for which moves are marked.
MARKED = 4


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.DECISIONS,
        "The moves that policies decided and switches made, their causes and their results. `ovs-lbt "
        "history` on a host shows each decision with the loads before and after. If at most "
        f"{MARKED} bridges are selected, marks in the graphs show moves (purple), failovers (red) and "
        "failbacks (green).",
        frame.many_bridges(),
        # Marks of many bridges would hide the graphs.
        frame.marks(
            BRIDGES, listed="Last ten moves", among=f"count({BRIDGES('bridge_info')}) <= {MARKED}"
        ),
        [
            Section("", [*_is_anything_wrong(), *_what_was_done()]),
            Section("Causes", _what_called_for_it()),
            Section("Results", _what_came_of_it()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    observed = BRIDGES("bridge_info", 'mode="observe"')
    return [
        number(
            "Planned",
            "Moves that policies and operators requested in the time range, or that failures "
            "caused. Good: few moves after the load has been spread. If more moves are planned "
            "than applied, a bridge is in observe mode, or moves are refused.",
            Ask(f"sum({in_range(BRIDGES('moves_planned_total'))})"),
            steps=panels.DONE,
            width=3,
        ),
        number(
            "Applied",
            "Moves that switches have made in the time range. Good: as many as planned, except on "
            "bridges in observe mode.",
            Ask(f"sum({in_range(BRIDGES('moves_applied_total'))})"),
            steps=panels.DONE,
            width=3,
        ),
        number(
            "Refused",
            "Moves that the switch refused in the time range, or operators' moves that ovs-lbt refused. "
            "Good: 0. The table of refusals below shows the bridge and the reason for each move. While a "
            'service is down, this panel shows "not known" instead of 0.',
            Ask(known(f"sum({in_range(BRIDGES('moves_refused_total'))})")),
            steps=panels.NONE_IS_BEST,
        ),
        number(
            "Failovers",
            "VM ports that moved in the time range because their uplink failed. Good: 0. While a service "
            'is down, this panel shows "not known" instead of 0.',
            Ask(known(f"sum({in_range(BRIDGES('failovers_total'))})")),
            steps=panels.NONE_IS_BEST,
        ),
        number(
            "Bridges in observe mode",
            "Bridges on which the service only reports moves. Good: 0, once you agree with the "
            "reported moves. To make the moves: `ovs-lbt set bridge BRIDGE mode=enforce`. While a "
            'service is down, this panel shows "not known" instead of 0.',
            Ask(known(f"(count({observed}) or 0 * count({BRIDGES('bridge_info')}))")),
            steps=panels.DONE,
            width=5,
        ),
        glance.wrong_now(width=5),
    ]


def _by_reason(counter: str) -> Ask:
    return Ask(f"sum by (reason) ({each_step(BRIDGES(counter))}) > 0", "{{reason}}")


def _what_was_done() -> list[panels.Panel]:
    by_reason = "(job, instance, bridge, reason)"
    refused = f"(sum by {by_reason} ({in_range(BRIDGES('moves_refused_total'))}) > 0)"
    planned = f"sum by {by_reason} ({in_range(BRIDGES('moves_planned_total'))})"
    most = f"sum {BY_BRIDGE} (increase({BRIDGES('failovers_total')}[{RANGE}] @ end()))"
    failovers = f"sum {BY_BRIDGE} ({each_step(BRIDGES('failovers_total'))})"
    return [
        glance.last_moves(width=15, height=12),
        events(
            "Applied by reason",
            "Moves that switches have made. Reasons of policies: threshold, rebalance, split and "
            "merge; of operators: manual, pin, drain and rule; of link changes: failover and failback.",
            [_by_reason("moves_applied_total")],
            by_reason=True,
            width=9,
            height=12,
        ),
        rows(
            "Refusals",
            "Refused moves in the time range, and the number of planned moves with the same "
            "reason. Good: no data. `ovs-lbt history` on the host shows why each move was refused.",
            [
                Column(
                    "Refused",
                    expr=short_host(refused),
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                    width=90,
                ),
                Column(
                    "of",
                    expr=short_host(f"({planned} and on {by_reason} {refused})"),
                    unit=panels.COUNT,
                    width=45,
                ),
                Column("Reason", "reason", words=panels.WHY, width=90),
                Column("Bridge", "bridge", link=frame.FROM_ROW),
                Column("Host", "host", link=frame.FROM_ROW),
                Column("Instance", "instance", hidden=True),
                Column("Job", "job", hidden=True),
            ],
            sort=["Refused"],
            width=14,
            height=5,
        ),
        glance.worst_uplinks(width=10, height=5, most=glance.FEW),
        events(
            "Failovers by bridge",
            "VM ports that moved because their uplink failed, on the ten bridges with the most "
            "failovers. Good: none, or one burst when a link went down.",
            [of_host(highest(f"{failovers} > 0", ON_BRIDGE, most), WHERE)],
        ),
        events(
            "Refused by reason",
            "Moves that were planned but refused. Good: none. manual, pin and drain: an operator's "
            "command was refused. Other reasons: the switch refused a change; see the switch's log.",
            [_by_reason("moves_refused_total")],
            by_reason=True,
        ),
    ]


def _what_called_for_it() -> list[panels.Panel]:
    utilization = BRIDGES("uplink_utilization_ratio")
    busiest = f"max {BY_BRIDGE} ({at_any_time('max', utilization)})"
    shown = of_connected(BRIDGES, utilization)
    # The state of an uplink may have changed since the switch's last answer.
    unrelieved = of_connected(BRIDGES, BRIDGES("uplink_unrelieved"))
    every = {"instance": "all", "bridge": "bridges'", "uplink": "uplinks"}
    at_times = at_any_time("max", BRIDGES("uplink_unrelieved"))
    ever = f"{unrelieved} and {ON_UPLINK} {at_times} > 0"
    changes = BRIDGES("uplink_link_changes_total")
    most = f"sum by (job, instance, bridge, uplink) (increase({changes}[{RANGE}] @ end()))"
    return [
        lines(
            "Busiest uplink against threshold",
            "The utilization of the busiest uplink, and the threshold, for the ten bridges with the "
            "busiest uplinks. A policy moves a port when the mean over its window is above the "
            "threshold, so a short peak does not cause a move.",
            [
                of_host(highest(f"max {BY_BRIDGE} ({shown})", ON_BRIDGE, busiest), WHERE),
                of_host(
                    highest(BRIDGES("bridge_threshold_ratio"), ON_BRIDGE, busiest),
                    WHERE + " threshold",
                ),
            ],
            unit=panels.RATIO,
        ),
        states(
            "Unrelieved uplinks",
            "Times when an uplink was above the threshold and its policy found no move that helps: one "
            "row per such uplink, and one for all uplinks. While a service or switch does not answer, the "
            "latter is empty unless such an uplink is known. Good: no red. `ovs-lbt explain PORT`, for the "
            "VM port with the most traffic on the uplink, shows what would have to change.",
            of_host(and_all(ever, known_of_uplinks(f"max({unrelieved})"), **every), UPLINK),
            words=panels.RELIEVED,
        ),
        events(
            "Link changes",
            "The number of times that links of uplinks in service went up or down, for the ten uplinks "
            "with the most changes. Good: none. When a link goes down, a failover follows; some time "
            "after the link is up again, a failback follows. A link that changes often is flapping.",
            [
                of_host(
                    highest(f"{each_step(changes)} > 0 and {in_service(BRIDGES)}", ON_UPLINK, most),
                    UPLINK,
                )
            ],
            width=24,
        ),
    ]


def _what_came_of_it() -> list[panels.Panel]:
    def highest_of(gauge: str) -> str:
        shown = of_connected(BRIDGES, BRIDGES(gauge))
        return highest(shown, ON_BRIDGE, at_any_time("max", BRIDGES(gauge)))

    decided = BRIDGES("last_decision_timestamp_seconds")
    return [
        lines(
            "Optimality",
            "The utilization of the busiest uplink, divided by the utilization with the best "
            "placement, for the ten bridges where this ratio was highest. Good: the ratio falls "
            "towards 1 after each move. `ovs-lbt plan` shows moves that would help.",
            [of_host(highest_of("bridge_optimality_ratio"), WHERE)],
            unit=panels.COUNT,
            decimals=2,
        ),
        lines(
            "Imbalance",
            "The utilization of a bridge's busiest uplink minus that of its least busy uplink, for "
            "the ten bridges with the largest difference. Good: the difference falls after each move.",
            [of_host(highest_of("bridge_imbalance_ratio"), WHERE)],
            unit=panels.RATIO,
        ),
        lines(
            "Age of the last decision",
            "The time since the last decision, for the ten bridges with the oldest decisions. Good: at most "
            "a few poll intervals. The age grows while the switch is not connected or the service hangs.",
            [
                of_host(
                    highest(
                        f"time() - {decided}",
                        ON_BRIDGE,
                        f"-last_over_time({decided}[{RANGE}] @ end())",
                    ),
                    WHERE,
                )
            ],
            unit=panels.SECONDS,
            least_maximum=panels.OLD_S,
        ),
        lines(
            "Convergence time",
            "The 90th percentile of the time from a policy's first move until no more moves are needed, on "
            "the ten bridges where this time was longest over the whole time range. Good: under a second "
            "with adaptive. A policy with a window of 30 s needs 30 s for each move after the first.",
            [of_host(slowest(0.9, BRIDGES("settling_seconds_bucket")), WHERE)],
            unit=panels.SECONDS,
            points=VisibilityMode.ALWAYS,
        ),
        lines(
            "Inbound follows after",
            "The 90th percentile of the time from a move until inbound traffic arrives on the new "
            "uplink, on the ten bridges where this time was longest over the whole time range. Good: at "
            "most 1.5 s. A higher value means that announcements to the upstream switch were repeated.",
            [of_host(slowest(0.9, BRIDGES("inbound_follow_seconds_bucket")), WHERE)],
            unit=panels.SECONDS,
            points=VisibilityMode.ALWAYS,
        ),
        lines(
            "Move budgets used up",
            "VM ports and other units currently exempt from load balancing, for the ten bridges with the "
            "most such units: upstream switches may block addresses that move more often. Good: 0. If an "
            "uplink is full while the number is above 0, split or pin the VM ports whose load jumps.",
            [of_host(highest_of("move_budget_exhausted"), WHERE)],
            unit=panels.COUNT,
            none_is_good=True,
        ),
    ]
