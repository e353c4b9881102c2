"""What the policies decided: the causes, the moves, and their results."""

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
# How many bridges may be chosen for their moves to be marked.
MARKED = 4


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.DECISIONS,
        "What the policies wanted, what switches carried out, what called for it and what came of "
        "it. `ovs-lbt history` on a host has each decision with its loads before and after. Graphs of "
        f"at most {MARKED} bridges are marked with moves (purple), failovers (red) and failbacks "
        "(green).",
        frame.many_bridges(),
        # Marks of many bridges would hide the graphs.
        frame.marks(
            BRIDGES, listed="Last ten moves", among=f"count({BRIDGES('bridge_info')}) <= {MARKED}"
        ),
        [
            Section("", [*_is_anything_wrong(), *_what_was_done()]),
            Section("What called for it", _what_called_for_it()),
            Section("What came of it", _what_came_of_it()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    observed = BRIDGES("bridge_info", 'mode="observe"')
    return [
        number(
            "Planned",
            "Moves that policies and operators wanted in the time shown. Good: few once the load is "
            "spread. If more are planned than applied, a bridge is in observe mode, or moves are "
            "refused.",
            Ask(f"sum({in_range(BRIDGES('moves_planned_total'))})"),
            steps=panels.DONE,
            width=3,
        ),
        number(
            "Applied",
            "Moves that switches have carried out in the time shown. Good: as many as were planned, "
            "except on bridges in observe mode.",
            Ask(f"sum({in_range(BRIDGES('moves_applied_total'))})"),
            steps=panels.DONE,
            width=3,
        ),
        number(
            "Refused",
            "Moves refused in the time shown: by the switch, or by ovs-lbt when an operator asked. "
            "Good: 0. The table of refusals below says where, and the reason for each move. While a "
            "service is down, 0 is not known.",
            Ask(known(f"sum({in_range(BRIDGES('moves_refused_total'))})")),
            steps=panels.NONE_IS_BEST,
        ),
        number(
            "Failovers",
            "VM ports moved in the time shown because their uplink failed. Good: 0. While a service "
            "is down, 0 is not known.",
            Ask(known(f"sum({in_range(BRIDGES('failovers_total'))})")),
            steps=panels.NONE_IS_BEST,
        ),
        number(
            "Bridges in observe mode",
            "Bridges where the service only reports what it would do. Good: 0, once you agree with "
            "its decisions. To let it act: `ovs-lbt set bridge BRIDGE mode=enforce`. While a service "
            "is down, 0 is not known.",
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
            "Moves that switches have carried out. Policies cause threshold, rebalance, split and "
            "merge; operators manual, pin, drain and rule; links failover and failback.",
            [_by_reason("moves_applied_total")],
            by_reason=True,
            width=9,
            height=12,
        ),
        rows(
            "Refusals",
            "Where moves were refused in the time shown, of how many that were planned for the same "
            "reason. Good: no data. `ovs-lbt history` on that host says why they were refused.",
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
            "VM ports moved because their uplink failed, on the ten bridges with most of them. Good: "
            "none, or one burst when a link went down.",
            [of_host(highest(f"{failovers} > 0", ON_BRIDGE, most), WHERE)],
        ),
        events(
            "Refused by reason",
            "Moves that were decided and not carried out. Good: none. manual, pin and drain: an "
            "operator's command was refused. All others: the switch refused a change; its log says "
            "why.",
            [_by_reason("moves_refused_total")],
            by_reason=True,
        ),
    ]


def _what_called_for_it() -> list[panels.Panel]:
    utilization = BRIDGES("uplink_utilization_ratio")
    busiest = f"max {BY_BRIDGE} ({at_any_time('max', utilization)})"
    shown = of_connected(BRIDGES, utilization)
    # What uplinks were when the switch answered last, they may no longer be.
    unrelieved = of_connected(BRIDGES, BRIDGES("uplink_unrelieved"))
    every = {"instance": "all", "bridge": "bridges'", "uplink": "uplinks"}
    at_times = at_any_time("max", BRIDGES("uplink_unrelieved"))
    ever = f"{unrelieved} and {ON_UPLINK} {at_times} > 0"
    changes = BRIDGES("uplink_link_changes_total")
    most = f"sum by (job, instance, bridge, uplink) (increase({changes}[{RANGE}] @ end()))"
    return [
        lines(
            "Busiest uplink against threshold",
            "The utilization of the busiest uplink, and the threshold, of the ten bridges where the "
            "uplink was busiest. A policy moves a port when the mean over its window is above the "
            "threshold, so a short peak causes no move.",
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
            "When an uplink was above the threshold and its policy had no move that helps: each uplink "
            "for which that was so, and all together while all services and switches answer, or one uplink "
            "is known to be so. Good: no red. `ovs-lbt explain PORT` of its top talker says what would "
            "have to change.",
            of_host(and_all(ever, known_of_uplinks(f"max({unrelieved})"), **every), UPLINK),
            words=panels.RELIEVED,
        ),
        events(
            "Link changes",
            "Times a link went up or down, of uplinks that are in service, the ten with most of them. "
            "Good: none. A failover follows when a link goes down, and a failback some time after it "
            "is up again. A link that changes again and again is flapping.",
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
            "Utilization of the busiest uplink, divided by the lowest that any placement could reach, "
            "for the ten bridges where it was highest. Good: it falls towards 1 after each move. "
            "`ovs-lbt plan` shows moves that would help.",
            [of_host(highest_of("bridge_optimality_ratio"), WHERE)],
            unit=panels.COUNT,
            decimals=2,
        ),
        lines(
            "Imbalance",
            "Utilization of the busiest uplink minus that of the least busy one, for the ten bridges "
            "where it was highest. Good: it falls after each move.",
            [of_host(highest_of("bridge_imbalance_ratio"), WHERE)],
            unit=panels.RATIO,
        ),
        lines(
            "Age of the last decision",
            "The time since the last decision, for the ten bridges where it is longest now. Good: at "
            "most a few poll intervals. It grows while the switch is not connected or the service "
            "hangs.",
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
            "Time from a policy's first move until it has nothing more to move, for nine cases in "
            "ten, of the ten bridges where it was longest in all the time shown. Good: under a second "
            "with adaptive. A policy with a window of 30 s needs 30 s for each move after the first.",
            [of_host(slowest(0.9, BRIDGES("settling_seconds_bucket")), WHERE)],
            unit=panels.SECONDS,
            points=VisibilityMode.ALWAYS,
        ),
        lines(
            "Inbound follows after",
            "Time from a move until inbound traffic arrives on the new uplink, for nine moves in ten, "
            "of the ten bridges where it was longest in all the time shown. Good: at most 1.5 s. If "
            "more, the announcement to the upstream switch was repeated.",
            [of_host(slowest(0.9, BRIDGES("inbound_follow_seconds_bucket")), WHERE)],
            unit=panels.SECONDS,
            points=VisibilityMode.ALWAYS,
        ),
        lines(
            "Move budgets used up",
            "Units that load does not move now, because upstream switches may block addresses that "
            "move more often, for the ten bridges with most of them. Good: 0. If above 0 while an "
            "uplink is full, split or pin the VM ports whose load jumps.",
            [of_host(highest_of("move_budget_exhausted"), WHERE)],
            unit=panels.COUNT,
            none_is_good=True,
        ),
    ]
