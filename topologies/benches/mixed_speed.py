"""The bench of `mixed_speed`: equal loads of many VMs on a fast and a slow uplink."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from topologies import mixed_speed
from topologies.compare.expectation import Expectation, against_peers
from topologies.compare.figures import intervals, uplink_difference
from topologies.compare.plan import Options, Plan
from topologies.compare.result import Result
from topologies.compare.samples import mean_utilization
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout
from topologies.loads.load import Load, Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import equal_flows

CONTENDERS = (
    "manual",
    "originating-port",
    "load-based",
    "adaptive",
    "dynamic",
    "active-backup",
    "balance-slb",
    "balance-tcp",
)
# The total load as a share of all uplinks. Each VM offers an equal part.
OFFERED_RATIO = 0.7
MOST_DIFFERENCE = 0.10


def scenarios(options: Options) -> list[Scenario]:
    """One scenario, in which every VM sends at the same steady rate."""
    layout = mixed_speed.layout()
    return [
        Scenario(
            name="equal loads",
            what=f"Every VM offers the same load, in total {OFFERED_RATIO:.0%} of both uplinks.",
            layout=layout,
            load=lambda stage: _load(stage, options),
            contenders=CONTENDERS,
        )
    ]


def _load(stage: Stage, options: Options) -> Load:
    settle_s, measured_s = options.pace.settling_s
    flows = equal_flows(stage.layout, OFFERED_RATIO, settle_s + measured_s + 1)
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
    (result,) = results
    layout = result.scenario.layout
    return {
        result.scenario.name: {
            name: {"uplink_difference": difference(layout, result, name)}
            for name in result.observed
        }
    }


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """Our policies use both uplinks evenly; a bond that ignores speeds does not."""
    (result,) = results
    contenders = result.medians()
    found = []
    for name in ("load-based", "adaptive", "dynamic"):
        if name in contenders:
            apart = contenders[name]["uplink_difference"]
            condition = f"{name}: utilizations within {MOST_DIFFERENCE:.0%} of each other"
            found.append(Expectation(condition, f"{apart:.1%}", apart <= MOST_DIFFERENCE))
    if "balance-slb" in contenders:
        apart = contenders["balance-slb"]["uplink_difference"]
        condition = f"balance-slb: utilizations not within {MOST_DIFFERENCE:.0%} of each other"
        found.append(Expectation(condition, f"{apart:.1%}", apart > MOST_DIFFERENCE))
    return [*found, *against_peers(result.scenario.name, contenders)]


PLAN = Plan(scenarios, expectations, derived)
