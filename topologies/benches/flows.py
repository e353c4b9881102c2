"""The bench of `flows`: the duration of requests of published sizes, at two loads and in a failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from topologies import layouts
from topologies.compare.contenders import MANUAL, ORACLE
from topologies.compare.expectation import Expectation, against_peers, at_most, better
from topologies.compare.figures import Figures, Result, capacities_bps
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Role
from topologies.loads import flow_figures, flow_load
from topologies.loads.flow_arrivals import DATA_MINING, WEB_SEARCH, SizeDistribution, popularity
from topologies.loads.flow_figures import LARGE_BYTES, SMALL_BYTES
from topologies.loads.flow_load import SEED, FlowLoad
from topologies.loads.load import Load, Stage
from topologies.loads.pace import FAITHFUL

CONTENDERS = (
    MANUAL,
    "load-based",
    "adaptive",
    "dynamic",
    "dynamic/lacp",
    "active-backup",
    "balance-slb",
    "balance-tcp",
    ORACLE,
)
# Sizes are a tenth of those that were measured. Faster uplinks than those of the layout would make
# Open vSwitch's userspace datapath the bottleneck, which forwards on one core.
SCALE = 0.1
# The load on the wire as a share of both uplinks. Flows of data mining are so few that they need the long
# runs of the faithful pace at both loads.
LOADS = ((WEB_SEARCH, 0.7), (WEB_SEARCH, 0.9), (DATA_MINING, 0.7))
FAITHFUL_LOADS = (*LOADS, (DATA_MINING, 0.9))
# A third uplink fails, and the others must carry this share of their capacity.
FAILURE_RATIO = 0.7
FAILURE = "web search, an uplink fails"
OURS = "adaptive"
WITHOUT_LAG = (MANUAL, "active-backup", "balance-slb")
POOLED = (
    "Chance is different in each run, and the same for every contender. If a run has too few flows of a"
    " class for a percentile, it is that of the flows of all runs."
)
# The start of a flow that is later than this is no longer random.
MOST_LATE_MS = 20.0


def scenarios(options: Options) -> list[Scenario]:
    """Both distributions, and a failure. Only the faithful pace has data mining at the high load."""
    loads = FAITHFUL_LOADS if options.pace.name == FAITHFUL.name else LOADS
    return [*(_steady(options, *one) for one in loads), _failure(options)]


def _steady(options: Options, distribution: SizeDistribution, ratio: float) -> Scenario:
    layout = layouts.flows()

    def load(stage: Stage) -> Load:
        return _load(stage, options, distribution, ratio * layout.limit_bps)

    return Scenario(
        name=f"{distribution.name}, {ratio:.0%}",
        what=f"Requests for sizes as published for {distribution.name} ({distribution.source}),"
        f" divided by ten. They start at random, whether or not others have ended, and load the"
        f" uplinks by {ratio:.0%} of what both carry. The most popular VM gets"
        f" {max(popularity(len(layout.nodes(Role.VM)), SEED)):.0%} of them. Small: below"
        f" {SMALL_BYTES // 1000} kB; large: above {LARGE_BYTES // 10**6} MB. Slowdown: the time over"
        " that on an idle uplink. The oracle knows the sizes of all flows, and places each one as it"
        " starts. One link: computed for one link of the uplinks' capacity that flows share equally."
        f" {POOLED}",
        layout=layout,
        load=load,
        contenders=CONTENDERS,
    )


def _failure(options: Options) -> Scenario:
    layout = layouts.flows(uplinks=3)
    left_bps = layout.limit_bps * 2 / 3

    def load(stage: Stage) -> Load:
        failing = layout.nodes(Role.UPLINK)[-1]
        return _load(stage, options, WEB_SEARCH, FAILURE_RATIO * left_bps, failing)

    return Scenario(
        name=FAILURE,
        what=f"The same requests as with {WEB_SEARCH.name} at {FAILURE_RATIO:.0%}, on three uplinks, of"
        f" which one loses its carrier in the middle. The others then carry {FAILURE_RATIO:.0%}. Caught:"
        " the flows that were under way, or started within the second after the failure. The oracle"
        f" knows when the uplink will fail. {POOLED}",
        layout=layout,
        load=load,
        contenders=CONTENDERS,
    )


def _load(
    stage: Stage,
    options: Options,
    distribution: SizeDistribution,
    load_bps: float,
    failing: str | None = None,
) -> Load:
    warm_up_s, watched_s, drain_s = options.pace.flows_s
    return FlowLoad(
        stage,
        distribution.scaled(SCALE),
        load_bps,
        warm_up_s=warm_up_s,
        watched_s=watched_s,
        drain_s=drain_s,
        failing=failing,
    )


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """Flows start in time, and without a LAG no peer's slowest hundredth is faster than ours."""
    found: list[Expectation] = []
    for result in results:
        name, contenders = result.scenario.name, result.medians()
        late_ms = [one["late_p99_ms"] for one in contenders.values() if "late_p99_ms" in one]
        if late_ms:
            condition = f"{name}: 99 % of the flows start within {MOST_LATE_MS:.0f} ms"
            found.append(at_most(condition, max(late_ms), MOST_LATE_MS, "{:.1f} ms"))
        p99 = {one: of["slowdown_p99"] for one, of in contenders.items() if "slowdown_p99" in of}
        found += [
            better(
                f"{name}, {OURS}: p99 of the slowdown not above that of {peer}",
                *(p99[OURS], p99[peer], "{:.1f}"),
                or_equal=True,
            )
            for peer in WITHOUT_LAG
            if {OURS, peer} <= p99.keys()
        ]
        found += against_peers(name, contenders)
    return found


def draw(results: Sequence[Result], directory: Path) -> list[Path]:
    """Draw the slowdowns of each scenario."""
    from topologies.reports import pictures  # needs matplotlib, which is optional

    return [path for result in results for path in pictures.slowdowns(result, directory)]


def derived(results: Sequence[Result]) -> dict[str, dict[str, Figures]]:
    """The percentiles for which single runs have too few flows, of the flows of all runs."""
    return {
        result.scenario.name: {name: _pooled(result, name) for name in result.figures}
        for result in results
    }


def _pooled(result: Result, contender: str) -> Figures:
    runs = [one.outcome.details for one in result.observed[contender] if one.outcome.details]
    flows = [flow for details in runs for flow in flow_load.measured_flows(details)]
    if not flows:
        return {}
    link_bps = max(capacities_bps(result.scenario.layout).values())
    return {
        figure: value
        for figure, value in flow_figures.figures(flows, link_bps).items()
        if not all(figure in found for found in result.figures[contender])
    }


PLAN = Plan(scenarios, expectations, derived, draw, real_time=True)
