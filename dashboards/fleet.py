"""The dashboard of all hosts: their problems, affected bridges, load, moves and failovers."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards import frame, glance, panels
from dashboards.frame import Section
from dashboards.panels import Ask, Column, events, lines, number, of_host, rows
from dashboards.queries import (
    BRIDGES,
    BY_BRIDGE,
    BY_SERVICE,
    ON_BRIDGE,
    ON_SERVICE,
    RANGE,
    TARGETS,
    at_any_time,
    each_step,
    highest,
    how_many,
    in_bits,
    in_range,
    in_service,
    known,
    known_of_uplinks,
    of_connected,
    rate_of_connected,
    short_service,
)

WHERE = "{{host}} {{bridge}}"
KNOWN = 'While a service is down, this panel shows "not known" instead of 0.'
ALL_KNOWN = 'While a service is down or a switch does not answer, this panel shows "not known" instead of 0.'
# The state of an uplink may have changed since the switch's last answer.
UP = of_connected(BRIDGES, BRIDGES("uplink_up"))
UNRELIEVED = of_connected(BRIDGES, BRIDGES("uplink_unrelieved"))


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.FLEET,
        "All hosts with ovs-lbt: problems at the top, then affected bridges, the history of the "
        "problems, and the moves. Each row links to its bridge.",
        frame.many_bridges(),
        [],
        [
            Section("", [*_is_anything_wrong(), *_where()]),
            Section("Services", [_services()]),
            Section("Load over time", _since_when()),
            Section("Moves and failovers", _what_was_done()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    return [
        number(
            "Services down",
            "Services that Prometheus cannot scrape. Good: 0. Without its service, a bridge "
            "forwards and fails over, but its load is not balanced. Start the service on the hosts that "
            "the table of services below shows as down.",
            Ask(how_many(TARGETS.of("up"), 0)),
            steps=panels.NONE_IS_GOOD,
        ),
        number(
            "Bridges not connected",
            "Bridges that are not connected although their service is running. Good: 0. Check that "
            f"ovs-vswitchd is running on the host and that the bridge still exists. {KNOWN}",
            Ask(known(how_many(BRIDGES("bridge_connected"), 0))),
            steps=panels.NONE_IS_GOOD,
            width=5,
        ),
        number(
            "Uplinks down",
            "Active and standby uplinks whose link is down. Good: 0. Their VM ports use other uplinks. "
            f"Check the cable, transceiver and switch port, or drain the uplink. {ALL_KNOWN}",
            Ask(known_of_uplinks(how_many(UP, 0, in_service(BRIDGES)))),
            steps=panels.NONE_IS_GOOD,
            width=5,
        ),
        number(
            "Unrelieved uplinks",
            "Uplinks above the threshold for which the policy finds no move that helps. Good: 0. "
            "Otherwise, the team is too small, or one VM is too large for any uplink: `ovs-lbt explain "
            f"PORT` shows the cause. A policy that splits traffic (`dynamic`) may help. {ALL_KNOWN}",
            Ask(known_of_uplinks(f"sum({UNRELIEVED})")),
            steps=panels.NONE_IS_GOOD,
            width=5,
        ),
        number(
            "Configuration errors",
            "Invalid values in the database; the last valid values stay in force. Good: 0. `ovs-lbt show` "
            f"shows the record, the key, the value, and the expected values. {KNOWN}",
            Ask(known(f"sum({BRIDGES('config_errors')})")),
            steps=panels.NONE_IS_GOOD,
            width=5,
        ),
    ]


def _where() -> list[panels.Panel]:
    alerts = 'ALERTS{alertname=~"OvsLbt.*"}'
    return [
        glance.worst_uplinks(width=10, height=10),
        rows(
            "Alerts",
            "Pending and firing alerts about ovs-lbt. Good: no alerts, if Prometheus has loaded the rules. "
            "docs/runbooks.md has a runbook for each alert. The name of a bridge links to the bridge, and "
            "the name of a host to its service. All: the alert is about a service and all its bridges.",
            [
                panels.severity(
                    alerts,
                    "alertname, alertstate, job, instance, bridge, uplink",
                    lambda found: frame.with_board(short_service(found)),
                ),
                Column("Alert", "alertname", width=220),
                Column("State", "alertstate", words=panels.STATES, width=90),
                Column("Host", "host", link=frame.TO_SERVICE),
                Column("Instance", "instance", hidden=True),
                Column("Bridge", "bridge", link=frame.TO_BOARD, width=80),
                Column("Uplink", "uplink", width=85),
                Column("Job", "job", hidden=True),
                Column("Board", "board", hidden=True),
            ],
            sort=["Severity", "Alert"],
            width=14,
            height=5,
        ),
        glance.last_moves(width=14, height=5),
        _bridges(),
    ]


def _bridges() -> panels.Panel:
    def each(function: str, expr: str) -> str:
        return f"{function} {BY_BRIDGE} ({expr})"

    info = BRIDGES("bridge_info")
    moves = f"{in_range(BRIDGES('moves_applied_total'))} and {ON_BRIDGE} {info}"
    return rows(
        "Bridges",
        "Every bridge whose service answers; bridges that need attention come first. Good: connected, "
        "below the threshold, no uplink down, no configuration errors, and on a busy bridge an "
        "optimality near 1 (no placement would make the busiest uplink much less busy). Click a name "
        "to see the bridge.",
        [
            Column("Host", "instance", link=frame.FROM_ROW),
            Column("Bridge", "bridge", link=frame.FROM_ROW, width=100),
            Column(
                "Switch",
                expr=each("min", BRIDGES("bridge_connected")),
                words=panels.CONNECTED,
                width=95,
            ),
            Column(
                "Busiest uplink",
                expr=each("max", glance.UTILIZATION),
                unit=panels.RATIO,
                decimals=0,
                steps=panels.UTILIZATION,
                width=135,
            ),
            Column(
                "Uplinks down",
                expr=each("sum", f"({UP} == bool 0) and {in_service(BRIDGES)}"),
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
                width=125,
            ),
            Column(
                "of",
                expr=each("count", f"{BRIDGES('uplink_up')} and {in_service(BRIDGES)}"),
                unit=panels.COUNT,
                width=45,
            ),
            Column(
                "Unrelieved",
                expr=each("sum", UNRELIEVED),
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
                width=105,
            ),
            Column(
                "Errors",
                expr=each("sum", BRIDGES("config_errors")),
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
                width=75,
            ),
            Column("Moves", expr=each("sum", moves), unit=panels.COUNT, width=70),
            Column(
                "Optimality",
                expr=each("max", of_connected(BRIDGES, BRIDGES("bridge_optimality_ratio"))),
                unit=panels.COUNT,
                decimals=2,
                width=100,
            ),
            Column("Policy", "policy", width=130),
            Column("Mode", "mode", width=75),
            Column("Job", "job", hidden=True),
        ],
        labelled=[f"max by (job, instance, bridge, policy, mode) ({info})"],
        sort=["Switch", "Errors", "Uplinks down", "Unrelieved", "Busiest uplink"],
        ascending=["Switch"],
        height=7,
    )


def _services() -> panels.Panel:
    def each(expr: str) -> str:
        return f"max {BY_SERVICE} ({expr})"

    connected, decided = BRIDGES("bridge_connected"), BRIDGES("last_decision_timestamp_seconds")
    # Unknown while one bridge has no decision: other bridges' age would hide this bridge.
    oldest = each(f"time() - {decided}")
    return rows(
        "Services",
        "Every service; services that need attention come first. Good: up, and the last decision at "
        "most a few poll intervals old. If a service is down, run `systemctl status ovs-lbt` on the host.",
        [
            Column("Host", "instance", link=frame.TO_SERVICE),
            Column("Job", "job"),
            Column(
                "Scraped",
                expr=each(TARGETS.of("up")),
                words=panels.UP_OR_DOWN,
                width=100,
            ),
            Column(
                "Bridges connected",
                expr=f"sum {BY_SERVICE} ({connected})",
                unit=panels.COUNT,
                width=165,
            ),
            Column(
                "of",
                expr=f"count {BY_SERVICE} ({connected})",
                unit=panels.COUNT,
                width=45,
            ),
            Column(
                "Configuration errors",
                expr=f"sum {BY_SERVICE} ({BRIDGES('config_errors')})",
                unit=panels.COUNT,
                steps=panels.NONE_IS_GOOD,
                width=175,
            ),
            Column(
                "Last decision",
                expr=f"{oldest} unless {ON_SERVICE} ({connected} == 1 unless {ON_BRIDGE} {decided})",
                unit=panels.SECONDS,
                steps=panels.AGE,
                width=120,
            ),
        ],
        sort=["Scraped"],
        ascending=["Scraped"],
    )


def _since_when() -> list[panels.Panel]:
    utilization = BRIDGES("uplink_utilization_ratio")
    busiest = f"max {BY_BRIDGE} ({at_any_time('max', utilization)})"
    shown = of_connected(BRIDGES, utilization)

    def traffic(direction: str) -> str:
        sent = f"sum {BY_SERVICE} (rate({BRIDGES('uplink_transmit_bytes_total')}[{RANGE}] @ end()))"
        shown = (
            f"sum {BY_SERVICE} ({rate_of_connected(BRIDGES, f'uplink_{direction}_bytes_total')})"
        )
        return in_bits(f"({highest(shown, ON_SERVICE, sent)})")

    return [
        lines(
            "Busiest uplink of each bridge",
            "The utilization of each bridge's busiest uplink, for the ten bridges where it was highest. "
            "Good: no line stays above its bridge's threshold. Click a line to see the bridge.",
            [of_host(highest(f"max {BY_BRIDGE} ({shown})", ON_BRIDGE, busiest), WHERE)],
            unit=panels.RATIO,
            link=frame.FROM_SERIES,
        ),
        lines(
            "Imbalance",
            "The utilization of a bridge's busiest uplink minus that of its least busy uplink, for "
            "the ten bridges with the largest difference. A large difference is not a problem "
            "while no uplink is busy. Otherwise, see the Optimality panel.",
            [of_host(_highest_of("bridge_imbalance_ratio"), WHERE)],
            unit=panels.RATIO,
            link=frame.FROM_SERIES,
        ),
        lines(
            "Optimality",
            "The utilization of the busiest uplink, divided by the utilization with the best placement, "
            "for the ten bridges where this ratio was highest. Good: near 1. Above 1.5 on a busy bridge, a "
            "better placement exists; `ovs-lbt plan` shows the moves.",
            [of_host(_highest_of("bridge_optimality_ratio"), WHERE)],
            unit=panels.COUNT,
            decimals=2,
            link=frame.FROM_SERIES,
            width=24,
        ),
        # Grafana colours lines by their order: in one graph, a host would have two colours.
        lines(
            "Sent by each host",
            "The total traffic that a host's uplinks send, for the ten hosts that send most. The "
            "total shows whether a host is busy, or only unevenly loaded.",
            [of_host(traffic("transmit"), "{{host}} sent")],
            unit=panels.BITS,
            height=10,
        ),
        lines(
            "Received by each host",
            "The total traffic that a host's uplinks receive, for the ten hosts that send most. Each host "
            "has the same colour as in the graph of sent traffic.",
            [of_host(traffic("receive"), "{{host}} received")],
            unit=panels.BITS,
            height=10,
        ),
    ]


def _highest_of(gauge: str) -> str:
    shown = of_connected(BRIDGES, BRIDGES(gauge))
    return highest(shown, ON_BRIDGE, at_any_time("max", BRIDGES(gauge)))


def _what_was_done() -> list[panels.Panel]:
    def each(counter: str, by: str = "job, instance, bridge") -> str:
        most = f"sum {BY_BRIDGE} (increase({BRIDGES(counter)}[{RANGE}] @ end()))"
        shown = f"sum by ({by}) ({each_step(BRIDGES(counter))}) > 0"
        return highest(shown, ON_BRIDGE, most)

    return [
        events(
            "Moves by bridge",
            "Moves that switches have made, on the ten bridges with the most moves. Good: few "
            "moves, and fewer after the load has been spread. If the moves on a bridge do not end, "
            "its load changes faster than the policy's window allows for.",
            [of_host(each("moves_applied_total"), WHERE)],
        ),
        events(
            "Failovers by bridge",
            "VM ports that moved because their uplink failed, on the ten bridges with the most failovers. "
            "Good: none, or one burst when a link went down. Many bursts mean a flapping link.",
            [of_host(each("failovers_total"), WHERE)],
        ),
        events(
            "Refused by bridge and reason",
            "Moves that were planned but refused, on the ten bridges with the most refusals. Good: "
            "none. `ovs-lbt history` on the host shows why each was refused.",
            [
                of_host(
                    each("moves_refused_total", "job, instance, bridge, reason"),
                    WHERE + " {{reason}}",
                )
            ],
            width=24,
            height=7,
        ),
    ]
