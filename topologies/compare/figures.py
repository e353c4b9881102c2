"""The figures of runs, which contenders are compared by, and the results that have them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topologies.compare.run import Observed
from topologies.compare.samples import Utilization, mean_utilization, move_times_s, utilizations
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout, Role


@dataclass(frozen=True, slots=True)
class Phase:
    """A span of the load (seconds since its start) and the uplinks' mean utilization in it."""

    name: str
    start_s: float
    end_s: float
    uplink_utilization: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "start_s": round(self.start_s, 3),
            "end_s": round(self.end_s, 3),
            "uplink_utilization": {u: round(r, 4) for u, r in self.uplink_utilization.items()},
        }


def cut(
    moves_s: Sequence[float], ramp_end_s: float, load_end_s: float, intervals: list[Utilization]
) -> list[Phase]:
    """Divide a run into phases, which begin at 0, at move 1, at move 2, and after the ramp.

    A phase is absent if its move did not happen. If a move was late, the phases are out of order.
    """
    begins = {"phase 1": 0.0}
    for number, at_s in enumerate(moves_s[:2], start=2):
        begins[f"phase {number}"] = at_s
    begins["phase 4"] = ramp_end_s
    ends = [*list(begins.values())[1:], load_end_s]
    return [
        Phase(name, start_s, end_s, mean_utilization(intervals, start_s, end_s))
        for (name, start_s), end_s in zip(begins.items(), ends, strict=True)
    ]


def in_order(phases: Sequence[Phase]) -> bool:
    """Whether all four phases happened in order."""
    names = [phase.name for phase in phases]
    return names == ["phase 1", "phase 2", "phase 3", "phase 4"] and all(
        phase.start_s < phase.end_s for phase in phases
    )


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


def phases_of(layout: Layout, observed: Observed, ramp_s: float) -> list[Phase]:
    """The phases of a run."""
    return cut(move_times_s(observed.samples), ramp_s, observed.load_s, intervals(layout, observed))


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
