"""From what was observed of a contender to its figures: the numbers that are compared."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from topologies import phases, workload
from topologies.graph import Layout, Role
from topologies.run import Observed
from topologies.samples import Utilization, mean_utilization, move_times_s, utilizations

Figures = dict[str, float]


def capacities_bps(layout: Layout) -> dict[str, int]:
    """Each uplink's speed."""
    return {uplink: layout.capacity_bps(uplink) for uplink in layout.nodes(Role.UPLINK)}


def intervals(layout: Layout, observed: Observed) -> list[Utilization]:
    """The uplinks' utilization from sample to sample."""
    return utilizations(observed.samples, capacities_bps(layout))


def steady_spread_cv(layout: Layout, observed: Observed, ramp_s: float) -> float:
    """How unevenly the uplinks are used after the ramp: standard deviation over mean.

    0 is even; with two uplinks and one of them idle it is 1.
    """
    ratios = mean_utilization(intervals(layout, observed), ramp_s, observed.load_s).values()
    mean = statistics.fmean(ratios)
    return statistics.pstdev(ratios) / mean if mean else 0.0


def loss_ratio(observed: Observed) -> float:
    """The share of the VMs' and clients' packets that the network did not deliver.

    A flooded packet is delivered more than once; there are too few of them to matter,
    but none may make the ratio negative.
    """
    lost = observed.entered_packets - observed.delivered_packets
    return max(0, lost) / max(1, observed.entered_packets)


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


def figures(layout: Layout, observed: Observed, ramp_s: float) -> Figures:
    """One run's figures, except for those that need another contender.

    `throughput_bps` is what the users received over the whole load, ramp included: what
    a move costs would show in it. `steady_throughput_bps` is that after the ramp, which
    the document's "little over 13 Gbps" compares with.
    """
    received_bytes = sum(one["received_bytes"] for one in observed.downloads)
    cpu_s = sum(observed.cpu_s.values())
    throughput_bps = received_bytes * 8 / observed.load_s
    steady_bps = (
        _steady_bytes(observed.downloads, ramp_s, observed.load_s) * 8 / (observed.load_s - ramp_s)
    )
    found: Figures = {
        "throughput_bps": throughput_bps,
        "share_of_limit": throughput_bps / layout.limit_bps,
        "steady_throughput_bps": steady_bps,
        "steady_share_of_limit": steady_bps / layout.limit_bps,
        "spread_cv": steady_spread_cv(layout, observed, ramp_s),
        "moves": len(move_times_s(observed.samples)),
        "loss_ratio": loss_ratio(observed),
        "downloads": sum(bool(one["complete"]) for one in observed.downloads),
        "cpu_s": cpu_s,
        "cpu_s_per_gbit": cpu_s / max(1.0, received_bytes * 8 / 1e9),
        **{f"cpu_s_{program}": used_s for program, used_s in observed.cpu_s.items()},
    }
    if (quality := qos_ratio(observed.downloads)) is not None:
        found["qos_ratio"] = quality
    return found


def with_cpu_ratio(runs: Mapping[str, Figures], baseline: str) -> dict[str, Figures]:
    """Every contender's CPU time per bit as a ratio of the baseline's, where it ran."""
    if baseline not in runs or not runs[baseline]["cpu_s_per_gbit"]:
        return dict(runs)
    base = runs[baseline]["cpu_s_per_gbit"]
    return {
        name: {**found, "cpu_ratio": found["cpu_s_per_gbit"] / base} for name, found in runs.items()
    }


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of every figure over repetitions."""
    names = dict.fromkeys(name for one in runs for name in one)
    return {name: statistics.median([one[name] for one in runs if name in one]) for name in names}


def phases_of(layout: Layout, observed: Observed, ramp_s: float) -> list[phases.Phase]:
    """The phases of a run."""
    return phases.cut(
        move_times_s(observed.samples), ramp_s, observed.load_s, intervals(layout, observed)
    )


def _steady_bytes(downloads: Sequence[Mapping[str, Any]], start_s: float, end_s: float) -> float:
    """What was received in a span; a download's bytes count as spread over its time."""
    total = 0.0
    for one in downloads:
        lasted_s = one["end_s"] - one["start_s"]
        within_s = min(one["end_s"], end_s) - max(one["start_s"], start_s)
        if within_s > 0 and lasted_s > 0:
            total += one["received_bytes"] * within_s / lasted_s
    return total
