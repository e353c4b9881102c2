"""Computes the figures of a web load from its downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies.loads import workload


def qos_ratio(downloads: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of complete downloads that reached the required rate; None without downloads.

    Downloads that the end of the load interrupted do not count.
    """
    required_bps = workload.LINE_BPS * workload.REQUIRED_RATE_RATIO
    rates_bps = [
        one["size_bytes"] * 8 / (one["end_s"] - one["start_s"])
        for one in downloads
        if one["complete"]
    ]
    if not rates_bps:
        return None
    return sum(rate_bps >= required_bps for rate_bps in rates_bps) / len(rates_bps)


def received_bytes(downloads: Sequence[Mapping[str, Any]], start_s: float, end_s: float) -> float:
    """The bytes received in a span, if each download has a constant rate."""
    total = 0.0
    for one in downloads:
        lasted_s = one["end_s"] - one["start_s"]
        within_s = min(one["end_s"], end_s) - max(one["start_s"], start_s)
        if within_s > 0 and lasted_s > 0:
            total += one["received_bytes"] * within_s / lasted_s
    return total


def figures(
    downloads: Sequence[Mapping[str, Any]], ramp_s: float, load_s: float, limit_bps: int
) -> dict[str, float]:
    """The figures that only a web load has.

    `steady_throughput_bps` is the throughput after the ramp. It corresponds to the document's
    "little over 13 Gbps".
    """
    steady_bps = received_bytes(downloads, ramp_s, load_s) * 8 / (load_s - ramp_s)
    found = {
        "steady_throughput_bps": steady_bps,
        "steady_share_of_limit": steady_bps / limit_bps,
        "downloads": float(sum(bool(one["complete"]) for one in downloads)),
    }
    if (quality := qos_ratio(downloads)) is not None:
        found["qos_ratio"] = quality
    return found
