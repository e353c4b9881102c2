"""All hosts: is anything wrong, where, since when, and what has been done about it."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards import frame, panels
from dashboards.frame import Section
from dashboards.panels import Ask, Column, events, lines, number, ranking, rows
from dashboards.queries import (
    BRIDGES,
    BY_BRIDGE,
    BY_UPLINK,
    ON_UPLINK,
    RANGE,
    SERVICES,
    in_bits,
    increase,
    or_none,
    rate,
    whole,
)

WHERE = "{{instance}} {{bridge}}"


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.FLEET,
        "All hosts that ovs-lbt runs on: what is wrong at the top, then where, since when, and "
        "what was done about it. A row leads to the bridge it is about.",
        frame.many_bridges(),
        [],
        [
            Section("", _is_anything_wrong()),
            Section("Where", _where()),
            Section("Since when", _since_when()),
            Section("What was done", _what_was_done()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    in_service = BRIDGES("uplink_info", 'role=~"active|standby"')
    return [
        number(
            "Services down",
            "Services that Prometheus cannot scrape. Good: 0. A bridge without its service goes on "
            "forwarding and failing over, but nothing is balanced: start it on the hosts that the "
            "table of services below shows as down.",
            Ask(or_none(f"count({SERVICES.of('up')} == 0)")),
            steps=panels.NONE_IS_GOOD,
            width=3,
        ),
        number(
            "Bridges not connected",
            "Bridges whose OpenFlow connection is gone while their service runs. Good: 0. See that "
            "ovs-vswitchd runs on that host and that the bridge still exists.",
            Ask(or_none(f"count({BRIDGES('bridge_connected')} == 0)")),
            steps=panels.NONE_IS_GOOD,
            width=3,
        ),
        number(
            "Uplinks down",
            "Active and standby uplinks without a link. Good: 0. VM ports have failed over to the "
            "others; look at cable, transceiver and switch port, or drain the uplink.",
            Ask(or_none(f"count(({BRIDGES('uplink_up')} == 0) and {ON_UPLINK} {in_service})")),
            steps=panels.NONE_IS_GOOD,
            width=3,
        ),
        number(
            "Unrelieved uplinks",
            "Uplinks above the threshold for which the policy has no move that helps. Good: 0. "
            "Otherwise the team is too small, or one VM is too big for any uplink: `ovs-lbt "
            "explain PORT` tells which, and a policy that splits VMs (`dynamic`) may help.",
            Ask(or_none(f"sum({BRIDGES('uplink_unrelieved')})")),
            steps=panels.NONE_IS_GOOD,
            width=3,
        ),
        number(
            "Busiest uplink",
            "The highest share of its capacity that any uplink of any host sends or receives. Good: "
            "below its bridge's threshold, 75 % unless set otherwise.",
            Ask(f"max({BRIDGES('uplink_utilization_ratio')})"),
            unit=panels.RATIO,
            steps=panels.UTILIZATION,
            width=3,
        ),
        number(
            "Configuration errors",
            "Values in the database that were not taken; the last good ones stay in force. Good: 0. "
            "`ovs-lbt show` names record, key, what was found and what is expected.",
            Ask(or_none(f"sum({BRIDGES('config_errors')})")),
            steps=panels.NONE_IS_GOOD,
            width=3,
        ),
        number(
            "Moves refused",
            "Moves that a switch, or a rule in an operator's way, refused in the time shown. Good: "
            "0. `ovs-lbt history` on that host says which and why.",
            Ask(whole(increase(BRIDGES("moves_refused_total"), RANGE))),
            steps=panels.NONE_IS_BEST,
            width=3,
        ),
        number(
            "Failovers",
            "VM ports moved in the time shown because their uplink failed. Good: 0. The graph "
            "below tells where.",
            Ask(whole(increase(BRIDGES("failovers_total"), RANGE))),
            steps=panels.NONE_IS_BEST,
            width=3,
        ),
    ]


def _where() -> list[panels.Panel]:
    worst = f"max {BY_UPLINK} ({BRIDGES('uplink_utilization_ratio')})"
    return [
        ranking(
            "Worst uplinks",
            "The ten uplinks that use most of their capacity now, in the busier direction. Good: "
            "none in orange or red for long. Click a bar to see its bridge.",
            Ask(f"topk(10, {worst})", "{{instance}} {{bridge}} {{uplink}}"),
            unit=panels.RATIO,
            steps=panels.UTILIZATION,
            maximum=1,
            link=frame.FROM_SERIES,
        ),
        rows(
            "Alerts",
            "Alerts of ovs-lbt that wait for their time (pending) or fire. Good: none. "
            "docs/operations.md tells for each by name what to look at and what to do.",
            [
                Column("Alert", "alertname"),
                Column("State", "alertstate", words={"firing": ("firing", "red")}),
                Column("Severity", "severity"),
                Column("Job", "job"),
                Column("Host", "instance"),
                Column("Bridge", "bridge"),
                Column("Uplink", "uplink"),
            ],
            labelled=[
                "max by (alertname, alertstate, severity, job, instance, bridge, uplink) "
                '(ALERTS{alertname=~"OvsLbt.*"})'
            ],
            sort="State",
            descending=False,
            link=frame.FROM_ROW,
            width=12,
        ),
        _bridges(),
        _services(),
    ]


def _bridges() -> panels.Panel:
    def each(function: str, expr: str) -> str:
        return f"{function} {BY_BRIDGE} ({expr})"

    return rows(
        "Bridges",
        "Every bridge, the one with the busiest uplink first. Good: connected, below the threshold, "
        "optimality near 1 (the worst uplink carries no more than the best placement would leave "
        "on it). Click a name to see the bridge.",
        [
            Column("Job", "job"),
            Column("Host", "instance"),
            Column("Bridge", "bridge"),
            Column("Policy", "policy"),
            Column("Teaming", "teaming"),
            Column("Mode", "mode"),
            Column(
                "Switch",
                expr=each("min", BRIDGES("bridge_connected")),
                words=panels.CONNECTED,
            ),
            Column(
                "Busiest uplink",
                expr=each("max", BRIDGES("uplink_utilization_ratio")),
                unit=panels.RATIO,
                steps=panels.UTILIZATION,
            ),
            Column(
                "Imbalance",
                expr=each("max", BRIDGES("bridge_imbalance_ratio")),
                unit=panels.RATIO,
            ),
            Column(
                "Optimality",
                expr=each("max", BRIDGES("bridge_optimality_ratio")),
                unit=panels.COUNT,
                steps=panels.OPTIMALITY,
            ),
            Column(
                "Unrelieved",
                expr=each("sum", BRIDGES("uplink_unrelieved")),
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
            ),
            Column(
                "Moves",
                expr=f"round({each('sum', increase(BRIDGES('moves_applied_total'), RANGE))})",
                unit=panels.COUNT,
            ),
            Column(
                "Configuration errors",
                expr=each("sum", BRIDGES("config_errors")),
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
            ),
        ],
        labelled=[
            f"max by (job, instance, bridge, policy, teaming, mode) ({BRIDGES('bridge_info')})"
        ],
        sort="Busiest uplink",
        link=frame.FROM_ROW,
    )


def _services() -> panels.Panel:
    def each(expr: str) -> str:
        return f"max by (job, instance) ({expr})"

    return rows(
        "Services",
        "Every service, the ones that need somebody first. Good: up, and the last decision not older "
        "than a few poll intervals. Down: `systemctl status ovs-lbt` on that host.",
        [
            Column("Job", "job"),
            Column("Host", "instance"),
            Column("Scraped", expr=each(SERVICES.of("up")), words=panels.UP_OR_DOWN),
            Column(
                "Bridges connected",
                expr=f"sum by (job, instance) ({BRIDGES('bridge_connected')})",
                unit=panels.COUNT,
            ),
            Column(
                "Configuration errors",
                expr=f"sum by (job, instance) ({BRIDGES('config_errors')})",
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
            ),
            Column(
                "Last decision",
                expr=each(f"time() - {BRIDGES('last_decision_timestamp_seconds')}"),
                unit=panels.SECONDS,
                steps=panels.AGE,
            ),
        ],
        sort="Scraped",
        descending=False,
    )


def _since_when() -> list[panels.Panel]:
    return [
        lines(
            "Busiest uplink of each bridge",
            "The highest share of its capacity that an uplink of the bridge sends or receives. Good: "
            "no line that stays above its bridge's threshold. Click a line to see the bridge.",
            [Ask(f"max {BY_BRIDGE} ({BRIDGES('uplink_utilization_ratio')})", WHERE)],
            unit=panels.RATIO,
            link=frame.FROM_SERIES,
        ),
        lines(
            "Traffic of each host",
            "What all uplinks of a host send and receive together. It tells a busy day from a team "
            "that balances badly.",
            [
                Ask(
                    in_bits(
                        f"sum by (instance) ({rate(BRIDGES(f'uplink_{direction}_bytes_total'))})"
                    ),
                    f"{{{{instance}}}} {word}",
                )
                for direction, word in (("transmit", "sent"), ("receive", "received"))
            ],
            unit=panels.BITS,
        ),
        lines(
            "Imbalance",
            "Utilization of a bridge's busiest uplink less that of its least busy one. High is fine "
            "while no uplink is busy; high and busy: look at optimality.",
            [Ask(BRIDGES("bridge_imbalance_ratio"), WHERE)],
            unit=panels.RATIO,
            link=frame.FROM_SERIES,
        ),
        lines(
            "Optimality",
            "Utilization of the worst uplink over the least that any placement could reach. Good: "
            "near 1. Above 1.5 on a busy bridge: a better placement exists; `ovs-lbt plan` shows "
            "the moves.",
            [Ask(BRIDGES("bridge_optimality_ratio"), WHERE)],
            unit=panels.COUNT,
            link=frame.FROM_SERIES,
        ),
    ]


def _what_was_done() -> list[panels.Panel]:
    def each(counter: str) -> str:
        return f"sum {BY_BRIDGE} ({increase(BRIDGES(counter))})"

    return [
        events(
            "Moves by bridge",
            "Moves that switches have carried out. Good: few, and fewer once the load is spread. A "
            "bridge that never stops moving has a load that changes faster than its window.",
            [Ask(each("moves_applied_total"), WHERE)],
            width=8,
        ),
        events(
            "Failovers by bridge",
            "VM ports that changed uplink because theirs failed. Good: none, or one burst when a "
            "link went down; burst after burst is a flapping link.",
            [Ask(each("failovers_total"), WHERE)],
            width=8,
        ),
        events(
            "Refused by bridge and reason",
            "Moves that were wanted and not carried out, by reason. Good: none; `ovs-lbt history` on "
            "that host says why.",
            [
                Ask(
                    f"sum by (job, instance, bridge, reason) ({increase(BRIDGES('moves_refused_total'))})"
                    " > 0",
                    WHERE + " {{reason}}",
                )
            ],
            width=8,
        ),
    ]
