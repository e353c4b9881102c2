"""Computes the figures of a run, which contenders are compared by, from its observations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from topologies.compare import phases
from topologies.compare.run import Observed
from topologies.compare.samples import Utilization, mean_utilization, move_times_s, utilizations
from topologies.graph.layout import Layout, Role

Figures = dict[str, float]


def capacities_bps(layout: Layout) -> dict[str, int]:
    """Each uplink's capacity."""
    return {uplink: layout.capacity_bps(uplink) for uplink in layout.nodes(Role.UPLINK)}


def intervals(layout: Layout, observed: Observed) -> list[Utilization]:
    """The uplinks' utilization between successive samples."""
    return utilizations(observed.samples, capacities_bps(layout))


def spread_cv(layout: Layout, observed: Observed) -> float:
    """The coefficient of variation of the utilizations of the sending servers' uplinks.

    It covers the load's steady span. 0 is even; two uplinks of which one is idle have 1.
    """
    used = mean_utilization(intervals(layout, observed), *observed.steady_s)
    ratios = [used[uplink] for uplink in layout.sending_uplinks() if uplink in used]
    mean = statistics.fmean(ratios) if ratios else 0.0
    return statistics.pstdev(ratios) / mean if mean else 0.0


def uplink_difference(utilization: Mapping[str, float]) -> float:
    """The difference between the highest and the lowest utilization, as a share of the highest."""
    if not utilization or not max(utilization.values()):
        return 1.0
    return 1 - min(utilization.values()) / max(utilization.values())


def loss_ratio(observed: Observed) -> float:
    """The share of the VMs' and clients' packets that the network did not deliver.

    Flooded packets are delivered more than once. They are too few to matter, but they must not
    make the ratio negative.
    """
    lost = observed.entered_packets - observed.delivered_packets
    return max(0, lost) / max(1, observed.entered_packets)


def figures(layout: Layout, observed: Observed) -> Figures:
    """The figures of a run, except for those that need another contender.

    `throughput_bps` is the rate at which the users received in the measured part of the load.
    """
    outcome = observed.outcome
    cpu_s = sum(observed.cpu_s.values())
    found: Figures = {
        "throughput_bps": outcome.throughput_bps,
        "share_of_limit": outcome.throughput_bps / layout.limit_bps,
        "spread_cv": spread_cv(layout, observed),
        "moves": len(move_times_s(observed.samples)),
        "loss_ratio": loss_ratio(observed),
        "cpu_s": cpu_s,
        **{f"cpu_s_{program}": used_s for program, used_s in observed.cpu_s.items()},
        **outcome.figures,
    }
    if outcome.received_bytes:
        found["cpu_s_per_gbit"] = cpu_s / (outcome.received_bytes * 8 / 1e9)
    return found


def with_cpu_ratio(runs: Mapping[str, Figures], baseline: str) -> dict[str, Figures]:
    """Add each contender's CPU time per bit relative to the baseline's, if both have one."""
    base = runs.get(baseline, {}).get("cpu_s_per_gbit")
    if not base:
        return dict(runs)
    return {
        name: {**found, "cpu_ratio": found["cpu_s_per_gbit"] / base}
        if "cpu_s_per_gbit" in found
        else found
        for name, found in runs.items()
    }


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over the repetitions that measured it."""
    names = dict.fromkeys(name for one in runs for name in one)
    return {name: statistics.median([one[name] for one in runs if name in one]) for name in names}


def phases_of(layout: Layout, observed: Observed, ramp_s: float) -> list[phases.Phase]:
    """The phases of a run."""
    return phases.cut(
        move_times_s(observed.samples), ramp_s, observed.load_s, intervals(layout, observed)
    )
