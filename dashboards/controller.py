"""The dashboard of the services: whether they run, are connected and respond fast."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards import frame, glance, panels
from dashboards.frame import Section
from dashboards.panels import (
    Ask,
    Column,
    distribution,
    events,
    lines,
    number,
    of_host,
    rows,
    states,
)
from dashboards.queries import (
    BRIDGES,
    BY_SERVICE,
    LEADERS,
    ON_BRIDGE,
    ON_SERVICE,
    RANGE,
    SERVICES,
    TARGETS,
    and_all,
    at_any_time,
    each_step,
    highest,
    how_many,
    known,
    rate,
    slowest,
)

# Only the port distinguishes a standby service on the same host.
SERVICE = "{{instance}}"
WHERE = "{{host}} {{bridge}}"
KNOWN = 'While a service is down, this panel shows "not known" instead of 0.'


def build() -> model.Dashboard:
    return frame.dashboard(
        frame.CONTROLLER,
        "The services: whether they run and are connected to their switches, whether their "
        "configuration is valid, and how long polls and decisions take.",
        frame.many_bridges(),
        [],
        [
            Section("", [*_is_anything_wrong(), *_which()]),
            Section("Connection and configuration", _connection()),
            Section("Speed", _speed()),
        ],
    )


def _is_anything_wrong() -> list[panels.Panel]:
    return [
        glance.wrong_now(width=4),
        number(
            "Services down",
            "Services that Prometheus cannot scrape. Good: 0. Run `systemctl status ovs-lbt` on the "
            "host, and check that Prometheus can reach the address of `--metrics`.",
            Ask(how_many(TARGETS.of("up"), 0)),
            steps=panels.NONE_IS_GOOD,
        ),
        number(
            "Deciding",
            "Services that lead and make decisions, instead of being on standby. Good: one for each host. "
            "If 0, no load is balanced.",
            Ask(f"sum({SERVICES('leader')})"),
            steps=panels.NONE_IS_BAD,
        ),
        number(
            "Bridges not connected",
            "Attached bridges that their service cannot reach. Good: 0. Check that ovs-vswitchd is "
            f"running and that the bridge still exists. {KNOWN}",
            Ask(known(how_many(BRIDGES("bridge_connected"), 0))),
            steps=panels.NONE_IS_GOOD,
            width=6,
        ),
        number(
            "Configuration errors",
            "Invalid values in the database; the last valid values stay in force. Good: 0. `ovs-lbt show` "
            f"shows the record, the key, the value, and the expected values. {KNOWN}",
            Ask(known(f"sum({BRIDGES('config_errors')})")),
            steps=panels.NONE_IS_GOOD,
            width=6,
        ),
    ]


def _which() -> list[panels.Panel]:
    def of_service(function: str, expr: str) -> str:
        return f"{function} {BY_SERVICE} ({expr})"

    return [
        rows(
            "Services",
            "Every service: its version, whether it leads, and the number of bridges that it manages. Good: "
            "the same version on all hosts. If no service leads, read the logs of the services on standby.",
            [
                Column("Host", "instance", link=frame.TO_SERVICE),
                Column("Job", "job", width=130),
                Column("Version", "version", width=100),
                Column(
                    "Scraped",
                    expr=of_service("max", TARGETS.of("up")),
                    words=panels.UP_OR_DOWN,
                    width=100,
                ),
                Column(
                    "Role",
                    expr=of_service("max", SERVICES("leader")),
                    words=panels.DECIDES,
                    width=85,
                ),
                Column(
                    "Bridges",
                    expr=of_service("count", BRIDGES("bridge_connected")),
                    unit=panels.COUNT,
                    width=80,
                ),
                Column(
                    "Connected",
                    expr=of_service("sum", BRIDGES("bridge_connected")),
                    unit=panels.COUNT,
                    width=105,
                ),
                Column(
                    "VM ports",
                    expr=of_service("count", BRIDGES("port_info")),
                    unit=panels.COUNT,
                    width=85,
                ),
                Column(
                    "Configuration errors",
                    expr=of_service("sum", BRIDGES("config_errors")),
                    unit=panels.COUNT,
                    steps=panels.NONE_IS_GOOD,
                    width=165,
                ),
                Column(
                    "Series",
                    expr=of_service("max", TARGETS.of("scrape_samples_scraped")),
                    unit=panels.COUNT,
                    width=80,
                ),
            ],
            labelled=[f"max by (job, instance, version) ({SERVICES('build_info')})"],
            sort=["Scraped"],
            ascending=["Scraped"],
            height=7,
        ),
        glance.worst_uplinks(width=10, height=5, most=glance.FEW),
        glance.last_moves(width=14, height=5),
    ]


def _connection() -> list[panels.Panel]:
    connected, leader, up = BRIDGES("bridge_connected"), SERVICES("leader"), TARGETS.of("up")
    errors, faults = BRIDGES("config_errors"), SERVICES("faults_total")
    most = f"increase({faults}[{RANGE}] @ end())"
    every = {"instance": "all", "bridge": "bridges"}
    not_connected = f"{connected} and {ON_BRIDGE} {at_any_time('min', connected)} == 0"
    # Whether a service leads is unknown while it is down, so it is shown, but is not counted as a
    # service that leads.
    role = f"max {BY_SERVICE} ({leader} or {ON_SERVICE} ({up} == 0) + 3)"
    ever = f"({at_any_time('min', up)} == 0 or {ON_SERVICE} {at_any_time('min', leader)} == 0)"
    not_leading = f"{role} and {ON_SERVICE} {ever}"
    every_job = {"instance": "every job"}
    return [
        states(
            "Connection to switches",
            "Times when a bridge was not connected: one row per affected bridge, and one for all "
            "bridges. While a service does not answer, the latter is empty unless a bridge is "
            "disconnected. Good: no red. A short gap means that ovs-vswitchd or the service "
            "restarted; bridges keep forwarding.",
            of_host(and_all(not_connected, known(f"min({connected})", "== 0"), **every), WHERE),
            words=panels.CONNECTED,
        ),
        states(
            "Which service leads",
            "Times when a service led, was on standby, or was down: one row per service that did "
            "not always lead, and one for all jobs. The latter shows whether every job has a leader, "
            "and is empty while a service does not answer. Good: no red. A service without a "
            "standby always leads; a service and its standby services form one job.",
            of_host(
                and_all(not_leading, known(f"2 - min({LEADERS})", "> 1"), **every_job), SERVICE
            ),
            words=panels.LEADS,
        ),
        lines(
            "Configuration errors by bridge",
            "Invalid values in the database, for the ten bridges with the most errors. Good: 0. The number "
            "rises as soon as an invalid value is set. `ovs-lbt show` lists the errors.",
            [of_host(highest(errors, ON_BRIDGE, at_any_time("max", errors)), WHERE)],
            unit=panels.COUNT,
            none_is_good=True,
            height=10,
        ),
        events(
            "Faults by part",
            "Failures of parts of a service, after which the part or the whole service restarted. They "
            "are caused by ovs-lbt, not by a switch. Good: none. `ovs-lbt show` and the log show the error.",
            [
                of_host(
                    highest(f"{each_step(faults)} > 0", "on (job, instance, part)", most),
                    "{{instance}} {{part}}",
                )
            ],
            height=10,
        ),
    ]


def _speed() -> list[panels.Panel]:
    polls = BRIDGES("stats_poll_duration_seconds_bucket")
    decisions = BRIDGES("decision_duration_seconds_bucket")
    scraped = TARGETS.of("scrape_duration_seconds")
    return [
        distribution(
            "Polls",
            "The time that switches took to answer a request for counters, as polls per second by duration. "
            "Good: a narrow band far below the poll interval. If the band rises, ovs-vswitchd is busy.",
            f"sum by (le) ({rate(polls)})",
        ),
        distribution(
            "Decisions",
            "The time from decoded counters to the resulting commands. Good: milliseconds. The time "
            "increases with the number of VM ports. Jumps mean that the host is short of CPU time.",
            f"sum by (le) ({rate(decisions)})",
        ),
        lines(
            "Slowest polls",
            "The 99th percentile of the time that a poll takes, for the ten bridges with the slowest "
            "polls in the time range. Good: far below the poll interval.",
            [of_host(slowest(0.99, polls), WHERE)],
            unit=panels.SECONDS,
            link=frame.FROM_SERIES,
        ),
        lines(
            "Slowest decisions",
            "The 99th percentile of the time that a decision takes, for the ten bridges with the slowest "
            "decisions in the time range. Good: milliseconds.",
            [of_host(slowest(0.99, decisions), WHERE)],
            unit=panels.SECONDS,
            link=frame.FROM_SERIES,
        ),
        lines(
            "Scrapes",
            "The time that Prometheus waited for a service's metrics, for the ten services with "
            "the slowest scrapes in the time range. Good: far below the scrape interval.",
            [of_host(highest(scraped, ON_SERVICE, at_any_time("max", scraped)), SERVICE)],
            unit=panels.SECONDS,
            width=24,
            height=6,
        ),
    ]
