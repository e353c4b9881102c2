"""The services themselves: do they run, are they connected, are they quick."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards import frame, panels
from dashboards.frame import Section
from dashboards.panels import Ask, Column, distribution, lines, number, rows, states
from dashboards.queries import BRIDGES, BY_SERVICE, SERVICES, increase, or_none, quantile, rate

SERVICE = "{{instance}}"
WHERE = "{{instance}} {{bridge}}"


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.CONTROLLER,
        "The services themselves: do they run, are they connected to their switches, is their "
        "configuration sound, and how long polls and decisions take.",
        frame.many_bridges(),
        [],
        [
            Section("", _is_anything_wrong()),
            Section("Which", _which()),
            Section("Connection and configuration", _connection()),
            Section("Speed", _speed()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    return [
        number(
            "Services up",
            "Services that Prometheus scrapes. Good: one for each host.",
            Ask(or_none(f"count({SERVICES.of('up')} == 1)")),
            steps=panels.ONE_IS_GOOD,
        ),
        number(
            "Services down",
            "Services that Prometheus cannot scrape. Good: 0. `systemctl status ovs-lbt` on that "
            "host, and see that `--metrics` is an address that Prometheus reaches.",
            Ask(or_none(f"count({SERVICES.of('up')} == 0)")),
            steps=panels.NONE_IS_GOOD,
        ),
        number(
            "Deciding",
            "Services that decide, rather than stand by for another one. Good: one for each host. "
            "None: nothing is balanced.",
            Ask(or_none(f"sum({SERVICES('leader')})")),
            steps=panels.ONE_IS_GOOD,
        ),
        number(
            "Bridges connected",
            "Bridges whose switch is connected to its service. Good: all of them.",
            Ask(or_none(f"sum({BRIDGES('bridge_connected')})")),
            steps=panels.ONE_IS_GOOD,
        ),
        number(
            "Bridges not connected",
            "Bridges that a service should serve and cannot reach. Good: 0. See that ovs-vswitchd "
            "runs, and that nobody removed the bridge.",
            Ask(or_none(f"count({BRIDGES('bridge_connected')} == 0)")),
            steps=panels.NONE_IS_GOOD,
        ),
        number(
            "Configuration errors",
            "Values in the database that were not taken; the last good ones stay in force. Good: 0. "
            "`ovs-lbt show` names record, key, what was found and what is expected.",
            Ask(or_none(f"sum({BRIDGES('config_errors')})")),
            steps=panels.NONE_IS_GOOD,
        ),
    ]


def _which() -> list[panels.Panel]:
    def of_service(function: str, expr: str) -> str:
        return f"{function} {BY_SERVICE} ({expr})"

    return [
        rows(
            "Services",
            "Every service: its version, whether it decides, and how much it serves. Good: one "
            "version everywhere. A service that stands by while none decides needs a look at its log.",
            [
                Column("Job", "job"),
                Column("Host", "instance"),
                Column("Version", "version"),
                Column(
                    "Scraped", expr=of_service("max", SERVICES.of("up")), words=panels.UP_OR_DOWN
                ),
                Column("Role", expr=of_service("max", SERVICES("leader")), words=panels.DECIDES),
                Column(
                    "Bridges",
                    expr=of_service("count", BRIDGES("bridge_connected")),
                    unit=panels.COUNT,
                ),
                Column(
                    "Connected",
                    expr=of_service("sum", BRIDGES("bridge_connected")),
                    unit=panels.COUNT,
                ),
                Column(
                    "VM ports", expr=of_service("count", BRIDGES("port_info")), unit=panels.COUNT
                ),
                Column(
                    "Configuration errors",
                    expr=of_service("sum", BRIDGES("config_errors")),
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_GOOD,
                ),
                Column(
                    "Series",
                    expr=of_service("max", SERVICES.of("scrape_samples_scraped")),
                    unit=panels.COUNT,
                ),
            ],
            labelled=[f"max by (job, instance, version) ({SERVICES('build_info')})"],
            sort="Scraped",
            descending=False,
            height=8,
        ),
    ]


def _connection() -> list[panels.Panel]:
    return [
        states(
            "Connection to switches",
            "When each bridge was connected. Good: no red. A short gap is a restart of ovs-vswitchd "
            "or of the service; the bridge forwards meanwhile.",
            Ask(BRIDGES("bridge_connected"), WHERE),
            words=panels.CONNECTED,
            width=6,
        ),
        states(
            "Who decides",
            "When each service decided, or stood by for another. Good: one of each pair decides at "
            "any time.",
            Ask(SERVICES("leader"), SERVICE),
            words=panels.DECIDES,
            width=6,
        ),
        lines(
            "Configuration errors by bridge",
            "Values in the database that were not taken, by bridge. Good: 0. It rises the moment "
            "somebody sets a wrong value; `ovs-lbt show` names it.",
            [Ask(BRIDGES("config_errors"), WHERE)],
            unit=panels.COUNT,
            width=6,
        ),
        lines(
            "Faults by part",
            "Parts of a service that failed and started anew, or ended it: its own fault, not a switch's. "
            "Good: 0. `ovs-lbt show` and the log tell what was found.",
            [Ask(f"{increase(SERVICES('faults_total'))} > 0", "{{instance}} {{part}}")],
            unit=panels.COUNT,
            width=6,
        ),
    ]


def _speed() -> list[panels.Panel]:
    polls = BRIDGES("stats_poll_duration_seconds_bucket")
    decisions = BRIDGES("decision_duration_seconds_bucket")
    return [
        distribution(
            "Polls",
            "How long switches took to answer when asked for counters: how many polls per second "
            "took how long. Good: a narrow band far below the poll interval. Rising: ovs-vswitchd is "
            "busy.",
            f"sum by (le) ({rate(polls)})",
        ),
        distribution(
            "Decisions",
            "How long it took from decoded counters to commands. Good: milliseconds. Rising with the "
            "number of VM ports is normal; jumps mean that the host has no CPU time to spare.",
            f"sum by (le) ({rate(decisions)})",
        ),
        lines(
            "Slowest polls",
            "The time that 99 % of a bridge's polls stay below: the five slowest bridges. Good: far below the "
            "poll interval.",
            [Ask(f"topk(5, {quantile(0.99, polls, 'job, instance, bridge')})", WHERE)],
            unit=panels.SECONDS,
            link=frame.FROM_SERIES,
            width=8,
        ),
        lines(
            "Slowest decisions",
            "The time that 99 % of a bridge's decisions stay below: the five slowest bridges. Good: "
            "milliseconds.",
            [Ask(f"topk(5, {quantile(0.99, decisions, 'job, instance, bridge')})", WHERE)],
            unit=panels.SECONDS,
            link=frame.FROM_SERIES,
            width=8,
        ),
        lines(
            "Scrapes",
            "How long Prometheus waited for a service's metrics. Good: far below the scrape "
            "interval.",
            [Ask(SERVICES.of("scrape_duration_seconds"), SERVICE)],
            unit=panels.SECONDS,
            width=8,
        ),
    ]
