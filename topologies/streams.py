"""The load of parallel TCP streams: NTttcp's, by iperf3, and how evenly it was served.

`ntttcp -m 8,* -l 128k -t 15 -wu 5 -cd 5`: eight streams that send buffers of 128 KB,
measured for 15 s between 5 s of warm-up and 5 s of cool-down, at the receiver.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """How many streams there are, what they send, and which part of it is measured."""

    streams: int = 8
    buffer_bytes: int = 128 * 1024
    warm_up_s: float = 5.0
    measured_s: float = 15.0
    cool_down_s: float = 5.0

    @property
    def total_s(self) -> float:
        """How long the streams send."""
        return self.warm_up_s + self.measured_s + self.cool_down_s

    def receiver_command(self, port: int) -> list[str]:
        """The receiver; it ends after one test, its report on standard output."""
        return [
            "iperf3",
            "--server",
            "--one-off",
            "--json",
            "--interval",
            "0.5",
            "--port",
            str(port),
        ]

    def sender_command(self, address: str, port: int) -> list[str]:
        """The sender, to be started when the receiver listens."""
        return [
            *("iperf3", "--client", address, "--port", str(port), "--json"),
            *("--parallel", str(self.streams), "--length", str(self.buffer_bytes)),
            *("--time", f"{self.total_s:g}", "--interval", "0.5"),
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


def stream_rates_bps(report: Mapping[str, Any], plan: StreamPlan) -> list[float]:
    """What each stream carried in the measured part, by iperf3's report of one side.

    What lies across its edge counts by its share. Streams are in the report's order.

    Raises:
        RuntimeError: the test failed, or did not have all its streams for all the time.
    """
    if "error" in report:
        raise RuntimeError(f"iperf3: {report['error']} -> {plan.streams} streams")
    from_s, to_s = plan.warm_up_s, plan.warm_up_s + plan.measured_s
    bits: dict[int, float] = {}
    covered_s: dict[int, float] = {}
    for one in (one for interval in report["intervals"] for one in interval["streams"]):
        lasted_s = one["end"] - one["start"]
        within_s = max(0.0, min(one["end"], to_s) - max(one["start"], from_s))
        share = within_s / lasted_s if lasted_s > 0 else 0.0
        bits[one["socket"]] = bits.get(one["socket"], 0.0) + one["bytes"] * 8 * share
        covered_s[one["socket"]] = covered_s.get(one["socket"], 0.0) + within_s
    if len(bits) != plan.streams:
        raise RuntimeError(f"iperf3: {len(bits)} streams -> {plan.streams}")
    shortest_s = min(covered_s.values())
    # Intervals follow each other with gaps of a few milliseconds.
    if shortest_s < 0.95 * plan.measured_s:
        raise RuntimeError(f"iperf3: {shortest_s:.1f} s measured -> {plan.measured_s:g} s")
    return [carried / covered_s[socket] for socket, carried in bits.items()]
