"""The bench of `mixed_speed`: equal and skewed loads of many VMs on a fast and a slow uplink."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence

from topologies import layouts
from topologies.compare.contenders import USUAL
from topologies.compare.expectation import Expectation, against_peers, at_most
from topologies.compare.figures import Figures, Result, intervals, uplink_difference
from topologies.compare.plan import Options, Plan
from topologies.compare.samples import mean_utilization
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Load, Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import weighted_flows

CONTENDERS = (*USUAL, "balance-tcp")
# The total load as a share of all uplinks.
OFFERED_RATIO = 0.7
MOST_DIFFERENCE = 0.10
EQUAL, SKEWED = "equal loads", "skewed loads"
# The loads of real VMs are skewed. These loads are random, so that their sums were not chosen.
SEED, SIGMA = 1, 0.8


def scenarios(options: Options) -> list[Scenario]:
    """Two scenarios, in which every VM sends at a steady rate: the same, and one of its own."""
    layout = layouts.mixed_speed()
    vms = len(layout.nodes(Role.VM))
    return [
        Scenario(
            name=EQUAL,
            what=f"Every VM offers the same load, in total {OFFERED_RATIO:.0%} of both uplinks.",
            layout=layout,
            load=lambda stage: _load(stage, options, [1.0] * vms),
            contenders=CONTENDERS,
        ),
        Scenario(
            name=SKEWED,
            what=f"Every VM offers a load drawn from a log-normal distribution (sigma {SIGMA}), in total"
            f" {OFFERED_RATIO:.0%} of both uplinks.",
            layout=layout,
            load=lambda stage: _load(stage, options, drawn_weights(vms)),
            contenders=CONTENDERS,
        ),
    ]


def drawn_weights(vms: int) -> list[float]:
    """The loads of the VMs in the second scenario, without a unit."""
    draws = random.Random(SEED)
    return [draws.lognormvariate(0.0, SIGMA) for _ in range(vms)]


def _load(stage: Stage, options: Options, weights: Sequence[float]) -> Load:
    settle_s, measured_s = options.pace.settling_s
    flows = weighted_flows(stage.layout, OFFERED_RATIO, settle_s + measured_s + 1, weights)
    return StreamLoad(stage, flows, (settle_s, settle_s + measured_s))


def difference(layout: Layout, result: Result, name: str) -> float:
    """The median over runs of the difference between the uplinks' utilizations."""
    found = []
    for one in result.observed[name]:
        used = mean_utilization(intervals(layout, one), *one.steady_s)
        found.append(uplink_difference(used))
    return statistics.median(found)


def derived(results: Sequence[Result]) -> dict[str, dict[str, dict[str, float]]]:
    """The difference between the uplinks' utilizations."""
    return {
        result.scenario.name: {
            name: {"uplink_difference": difference(result.scenario.layout, result, name)}
            for name in result.observed
        }
        for result in results
    }


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """Our policies lose nothing, and use both uplinks evenly; a bond that ignores speeds does not."""
    found: list[Expectation] = []
    for result in results:
        if result.scenario.name == EQUAL:
            found += _even(result.medians())
        found += against_peers(result.scenario.name, result.medians())
    return found


def _even(contenders: Mapping[str, Figures]) -> list[Expectation]:
    """What equal loads allow: ten VMs on the fast uplink, and one on the slow uplink."""
    apart = {name: one["uplink_difference"] for name, one in contenders.items()}
    each = f"within {MOST_DIFFERENCE:.0%} of each other"
    found = [
        at_most(f"{name}: utilizations {each}", apart[name], MOST_DIFFERENCE, "{:.1%}")
        for name in ("load-based", "adaptive", "dynamic")
        if name in apart
    ]
    if (bond := apart.get("balance-slb")) is not None:
        condition = f"balance-slb: utilizations not {each}"
        found.append(Expectation(condition, f"{bond:.1%}", bond > MOST_DIFFERENCE))
    return found


PLAN = Plan(scenarios, expectations, derived, campaign_runs=5)
