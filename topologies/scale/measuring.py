"""Measures the cost and the delays of one service process with many bridges."""

from __future__ import annotations

import json
import math
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.network import processes
from topologies.network.service import Metric, Service
from topologies.scale.bed import Bed
from topologies.scale.openflow import SwitchView

DECISIONS, POLLS = "ovslbt_decision_duration_seconds", "ovslbt_stats_poll_duration_seconds"
# Attaches and failovers are measured on at most this many bridges.
SAMPLES = 5
# The effects of one failover are over after this: VM ports return eight at a time, one second apart.
CALM_S = 1.0
# The cost of a scrape is over after this.
AFTER_SCRAPE_S = 2.0
# The service is idle if it uses less than this share of a core over this window.
IDLE_WINDOW_S, IDLE_RATIO = 3.0, 0.7
ANSWER_TIMEOUT_S = 60
STARTED_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The time for the service to settle, and the time to observe it."""

    settle_s: float
    observe_s: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram: cumulative counts by upper bound, and the sum."""

    buckets: Mapping[float, float]
    total_s: float

    @property
    def count(self) -> float:
        return max(self.buckets.values(), default=0.0)

    def since(self, before: Histogram) -> Histogram:
        """The observations since `before`."""
        buckets = {le: n - before.buckets.get(le, 0.0) for le, n in self.buckets.items()}
        return Histogram(buckets, self.total_s - before.total_s)

    def quantile(self, part: float) -> float | None:
        """Interpolate like `histogram_quantile` of Prometheus. None without observations."""
        rank, below_le, below_n = part * self.count, 0.0, 0.0
        if not self.count:
            return None
        for le, count in sorted(self.buckets.items()):
            if count >= rank and count > below_n:
                if math.isinf(le):
                    return below_le
                return below_le + (le - below_le) * (rank - below_n) / (count - below_n)
            below_le, below_n = le, count
        return below_le


def histogram(metrics: Iterable[Metric], name: str) -> Histogram:
    """A histogram of the service, summed over all bridges."""
    buckets: dict[float, float] = {}
    total_s = 0.0
    for metric in metrics:
        if metric.name == name + "_bucket":
            le = float(metric.labels["le"])
            buckets[le] = buckets.get(le, 0.0) + metric.value
        elif metric.name == name + "_sum":
            total_s += metric.value
    return Histogram(buckets, total_s)


class NotifySocket:
    """The service's status notifications (sd_notify): how many bridges are connected."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(1.0)

    def wait_connected(self, bridges: int) -> None:
        """Wait until all of this number of bridges are connected.

        Raises:
            RuntimeError: a bridge did not connect in time.
        """
        wanted = f"STATUS={bridges} of {bridges} bridges connected"
        end_s, text = time.monotonic() + STARTED_TIMEOUT_S, "nothing"
        while text != wanted:
            if time.monotonic() > end_s:
                raise RuntimeError(f"the service's status is {text[:100]!r}; expected {wanted!r}")
            try:
                text = self._socket.recv(1 << 17).decode()
            except TimeoutError:
                continue


def measure(
    bed: Bed,
    bridges: int,
    settings: Mapping[str, str],
    pace: Pace,
    interval_s: float,
    write_line: Callable[[str], None],
) -> dict[str, Any]:
    """Measure a service with the first `bridges` bridges, and attach the last of them by command.

    `settings` has the keys of each bridge, and `interval_s` is the poll interval that results. The
    bed's other bridges are not attached.
    """
    for made in bed.grow(bridges):
        write_line(f"{made} bridges created")
    rundir = bed.ovs.rundir
    bed.ovs.env["NOTIFY_SOCKET"] = str(rundir / "notify")
    status, log = NotifySocket(rundir / "notify"), rundir / "service.out"
    row: dict[str, Any] = {
        "bridges": bridges,
        "ports_each": bed.ports,
        "poll_interval_s": interval_s,
    }
    new = [name for name in bed.bridges[:bridges] if name not in bed.attached]
    first, last = new[:-SAMPLES], new[-SAMPLES:]
    bed.attach(first, settings)
    with Service(bed.ovs, log) as service:
        for name in first:
            await_groups(bed, name)
        await_idle(service)
        took_s = [_attach(bed, name, settings) for name in last]
        bed.attached |= {*last}
        if took_s:
            row["attach_s"] = _spread(took_s)
    begin_s = time.monotonic()
    with Service(bed.ovs, log) as service:
        status.wait_connected(bridges)
        row["start_s"] = time.monotonic() - begin_s
        # Many bridges are still compared with their configurations after they have connected.
        await_idle(service)
        time.sleep(pace.settle_s)
        row["at_rest"] = _observe(service, pace.observe_s)
        row["rss_bytes"] = processes.rss_bytes(service.pid)
        row["threads"] = len([*Path(f"/proc/{service.pid}/task").iterdir()])
        row["scrape"] = _scrape(service)
        row |= _failovers(bed, bridges, service)
    write_line(json.dumps(row))
    return row


def await_groups(bed: Bed, name: str) -> None:
    """Wait until the service has installed groups on a bridge.

    Raises:
        RuntimeError: it did not in time.
    """
    with SwitchView(bed.management_socket(name)) as view:
        problem = f"the service has installed no groups on {name}"
        processes.wait_until(view.groups, STARTED_TIMEOUT_S, lambda: problem, 0.2)


def await_idle(service: Service) -> None:
    """Wait until the service is idle, or for `STARTED_TIMEOUT_S`."""
    end_s, busy = time.monotonic() + STARTED_TIMEOUT_S, True
    while busy and time.monotonic() < end_s:
        used_s = processes.cpu_s(service.pid)
        time.sleep(IDLE_WINDOW_S)
        busy = processes.cpu_s(service.pid) - used_s > IDLE_RATIO * IDLE_WINDOW_S


def _attach(bed: Bed, name: str, settings: Mapping[str, str]) -> float:
    """Attach a bridge, and return the time until the service confirms its pipeline."""
    words = [f"{key}={value}" for key, value in settings.items()]
    begin_s = time.monotonic()
    _request(bed, "attach", name, f"uplinks={','.join(bed.uplinks(name))}", *words)
    return time.monotonic() - begin_s


def _request(bed: Bed, command: str, *words: str) -> str:
    appctl = ["ovs-appctl", f"--timeout={ANSWER_TIMEOUT_S}", "-t", "ovs-lbt", f"lbt/{command}"]
    return bed.ovs.run(*appctl, *words, timeout_s=ANSWER_TIMEOUT_S)


def _observe(service: Service, observe_s: float) -> dict[str, Any]:
    """Observe the service between two scrapes, without requests."""
    before = service.metrics()
    time.sleep(AFTER_SCRAPE_S)
    begin_s, used_s = time.monotonic(), processes.cpu_s(service.pid)
    time.sleep(observe_s)
    took_s = time.monotonic() - begin_s
    found: dict[str, Any] = {"cpu_ratio": (processes.cpu_s(service.pid) - used_s) / took_s}
    after = service.metrics()
    for name, key in ((DECISIONS, "decision_s"), (POLLS, "poll_s")):
        seen = histogram(after, name).since(histogram(before, name))
        mean = seen.total_s / seen.count if seen.count else None
        spread = {"median": seen.quantile(0.5), "p99": seen.quantile(0.99)}
        found[key] = {"mean": mean, **spread, "count": seen.count}
    return found


def _failovers(bed: Bed, bridges: int, service: Service) -> dict[str, Any]:
    """The failovers of sampled bridges, and the switch's longest answer during each.

    A failover lasts from the switch's notification of the link failure until its groups change.
    """
    await_idle(service)
    found = []
    for name in sampled(bed, bridges, SAMPLES):
        found.append(failover(bed, name))
        time.sleep(CALM_S)
    whole_s, switch_s = (list(values) for values in zip(*found, strict=True))
    return {"failover_s": _spread(whole_s), "failover_switch_s": _spread(switch_s)}


def sampled(bed: Bed, bridges: int, samples: int) -> list[str]:
    """At most `samples` of the bridges whose uplinks have cables, far apart."""
    cabled = [name for name in bed.bridges[:bridges] if bed.is_cabled(name)]
    chosen = {len(cabled) * (number + 1) // samples for number in range(samples)} - {0}
    return [cabled[number - 1] for number in sorted(chosen)]


def failover(bed: Bed, bridge: str) -> tuple[float, float]:
    """Fail an uplink in use. Returns the time until the groups followed, and the switch's longest answer."""
    (shown,) = json.loads(_request(bed, "show", bridge, "--json"))["bridges"]
    # An earlier failover may have left an uplink without VM ports.
    used = Counter(port["uplink"] for port in shown["ports"])
    uplink = max(bed.uplinks(bridge), key=lambda name: used[name])
    with SwitchView(bed.management_socket(bridge)) as view:
        before = view.groups()
        bed.set_cable(uplink, plugged=False)
        try:
            reported_s = view.await_port_change()
            followed_s, longest_s = view.await_group_change(before)
            return followed_s - reported_s, longest_s
        finally:
            bed.set_cable(uplink, plugged=True)


def _scrape(service: Service) -> dict[str, float]:
    """Measure the cost of a scrape."""
    begin_s, used_s = time.monotonic(), processes.cpu_s(service.pid)
    samples = len(service.metrics())
    return {
        "s": time.monotonic() - begin_s,
        "cpu_s": processes.cpu_s(service.pid) - used_s,
        "samples": samples,
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "worst": max(values),
        "count": len(values),
    }
