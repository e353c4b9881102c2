"""The bench of `overlay`: VMs of two hosts communicate through tunnels, whose endpoints a team balances."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence

from topologies import layouts
from topologies.compare.contenders import MANUAL
from topologies.compare.expectation import Expectation, against_peers, at_least, at_most
from topologies.compare.figures import Figures, Result, intervals
from topologies.compare.plan import Options, Plan
from topologies.compare.samples import mean_utilization
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.pace import Pace
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import flow

BOTH_WAYS, ONE_WAY = "both ways, two endpoints", "one way, one endpoint"
ONE_ENDPOINT = "both ways, one endpoint"
HEADROOM = "headroom, both ways"
# The same, through VXLAN.
VXLAN, VXLAN_ONE_WAY, VXLAN_ONE_ENDPOINT = (
    f"{name}, VXLAN" for name in (BOTH_WAYS, ONE_WAY, ONE_ENDPOINT)
)
# The scenario whose bond others are compared with, if it is not their own.
COMPARED_WITH = {BOTH_WAYS: ONE_ENDPOINT, VXLAN: VXLAN_ONE_ENDPOINT}
ONE_WAYS, ONE_ENDPOINTS = (ONE_WAY, VXLAN_ONE_WAY), (ONE_ENDPOINT, VXLAN_ONE_ENDPOINT)
# Teams without configuration on upstream switches, and teams that need a LAG.
SWITCH_INDEPENDENT = (MANUAL, "load-based", "adaptive", "active-backup", "balance-slb")
# The policies that spread the traffic of one endpoint.
SPREADING = ("adaptive", "dynamic")
LAG = ("adaptive/lacp", "dynamic/lacp", "balance-tcp")
# Each VM's load, as a share of the team's capacity: every other pair of VMs is large. Their total load
# exceeds the team's capacity.
LARGE_RATIO, SMALL_RATIO = 0.22, 0.05
# The number of windows until a policy has made all of its single moves.
SETTLING_WINDOWS = 5
UNSHAPED_MBPS, FAST_MBPS = 10_000, 500
BASELINE = "balance-slb"
LEAST_RATIO = 1.8
MOST_CV = 0.1
LEAST_HEADROOM_RATIO = 1.5


class BothWays(StreamLoad):
    """Flows of both directions. The throughput is that of one direction: the mean of both."""

    def finish(self) -> Outcome:
        outcome = super().finish()
        rates_bps = [sum(flow) for flow in outcome.details["stream_rates_bps"]]
        half = len(rates_bps) // 2
        return dataclasses.replace(
            outcome,
            throughput_bps=outcome.throughput_bps / 2,
            figures={
                **outcome.figures,
                "sent_bps": sum(rates_bps[:half]),
                "received_bps": sum(rates_bps[half:]),
            },
        )


def scenarios(options: Options) -> list[Scenario]:
    """Both directions with two endpoints, one direction with one, and the same without speed limits."""
    both = functools.partial(_load, pace=options.pace, both_ways=True)
    return [
        Scenario(
            name=BOTH_WAYS,
            what="Eight VMs of each host send to and receive from the other host's at once, through "
            "Geneve from two endpoints a host. Together they offer more than the team carries.",
            layout=layouts.overlay(),
            load=both,
            contenders=(*SWITCH_INDEPENDENT, "dynamic", *LAG),
        ),
        Scenario(
            name=ONE_WAY,
            what="Eight VMs send, through Geneve from the one endpoint of their host. The uplinks of the "
            "host that receives are ten times as fast, as a host mostly sends to several others.",
            layout=layouts.overlay(endpoints=1, far_mbps=FAST_MBPS),
            load=functools.partial(_load, pace=options.pace, both_ways=False),
            contenders=(*SWITCH_INDEPENDENT, "dynamic", *LAG),
        ),
        Scenario(
            name=ONE_ENDPOINT,
            what="The same in both directions. This is what most hosts have, without a LAG: one address, "
            "which a bond keeps on one uplink.",
            layout=layouts.overlay(endpoints=1),
            load=both,
            contenders=(*SPREADING, "active-backup", BASELINE),
        ),
        Scenario(
            name=VXLAN,
            what="The same as the first, through VXLAN.",
            layout=layouts.overlay(encapsulation="vxlan"),
            load=both,
            contenders=(*SWITCH_INDEPENDENT, "dynamic", *LAG),
        ),
        Scenario(
            name=VXLAN_ONE_WAY,
            what="The same as the second, through VXLAN.",
            layout=layouts.overlay(endpoints=1, far_mbps=FAST_MBPS, encapsulation="vxlan"),
            load=functools.partial(_load, pace=options.pace, both_ways=False),
            contenders=(*SWITCH_INDEPENDENT, "dynamic", *LAG),
        ),
        Scenario(
            name=VXLAN_ONE_ENDPOINT,
            what="The same as the third, through VXLAN.",
            layout=layouts.overlay(endpoints=1, encapsulation="vxlan"),
            load=both,
            contenders=(*SPREADING, "active-backup", BASELINE),
        ),
        Scenario(
            name=HEADROOM,
            what="The first without the uplinks' limits, and with as much load as TCP can send: what "
            "the machine could carry.",
            layout=layouts.overlay(uplink_mbps=UNSHAPED_MBPS),
            load=functools.partial(_load, pace=options.pace, both_ways=True, limited=False),
            contenders=("adaptive", "active-backup"),
        ),
    ]


def _load(stage: Stage, pace: Pace, *, both_ways: bool, limited: bool = True) -> Load:
    """TCP streams between the VMs of the same number; the senders' come first."""
    layout = stage.layout
    settle_s = float(SETTLING_WINDOWS * pace.window_s) if limited else pace.bulk_s[0]
    measured_s = pace.streams_s[1]
    pairs = list(zip(layout.senders, layout.receivers, strict=True))
    back = [(receiver, sender) for sender, receiver in pairs] if both_ways else []
    duration_s = settle_s + measured_s + 1
    flows = [
        flow(
            *(layout, *ends, duration_s),
            rate_bps=_rate_bps(layout, number % len(pairs)) if limited else None,
        )
        for number, ends in enumerate([*pairs, *back])
    ]
    kind = BothWays if both_ways else StreamLoad
    # A team that interrupts tunnels must be a result, not a failure of the bench.
    return kind(stage, flows, (settle_s, settle_s + measured_s), may_fail=True)


def _rate_bps(layout: Layout, number: int) -> int:
    """A VM's load. Two successive VMs have different endpoints and the same size."""
    return int((SMALL_RATIO if number // 2 % 2 else LARGE_RATIO) * layout.limit_bps)


def return_cv(result: Result, name: str) -> float:
    """The coefficient of variation of the traffic that the first host's uplinks receive; the median of runs."""
    layout = result.scenario.layout
    found = []
    for one in result.observed[name]:
        used = mean_utilization(intervals(layout, one), *one.steady_s)
        ratios = [used[uplink] for uplink in layout.uplinks_of("server2")]
        mean = statistics.fmean(ratios)
        found.append(statistics.pstdev(ratios) / mean if mean else 0.0)
    return statistics.median(found)


def derived(results: Sequence[Result]) -> dict[str, dict[str, Figures]]:
    """How even the second host's uplinks are, and the share of the load that the machine can carry."""
    found: dict[str, dict[str, Figures]] = {}
    for result in results:
        name, medians = result.scenario.name, result.medians()
        if name == HEADROOM:
            needed_bps = layouts.overlay().limit_bps
            found[name] = {
                one: {"headroom_ratio": figures["throughput_bps"] / needed_bps}
                for one, figures in medians.items()
            }
        elif name in (BOTH_WAYS, VXLAN):
            found[name] = {one: {"return_cv": return_cv(result, one)} for one in medians}
    return found


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """Several endpoints use both uplinks in both directions, and a split one uses both to send."""
    medians = {one.scenario.name: one.medians() for one in results}
    found: list[Expectation] = []
    for scenario, contenders in medians.items():
        if scenario == HEADROOM:
            found += [
                at_least(f"{scenario}, {one}: times the rate needed", ratio, LEAST_HEADROOM_RATIO)
                for one, ratio in ((one, of["headroom_ratio"]) for one, of in contenders.items())
            ]
            continue
        if scenario in ONE_ENDPOINTS:  # the bond to compare with; peers decide where one receives
            continue
        # With one endpoint, as most hosts have it.
        bond = medians.get(COMPARED_WITH.get(scenario, scenario), {}).get(BASELINE)
        for name in ("adaptive", "dynamic" if scenario in ONE_WAYS else "load-based"):
            if name in contenders and bond:
                ratio = contenders[name]["throughput_bps"] / max(1.0, bond["throughput_bps"])
                condition = f"{scenario}: {name} over {BASELINE} with one endpoint"
                found.append(at_least(condition, ratio, LEAST_RATIO))
        found += _even(scenario, contenders)
        found += against_peers(scenario, contenders)
    return found


def _even(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Expect `adaptive` to use both uplinks alike."""
    return [
        at_most(
            f"{scenario}: {name} uses both uplinks alike, {figure} at most {MOST_CV}",
            *(one[figure], MOST_CV),
        )
        for name, one in contenders.items()
        if name.startswith("adaptive")
        for figure in ("spread_cv", "return_cv")
        if figure in one
    ]


PLAN = Plan(scenarios, expectations, derived, campaign_runs=5)
