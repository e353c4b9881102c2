"""Converts the service's status to Prometheus metrics at each scrape. `api.status` lists the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.api import status

PREFIX = "ovslbt_"
SECONDS_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# The names of histograms, with the upper bounds of their buckets in seconds.
OBSERVED = {
    "decision_duration": SECONDS_BUCKETS,
    "stats_poll_duration": SECONDS_BUCKETS,
    "settling": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    "inbound_follow": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
}
# Histograms that may have no observations for a long time on some bridges.
RARE = ("settling", "inbound_follow")
# The help texts of metric families, by name without `PREFIX`, `_total` and a histogram's `_seconds`.
# docs/metrics.md is generated from these texts.
HELP = {
    **status.METRIC_HELP,
    "decision_duration": "Time from decoding counters to issuing switch commands.",
    "stats_poll_duration": "Time from the request for a switch's counters to the switch's last reply.",
    "settling": "Time from a policy's first move to balance load until the policy has no more moves to make.",
    "inbound_follow": "Time from a move on the switch until inbound traffic first arrives on the new uplink.",
    "leader": "1 while the service leads and makes decisions. 0 while the service is on standby; a service on standby has no metrics with the label bridge.",
    "faults": "Number of times that a part of the service failed because of an unexpected exception. If a fault ended the process, the next process reports the fault.",
    "build_info": "The version of the running service.",
}


class Exporter:
    """The service's metrics. `application`: the WSGI application that `scrapes.serve` serves.

    On a separate thread, each scrape calls `read_status`, `leads` (returns whether this service leads)
    and `faults` (returns the number of failures of each part of the service).
    """

    def __init__(
        self,
        read_status: Callable[[], tuple[status.BridgeStatus, ...]],
        version: str,
        leads: Callable[[], bool] = lambda: True,
        faults: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._read_status = read_status
        self._leads = leads
        self._faults = faults
        self._version = version
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.application = make_wsgi_app(self._registry)
        self._observed = {
            name: Histogram(
                f"{PREFIX}{name}_seconds",
                HELP[name],
                ["bridge"],
                buckets=buckets,
                registry=self._registry,
            )
            for name, buckets in OBSERVED.items()
        }

    def observe(self, bridge: str, histogram: str, seconds: float) -> None:
        self._observed[histogram].labels(bridge).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Return all metric families, including those without samples."""
        bridges = self._read_status()
        for bridge in bridges:
            # Create each series early, because rate() and increase() ignore a series' first value.
            for name in RARE:
                self._observed[name].labels(bridge.config.name)
        uplinks = [([b.config.name, u.uplink.name], u) for b in bridges for u in b.uplinks]
        yield from _families(status.UPLINK_METRICS, ["bridge", "uplink"], uplinks)
        ports = [([b.config.name, p.port.name], p) for b in bridges for p in b.ports]
        yield from _families(status.PORT_METRICS, ["bridge", "port"], ports)
        named = [([b.config.name], b) for b in bridges]
        yield from _families(status.BRIDGE_METRICS, ["bridge"], named)
        build = _gauge("build_info", ["version"])
        build.add_metric([self._version], 1)
        leader = _gauge("leader", [])
        leader.add_metric([], float(self._leads()))
        failed = _counter("faults", ["part"])
        for part, count in self._faults().items():
            failed.add_metric([part], count)
        yield from (build, leader, failed)

    def describe(self) -> Iterable[Metric]:
        """Return no families, because the families are known only at a scrape."""
        return ()


def _families(
    table: Mapping[str, status.StatusMetric[status.Shown]],
    labels: list[str],
    records: Iterable[tuple[list[str], status.Shown]],
) -> Iterator[Metric]:
    """Yield the metric families in `table`. `records`: (values of `labels`, record with the metrics)."""
    for name, metric in table.items():
        family = (_counter if metric.is_counter else _gauge)(name, [*labels, *metric.labels])
        for key, record in records:
            for more, value in metric.samples(record):
                # Unknown values are omitted, because they are not zero.
                if value is not None:
                    family.add_metric([*key, *more], float(value))
        yield family


def _counter(name: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, HELP[name], labels=labels)


def _gauge(name: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, HELP[name], labels=labels)
