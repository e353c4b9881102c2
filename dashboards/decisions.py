"""What the policies decided: what called for it, what was done, and what came of it."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards import frame, panels
from dashboards.frame import Section
from dashboards.panels import Ask, Column, events, lines, number, rows, states
from dashboards.queries import (
    BRIDGES,
    BY_BRIDGE,
    ON_BRIDGE,
    ON_UPLINK,
    RANGE,
    increase,
    or_none,
    quantile,
    whole,
)

WHERE = "{{instance}} {{bridge}}"
UPLINK = "{{instance}} {{bridge}} {{uplink}}"


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.DECISIONS,
        "What the policies wanted, what switches carried out, what called for it and what came of "
        "it. `ovs-lbt history` on a host has each decision with its loads before and after.",
        frame.many_bridges(),
        frame.marks(BRIDGES),
        [
            Section("", _is_anything_wrong()),
            Section("What was done", _what_was_done()),
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
            "spread.",
            Ask(whole(increase(BRIDGES("moves_planned_total"), RANGE))),
            steps=panels.DONE,
        ),
        number(
            "Applied",
            "Moves that switches have carried out in the time shown. Good: as many as were planned, "
            "but for bridges that are only observed.",
            Ask(whole(increase(BRIDGES("moves_applied_total"), RANGE))),
            steps=panels.DONE,
        ),
        number(
            "Refused",
            "Moves that a switch, or a rule in an operator's way, refused in the time shown. Good: "
            "0. The table of refusals below says where and for what reason they were wanted.",
            Ask(whole(increase(BRIDGES("moves_refused_total"), RANGE))),
            steps=panels.NONE_IS_BEST,
        ),
        number(
            "Failovers",
            "VM ports moved in the time shown because their uplink failed. Good: 0.",
            Ask(whole(increase(BRIDGES("failovers_total"), RANGE))),
            steps=panels.NONE_IS_BEST,
        ),
        number(
            "Bridges only observed",
            "Bridges where the service tells what it would do and does nothing. Good: 0, once you "
            "like what you see: `ovs-lbt set bridge BRIDGE mode=enforce`.",
            Ask(or_none(f"count({observed})")),
            steps=((None, "green"), (1, "blue")),
        ),
        number(
            "Oldest last decision",
            "How long ago the policy of the bridge that waits longest was asked. Good: at most a few "
            "poll intervals. It grows while a switch is not connected, or a service is stuck: see "
            "its log.",
            Ask(f"time() - min({BRIDGES('last_decision_timestamp_seconds')})"),
            unit=panels.SECONDS,
            steps=panels.AGE,
        ),
    ]


def _by_reason(counter: str) -> Ask:
    return Ask(f"sum by (reason) ({increase(BRIDGES(counter))}) > 0", "{{reason}}")


def _what_was_done() -> list[panels.Panel]:
    def in_all(counter: str) -> str:
        return f"sum({increase(BRIDGES(counter))})"

    def of_each(counter: str) -> str:
        return f"sum by (job, instance, bridge, reason) ({increase(BRIDGES(counter), RANGE)})"

    bound = "max by (job, instance, bridge, port, uplink, reason)"
    return [
        events(
            "Applied by reason",
            "Moves that switches have carried out. threshold, rebalance, split and merge are a "
            "policy's; manual, pin, drain and rule an operator's; failover and failback a link's.",
            [_by_reason("moves_applied_total")],
            width=8,
        ),
        events(
            "Planned by reason",
            "Moves that were wanted. What is planned and never applied: the bridge is only observed, "
            "or the switch refuses.",
            [_by_reason("moves_planned_total")],
            width=8,
        ),
        events(
            "Refused by reason",
            "Moves that were wanted and not carried out. Good: none. manual, pin and drain: an "
            "operator asked for what cannot be, and was told. Anything else: the switch refused a "
            "change; its log says why.",
            [_by_reason("moves_refused_total")],
            width=8,
        ),
        lines(
            "Planned, applied, refused",
            "The three together. Good: applied follows planned, refused stays at zero.",
            [
                Ask(in_all("moves_planned_total"), "planned"),
                Ask(in_all("moves_applied_total"), "applied"),
                Ask(in_all("moves_refused_total"), "refused"),
            ],
            unit=panels.COUNT,
            width=12,
        ),
        events(
            "Failovers by bridge",
            "VM ports moved because their uplink failed. Good: none, or one burst when a link went "
            "down.",
            [Ask(f"sum {BY_BRIDGE} ({increase(BRIDGES('failovers_total'))})", WHERE)],
            width=12,
        ),
        rows(
            "Latest bindings",
            "The twenty VM ports that were bound last: when, to which uplink, and why. Where the "
            "reason is a policy's name, that policy placed the port for the first time; restored is "
            "what was found at a start. Click a name to see the bridge.",
            [
                Column(
                    "When",
                    expr=f"topk(20, {bound} ({BRIDGES('port_bound_timestamp_seconds')})) * 1000",
                    unit=panels.TIME,
                ),
                Column("Job", "job"),
                Column("Host", "instance"),
                Column("Bridge", "bridge"),
                Column("Port", "port"),
                Column("Uplink", "uplink"),
                Column("Reason", "reason"),
            ],
            sort="When",
            link=frame.FROM_ROW,
            width=14,
        ),
        rows(
            "Refusals",
            "Where moves were refused in the time shown, and for what reason they were wanted. Good: "
            "empty. `ovs-lbt history` on that host says what was in the way.",
            [
                Column("Job", "job"),
                Column("Host", "instance"),
                Column("Bridge", "bridge"),
                Column("Reason", "reason"),
                Column(
                    "Refused",
                    expr=f"round({of_each('moves_refused_total')}) > 0",
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_BEST,
                ),
            ],
            sort="Refused",
            link=frame.FROM_ROW,
            width=10,
        ),
    ]


def _what_called_for_it() -> list[panels.Panel]:
    worst = f"max {BY_BRIDGE} ({BRIDGES('uplink_utilization_ratio')})"
    return [
        lines(
            "Busiest uplink against threshold",
            "The highest utilization of an uplink of each bridge, and the share of capacity that its "
            "policy acts on. A policy moves a port when the mean over its window is above it, so a "
            "short peak calls for nothing.",
            [
                Ask(worst, WHERE),
                Ask(BRIDGES("bridge_threshold_ratio"), WHERE + " threshold"),
            ],
            unit=panels.RATIO,
        ),
        lines(
            "Above the threshold",
            "By how much the busiest uplink is above its bridge's threshold. Good: empty. Above zero "
            "for longer than the window without a move: see unrelieved uplinks.",
            [
                Ask(
                    f"{worst} - {ON_BRIDGE} {BRIDGES('bridge_threshold_ratio')} > 0",
                    WHERE,
                )
            ],
            unit=panels.RATIO,
        ),
        states(
            "Unrelieved uplinks",
            "When an uplink was above the threshold and its policy had no move that helps. Good: no "
            "red. `ovs-lbt explain PORT` of its top talker says what would have to change.",
            Ask(BRIDGES("uplink_unrelieved"), UPLINK),
            words=panels.RELIEVED,
        ),
        events(
            "Link changes",
            "Times a link went up or down, of uplinks that are in service. Good: none. A failover "
            "follows when it goes down, a failback when it has been up for a while; one link over "
            "and over is flapping.",
            [
                Ask(
                    f"{increase(BRIDGES('uplink_link_changes_total'))} > 0 and {ON_UPLINK} "
                    + BRIDGES("uplink_info", 'role=~"active|standby"'),
                    UPLINK,
                )
            ],
        ),
    ]


def _what_came_of_it() -> list[panels.Panel]:
    return [
        lines(
            "Optimality",
            "Utilization of the worst uplink over the least that any placement could reach. Good: it "
            "falls towards 1 after each move. `ovs-lbt plan` shows what would still help.",
            [Ask(BRIDGES("bridge_optimality_ratio"), WHERE)],
            unit=panels.COUNT,
            width=8,
        ),
        lines(
            "Imbalance",
            "Utilization of the busiest uplink less that of the least busy one. Good: it falls after "
            "each move.",
            [Ask(BRIDGES("bridge_imbalance_ratio"), WHERE)],
            unit=panels.RATIO,
            width=8,
        ),
        lines(
            "Age of the last decision",
            "How long ago each bridge's policy was asked. Good: at most a few poll intervals. It "
            "grows while the switch is not connected or the service is stuck.",
            [Ask(f"time() - {BRIDGES('last_decision_timestamp_seconds')}", WHERE)],
            unit=panels.SECONDS,
            width=8,
        ),
        lines(
            "Settling time",
            "From the first move that a policy makes until it has looked again and has no more to "
            "make, nine times of ten. Good: under a second with adaptive; a policy with a window of "
            "30 s takes that long for each move after the first.",
            [Ask(_nine_of_ten("settling_seconds_bucket"), WHERE)],
            unit=panels.SECONDS,
            width=8,
        ),
        lines(
            "Inbound follows after",
            "From a move until what comes for the VM port was seen by its new uplink, nine times of "
            "ten. Good: at most 1.5 s. More: a switch upstream has to be told again.",
            [Ask(_nine_of_ten("inbound_follow_seconds_bucket"), WHERE)],
            unit=panels.SECONDS,
            width=8,
        ),
        lines(
            "Move budgets used up",
            "Units that load does not move now, as they have moved as often as switches upstream "
            "bear. Good: 0. Above 0 while an uplink is full: split or pin what jumps.",
            [Ask(BRIDGES("move_budget_exhausted"), WHERE)],
            unit=panels.COUNT,
            width=8,
        ),
    ]


def _nine_of_ten(histogram: str) -> str:
    return quantile(0.9, BRIDGES(histogram), "job, instance, bridge")
