"""TCP streams by iperf3: what is asked of them, and what their reports say.

`ntttcp -m 8,* -l 128k -t 15 -wu 5 -cd 5` of the documents is eight streams that send
buffers of 128 KB, measured for 15 s between 5 s of warm-up and 5 s of cool-down, at the
receiver.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.graph.layout import Layout, Role

# Reports are cut into intervals of this length.
INTERVAL_S = 0.5
# Intervals follow each other with gaps of a few milliseconds.
LEAST_COVERED_RATIO = 0.95
CONNECT_TIMEOUT_MS = 3000


@dataclass(frozen=True, slots=True)
class Flow:
    """One or more TCP streams from one end system to an address of another.

    Attributes:
        begin_s: when it begins, in seconds since the start of the load.
        duration_s: how long it sends.
        rate_bps: what each stream sends at most; None: as much as it gets. By the kernel's
            pacing: what could not be sent in time is not made up for later.
    """

    sender: str
    receiver: str
    address: str
    duration_s: float
    streams: int = 1
    begin_s: float = 0.0
    rate_bps: int | None = None
    buffer_bytes: int = 128 * 1024

    def receiver_command(self, port: int) -> list[str]:
        """The receiver; it ends after one test, its report on standard output."""
        return [
            *("iperf3", "--server", "--one-off", "--json"),
            *("--interval", str(INTERVAL_S), "--port", str(port)),
        ]

    def sender_command(self, port: int) -> list[str]:
        """The sender, to be started when the receiver listens."""
        rate = [] if self.rate_bps is None else ["--fq-rate", str(self.rate_bps)]
        return [
            *("iperf3", "--client", self.address, "--port", str(port), "--json"),
            *("--connect-timeout", str(CONNECT_TIMEOUT_MS)),
            *("--parallel", str(self.streams), "--length", str(self.buffer_bytes), *rate),
            *("--time", f"{self.duration_s:g}", "--interval", str(INTERVAL_S)),
        ]


def equal_flows(layout: Layout, offered_ratio: float, duration_s: float) -> list[Flow]:
    """One flow of every VM to a client in turn, all alike.

    Together they offer this share of all uplinks.
    """
    vms, clients = layout.nodes(Role.VM), layout.nodes(Role.CLIENT)
    capacity_bps = sum(layout.capacity_bps(uplink) for uplink in layout.nodes(Role.UPLINK))
    return [
        Flow(
            sender=vm,
            receiver=clients[number % len(clients)],
            address=layout.address(clients[number % len(clients)]),
            duration_s=duration_s,
            rate_bps=int(offered_ratio * capacity_bps / len(vms)),
            # Short writes: a stream's mean is the same in any second.
            buffer_bytes=8 * 1024,
        )
        for number, vm in enumerate(vms)
    ]


@dataclass(frozen=True, slots=True)
class Spread:
    """How evenly streams were served: their mean, its sample standard deviation, and CV.

    The unit is that of the rates, except for the coefficient of variation (stdev / mean).
    """

    total: float
    mean: float
    stdev: float
    cv: float


def spread(rates: Sequence[float]) -> Spread:
    """The spread of the streams' rates; a single stream is even with itself."""
    mean = statistics.fmean(rates)
    stdev = statistics.stdev(rates) if len(rates) > 1 else 0.0
    return Spread(total=sum(rates), mean=mean, stdev=stdev, cv=stdev / mean if mean else 0.0)


def stream_rates_bps(
    report: Mapping[str, Any], streams: int, from_s: float, to_s: float
) -> list[float]:
    """What each stream carried in a span of its own time, by iperf3's report of one side.

    What lies across an edge of the span counts by its share. Streams are in the report's
    order.

    Raises:
        RuntimeError: the test failed, or did not have all its streams for all the span.
    """
    if "error" in report:
        raise RuntimeError(f"iperf3: {report['error']} -> {streams} streams")
    bits: dict[int, float] = {}
    covered_s: dict[int, float] = {}
    for one in (one for interval in report["intervals"] for one in interval["streams"]):
        lasted_s = one["end"] - one["start"]
        within_s = max(0.0, min(one["end"], to_s) - max(one["start"], from_s))
        share = within_s / lasted_s if lasted_s > 0 else 0.0
        bits[one["socket"]] = bits.get(one["socket"], 0.0) + one["bytes"] * 8 * share
        covered_s[one["socket"]] = covered_s.get(one["socket"], 0.0) + within_s
    if len(bits) != streams:
        raise RuntimeError(f"iperf3: {len(bits)} streams -> {streams}")
    shortest_s = min(covered_s.values())
    if shortest_s < LEAST_COVERED_RATIO * (to_s - from_s):
        raise RuntimeError(f"iperf3: {shortest_s:.1f} s measured -> {to_s - from_s:g} s")
    return [carried / covered_s[socket] for socket, carried in bits.items()]


def received_bytes(report: Mapping[str, Any]) -> int:
    """All that a receiver's report counts."""
    return sum(one["bytes"] for part in report.get("intervals", []) for one in part["streams"])


def ports(report: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Each stream's TCP ports, the sender's and the receiver's, by the receiver's report."""
    connected = report.get("start", {}).get("connected", [])
    return [(one["remote_port"], one["local_port"]) for one in connected]
