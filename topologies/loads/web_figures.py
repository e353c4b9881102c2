"""What users got of a web load: from downloads to figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies.loads import workload


def qos_ratio(downloads: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of downloads that reached their required rate; None without any.

    What the end of the load broke off is not counted, neither way.
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
    """What was received in a span; a download's bytes count as spread over its time."""
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

    `steady_throughput_bps` is what users received after the ramp, which the document's
    "little over 13 Gbps" compares with.
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
