"""The PromQL of the dashboards: the series that they query, and how these series are joined."""

from __future__ import annotations

from dataclasses import dataclass

from policies.model import Reason

# The utilization from which an uplink counts as busy, and as full.
BUSY_RATIO = 0.75
FULL_RATIO = 0.95

RANGE = "$__range"
RATE = "$__rate_interval"
STEP = "$__interval"
# The maximum length of a gap in the samples after which a count continues.
GAP = "15m"
# The number of series in a graph of all hosts.
MOST = 10

# Joins match series of the same bridge, uplink or VM port on the same host, because different hosts
# use the same names for bridges and interfaces.
ON_SERVICE = "on (job, instance)"
ON_BRIDGE = "on (job, instance, bridge)"
ON_UPLINK = "on (job, instance, bridge, uplink)"
ON_PORT = "on (job, instance, bridge, port)"
BY_BRIDGE = "by (job, instance, bridge)"
BY_UPLINK = "by (job, instance, bridge, uplink)"
BY_PORT = "by (job, instance, bridge, port)"
BY_SERVICE = "by (job, instance)"

# A binding that was found at the start, or was the first one that a policy made, is not a move, and has
# another reason. CHOICE_REASONS are the reasons for moves that were not caused by links.
CHOICE_REASONS = "|".join(r for r in Reason if r not in (Reason.FAILOVER, Reason.FAILBACK))
REASONS = "|".join(Reason)


@dataclass(frozen=True, slots=True)
class Scope:
    """The series that a dashboard's variables select, for example `scope("uplink_up")`."""

    matchers: tuple[str, ...]

    def __call__(self, metric: str, *more: str) -> str:
        """Return a query for an ovs-lbt metric. `metric`: the name without the prefix ovslbt_."""
        return self.of(f"ovslbt_{metric}", *more)

    def of(self, metric: str, *more: str) -> str:
        """Return a query for `metric`. `more`: matchers in addition to those of the scope."""
        return f"{metric}{{{', '.join((*self.matchers, *more))}}}"


# The bridge dashboard shows one bridge; all others show any number of selected bridges.
ONE_BRIDGE = Scope(('job="$job"', 'instance="$instance"', 'bridge="$bridge"'))
BRIDGES = Scope(('job=~"$job"', 'instance=~"$instance"', 'bridge=~"$bridge"'))
SERVICES = Scope(('job=~"$job"', 'instance=~"$instance"'))
ONE_SERVICE = Scope(('job="$job"', 'instance="$instance"'))
# For Prometheus's own metrics, which exist for every program. A job's name identifies ovs-lbt,
# because no other label does so while the service is down. The alerts do the same.
TARGETS = Scope(('job=~"ovs-lbt.*"', 'job=~"$job"', 'instance=~"$instance"'))
BUILDS = SERVICES("build_info")
# Firing alerts that require an operator, unlike alerts of severity info.
ALARMING = ('alertname=~"OvsLbt.*"', 'alertstate="firing"', 'severity=~"warning|critical"')
# A service and its standby services have a separate job.
LEADERS = f"max by (job) ({SERVICES('leader')})"


def in_bits(rate: str) -> str:
    """Convert bytes per second to bits per second."""
    return f"{rate} * 8"


def rate(counter: str) -> str:
    return f"rate({counter}[{RATE}])"


def rate_of_connected(scope: Scope, counter: str) -> str:
    """Return the rate of a switch's counter if service and switch have answered throughout the range.

    While the switch does not answer, the exported counters do not change, and jump afterwards: neither
    shows the actual load. If a range begins before the service starts, or ends after it stops, Prometheus
    computes the rate as if the samples covered the whole range: the load would seem to rise or fall.
    """
    connected = scope("bridge_connected")
    answered = f"min_over_time({connected}[{RATE}]) == 1"
    throughout = f"{ON_BRIDGE} {connected} and {ON_BRIDGE} {connected} offset {RATE}"
    return f"({rate(scope(counter))} and {ON_BRIDGE} {answered} and {throughout})"


def each_step(counter: str, service: str = BUILDS) -> str:
    """Return the exact increase of a counter in each step of a graph.

    `increase` would extrapolate, and show an event twice if its range is longer than a step. If a
    counter is lower than before, the service has restarted, and the counter started from zero. The
    same applies to a new counter of a `service` that existed before.
    """
    now = f"last_over_time({counter}[{STEP}])"
    before = f"last_over_time({counter}[{GAP}] offset {STEP})"
    known = f"last_over_time({service}[{GAP}] offset {STEP})"
    return f"({now} - {before} >= 0 or {now} and {ON_SERVICE} {known})"


def in_range(counter: str) -> str:
    """Return the exact increase of a counter in the time range.

    If the service has restarted in this time, return Prometheus's estimate, rounded.
    """
    before = f"last_over_time({counter}[{GAP}] offset {RANGE})"
    exact = f"last_over_time({counter}[{RANGE}]) - {before} >= 0"
    restarted = f"resets({counter}[{RANGE}]) > 0"
    return f"({exact} unless {restarted} or round(increase({counter}[{RANGE}])))"


def at_any_time(function: str, gauge: str) -> str:
    """Return the maximum or minimum (`function`) in the time range, regardless of the graph's step."""
    return f"{function}_over_time({gauge}[{RANGE}] @ end())"


def highest(shown: str, on: str, ranked: str) -> str:
    """Return the series of `shown` with the highest values of `ranked`, to keep graphs readable.

    `ranked` covers the whole time range. With a ranking for each step, a graph would have more lines
    than `MOST`, with gaps in each line.
    """
    return f"{shown} and {on} topk({MOST}, {ranked})"


def in_service(scope: Scope) -> str:
    """Return the end of a join that keeps only active and standby uplinks."""
    return f"""{ON_UPLINK} {scope("uplink_info", 'role=~"active|standby"')}"""


def and_all(shown: str, all_of_them: str, **labels: str) -> str:
    """Return `shown`, and `all_of_them` with added `labels`, because `shown` may be empty."""
    for label, value in labels.items():
        all_of_them = f'label_replace({all_of_them}, "{label}", "{value}", "", "")'
    return f"{shown} or {all_of_them}"


def how_many(series: str, value: int, among: str = "") -> str:
    """Return the number of series with this value; no result (not 0) if there is no series."""
    return f"sum({series} == bool {value}{among and f' and {among}'})"


def known(value: str, wrong: str = "> 0") -> str:
    """Return `value` if it meets the condition `wrong`; if not, only while all services answer."""
    return f"{value} {wrong} or {all_answering(value)}"


def of_connected(scope: Scope, series: str) -> str:
    """Return `series` for bridges whose switch answers: the state of other bridges is unknown."""
    return f"({series} and {ON_BRIDGE} ({scope('bridge_connected')} == 1))"


def of_links_up(scope: Scope, series: str) -> str:
    """Return `series` for uplinks that are up and whose switch answers: a down link is not idle."""
    return of_connected(scope, f"{series} and {ON_UPLINK} {scope('uplink_up')} == 1")


def known_of_uplinks(value: str) -> str:
    """Return a count of uplinks, which is 0 only while all services and all switches answer."""
    return f"{known(value)} unless on () {BRIDGES('bridge_connected')} == 0"


def all_answering(series: str) -> str:
    """Return `series`, but no result unless all services answer and every job has a leader.

    If all services of a job are on standby, the state of their bridges is unknown.
    """
    dead, leaderless = f"{TARGETS.of('up')} == 0", f"{LEADERS} == 0"
    return f"{series} unless on () {dead} unless on () {leaderless}"


def if_connected(scope: Scope, count: str) -> str:
    """Return `count`; a count of 0 is omitted while the switch does not answer."""
    return f"(({count}) > 0 or ({count}) and {ON_BRIDGE} {scope('bridge_connected')} == 1)"


def how_many_are_wrong() -> str:
    """Return the number of services with a known problem of the service, a bridge or an uplink.

    Each job without a leader adds 1. All causes of an unknown state also count, so zero means that
    there is no problem. Alerts about a service have no label for a bridge, and alerts about a job have
    no label for a service. A service with several problems counts once.
    """
    about = ('job=~"$job|"', 'instance=~"$instance|"', 'bridge=~"$bridge|"')
    links = of_connected(BRIDGES, BRIDGES("uplink_up"))
    wrong = (
        f"{TARGETS.of('up')} == 0",
        f"{LEADERS} == 0",
        f"{BRIDGES('bridge_connected')} == 0",
        f"{links} == 0 and {in_service(BRIDGES)}",
        f"{of_connected(BRIDGES, BRIDGES('uplink_unrelieved'))} > 0",
        f"{BRIDGES('config_errors')} > 0",
        Scope((*ALARMING, *about)).of("ALERTS"),
    )
    return f"count(count {BY_SERVICE} ({' or '.join(wrong)})) or 0 * count({TARGETS.of('up')})"


def short_host(series: str) -> str:
    """Add a label `host`: the instance without port, and without domain if it is not an IP address."""
    portless = f'label_replace({series}, "host", "$1", "instance", "(.+?)(:[0-9]+)?")'
    name = "([^.:[]*[A-Za-z][^.:[]*)[.:].*"
    return f'label_replace({portless}, "host", "$1", "instance", "{name}")'


def short_service(series: str) -> str:
    """Add a label `host` with the port, which distinguishes a service from its standby on one host."""
    whole = f'label_replace({series}, "host", "$1", "instance", "(.+)")'
    name = "([^.:[]*[A-Za-z][^.:[]*)[.][^:]*(:[0-9]+)?"
    return f'label_replace({whole}, "host", "$1$2", "instance", "{name}")'


def quantile(share: float, histogram: str, by: str) -> str:
    """Return a quantile (`share`, e.g. 0.99) of a histogram for each combination of labels `by`."""
    return f"histogram_quantile({share}, sum by (le, {by}) ({rate(histogram)}))"


def slowest(share: float, histogram: str) -> str:
    """Return a quantile of a histogram for the bridges with its highest values in the time range.

    Bridges without events are excluded: `topk` would rank their quantile, which is not a number.
    """
    in_all = f"rate({histogram}[{RANGE}] @ end())"
    ranked = f"histogram_quantile({share}, sum by (le, job, instance, bridge) ({in_all})) >= 0"
    return highest(quantile(share, histogram, "job, instance, bridge"), ON_BRIDGE, ranked)


def bound_at_ms(scope: Scope, reasons: str) -> str:
    """Return the times at which ports were bound for these reasons, in milliseconds since the epoch.

    When a binding ends, its series ends, so the query covers a range of time.
    """
    bound = scope("port_bound_timestamp_seconds", f'reason=~"{reasons}"')
    return f"last_over_time({bound}[{RATE}]) * 1000 >= $__from"
