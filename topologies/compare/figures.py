"""The figures of runs, which contenders are compared by, and the results that have them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from topologies.compare.run import Observed, Sample, Scenario
from topologies.graph.layout import Layout


@dataclass(frozen=True, slots=True)
class Utilization:
    """Each uplink's mean utilization between two samples, in its busier direction."""

    start_s: float
    end_s: float
    ratio: Mapping[str, float]


def utilizations(samples: list[Sample], capacities_bps: Mapping[str, int]) -> list[Utilization]:
    """The uplinks' utilization between successive samples."""
    return [
        Utilization(
            before.at_s,
            after.at_s,
            {
                uplink: max(
                    after.sent_bytes[uplink] - before.sent_bytes[uplink],
                    after.received_bytes[uplink] - before.received_bytes[uplink],
                )
                * 8
                / (after.at_s - before.at_s)
                / capacity_bps
                for uplink, capacity_bps in capacities_bps.items()
            },
        )
        for before, after in pairwise(samples)
        if after.at_s > before.at_s
    ]


def mean_utilization(
    intervals: list[Utilization], start_s: float, end_s: float
) -> dict[str, float]:
    """Each uplink's mean over a span, with intervals weighted by their overlap with it.

    Empty if no interval overlaps the span.
    """
    weights = [max(0.0, min(i.end_s, end_s) - max(i.start_s, start_s)) for i in intervals]
    total = sum(weights)
    if not total:
        return {}
    return {
        uplink: sum(w * i.ratio[uplink] for w, i in zip(weights, intervals, strict=True)) / total
        for uplink in intervals[0].ratio
    }


def move_times_s(samples: list[Sample]) -> list[float]:
    """The time of the sample in which each move first appears."""
    times: list[float] = []
    for before, after in pairwise(samples):
        times += [after.at_s] * max(0, after.moves - before.moves)
    return times


@dataclass(frozen=True, slots=True)
class Phase:
    """A span of the load (seconds since its start) and the uplinks' mean utilization in it."""

    name: str
    start_s: float
    end_s: float
    uplink_utilization: Mapping[str, float]


def phases_of(layout: Layout, observed: Observed, ramp_s: float) -> list[Phase]:
    """Divide a run into phases, which begin at 0, at move 1, at move 2, and after the ramp.

    A phase is absent if its move did not happen. If a move was late, the phases are out of order.
    """
    begins = {"phase 1": 0.0}
    for number, at_s in enumerate(move_times_s(observed.samples)[:2], start=2):
        begins[f"phase {number}"] = at_s
    begins["phase 4"] = ramp_s
    ends = [*list(begins.values())[1:], observed.load_s]
    spans = intervals(layout, observed)
    return [
        Phase(name, start_s, end_s, mean_utilization(spans, start_s, end_s))
        for (name, start_s), end_s in zip(begins.items(), ends, strict=True)
    ]


def in_order(phases: Sequence[Phase]) -> bool:
    """Whether all four phases happened in order."""
    names = [phase.name for phase in phases]
    return names == ["phase 1", "phase 2", "phase 3", "phase 4"] and all(
        phase.start_s < phase.end_s for phase in phases
    )


Figures = dict[str, float]
# Computes further figures of a run from its observations and its other figures.
PerRun = Callable[[Layout, Observed, Figures], Figures]


def nothing_more(_layout: Layout, _observed: Observed, _found: Figures) -> Figures:
    """The `PerRun` of most benches."""
    return {}


def intervals(layout: Layout, observed: Observed) -> list[Utilization]:
    """The uplinks' utilization between successive samples."""
    return utilizations(observed.samples, layout.capacities_bps)


def mean_utilization_of(layout: Layout, observed: Observed) -> dict[str, float]:
    """Each uplink's mean utilization in the load's steady span."""
    return mean_utilization(intervals(layout, observed), *observed.steady_s)


def spread_cv(layout: Layout, observed: Observed, uplinks: Sequence[str] = ()) -> float:
    """The coefficient of variation of the utilizations of uplinks, by default of the sending servers.

    It covers the load's steady span. 0 is even; two uplinks of which one is idle have 1.
    """
    used = mean_utilization_of(layout, observed)
    ratios = [used[uplink] for uplink in uplinks or layout.sending_uplinks() if uplink in used]
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
    used = {name: one["cpu_s_per_gbit"] for name, one in runs.items() if "cpu_s_per_gbit" in one}
    base = used.get(baseline)
    ratios = {name: {"cpu_ratio": one / base} for name, one in used.items()} if base else {}
    return {name: {**found, **ratios.get(name, {})} for name, found in runs.items()}


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over the repetitions that measured it."""
    names = dict.fromkeys(name for one in runs for name in one)
    return {name: statistics.median([one[name] for one in runs if name in one]) for name in names}


@dataclass(frozen=True, slots=True)
class Result:
    """A scenario, and each contender's figures and observations by repetition.

    `derived` has figures that need medians or several scenarios. `failures` describes the runs that
    did not complete; no other attribute includes these runs.
    """

    scenario: Scenario
    figures: Mapping[str, Sequence[Figures]]
    observed: Mapping[str, Sequence[Observed]]
    derived: Mapping[str, Figures] = field(default_factory=dict)
    failures: Sequence[str] = ()

    def medians(self) -> dict[str, Figures]:
        """Each contender's median figures over its repetitions."""
        return {
            name: {**medians(found), **self.derived.get(name, {})}
            for name, found in self.figures.items()
        }


def jumbo_ratios(
    results: Sequence[Result], standard_of: Mapping[str, str]
) -> dict[str, dict[str, Figures]]:
    """The throughput and the CPU time with jumbo frames relative to the scenario with standard frames."""
    medians = {one.scenario.name: one.medians() for one in results}
    figures = {"jumbo_ratio": "throughput_bps", "jumbo_cpu_ratio": "cpu_s_per_gbit"}
    return {
        jumbo: {
            name: {
                ratio: one[figure] / medians[standard][name][figure]
                for ratio, figure in figures.items()
            }
            for name, one in medians[jumbo].items()
            if name in medians[standard]
        }
        for jumbo, standard in standard_of.items()
        if {jumbo, standard} <= medians.keys()
    }
