"""The benches of TCP streams between two hosts: `set_vs_lbfo`, `quad_gbe_team`, `converged`, `overlay`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

from topologies import layouts
from topologies.compare.contenders import MANUAL
from topologies.compare.figures import Figures, Result, jumbo_ratios, spread_cv
from topologies.compare.plan import BEST_PEER, Expectation, Options, Plan, Rule
from topologies.compare.run import Observed, Scenario
from topologies.graph.layout import Layout, Role
from topologies.graph.parts import STANDARD_MTU
from topologies.loads.load import Load, Stage
from topologies.loads.pace import Pace
from topologies.loads.streams import (
    INTERVAL_S,
    Report,
    StreamLoad,
    flow,
    stream_rates_bps,
    streams_between,
)


def _ends(layout: Layout) -> tuple[str, str]:
    """The only sender and the only receiver."""
    (sender,), (receiver,) = layout.senders, layout.receivers
    return sender, receiver


def _link_bps(layout: Layout) -> int:
    """The speed of an uplink."""
    return layout.capacity_bps(layout.nodes(Role.UPLINK)[0])


# set_vs_lbfo: NTttcp's eight threads.
NTTTCP_STREAMS = 8
# The contenders that reproduce each of the document's modes.
MODES = {
    "LACP": ("dynamic/lacp", "balance-tcp"),
    "switch independent": ("dynamic",),
    "SET": ("set",),
}
MODE_FIGURES: Mapping[str, Figures] = {
    name: {"share_of_link": mode["total_share"], "stream_cv": mode["stream_cv"]}
    for mode in layouts.set_vs_lbfo().published["modes"]
    for name in MODES[mode["name"]]
}


def _eight_streams(options: Options) -> list[Scenario]:
    layout = layouts.set_vs_lbfo()
    return [
        Scenario(
            name="eight streams",
            what="Eight TCP streams of one VM to a VM of the other host, as NTttcp sends them.",
            layout=layout,
            load=lambda stage: streams_between(
                stage, [_ends(layout)], options.pace.streams_s, NTTTCP_STREAMS
            ),
            contenders=(
                *(MANUAL, "originating-port", "load-based", "adaptive", "dynamic", "set"),
                *("dynamic/lacp", "address-hash", "active-backup", "balance-slb", "balance-tcp"),
            ),
            published=MODE_FIGURES,
        )
    ]


SET_VS_LBFO = Plan(
    _eight_streams,
    per_run=lambda layout, _, found: {"share_of_link": found["throughput_bps"] / _link_bps(layout)},
)

# quad_gbe_team: streams that start one by one.
STREAMS = 10
WHERE = {
    0: "from team to team",
    1: "with a virtual switch at the sender",
    2: "with a virtual switch on both sides",
}


def _one_by_one(options: Options) -> Iterator[Scenario]:
    for count, where in WHERE.items():
        layout = layouts.quad_gbe_team(virtual_switches=count)
        one, ten = (layout.published[f"{name}_share"] for name in ("one_stream", "ten_streams"))
        published: Figures = {
            "one_stream_share": one,
            "ten_streams_ratio": ten,
            "ten_streams_share": one * ten,
        }
        yield Scenario(
            name=where,
            what=f"TCP streams {where}, added one by one up to {STREAMS}.",
            layout=layout,
            load=lambda stage: _growing(stage, options),
            contenders=(
                *(MANUAL, "adaptive/lacp", "dynamic/lacp", "address-hash", "ip-hash"),
                *("active-backup", "balance-tcp"),
            ),
            published=dict.fromkeys(("address-hash", "balance-tcp"), published)
            if count < 2
            else {},
        )


def _growing(stage: Stage, options: Options) -> Load:
    """Streams that start one step apart, and time for the team to settle with all of them."""
    layout = stage.layout
    step_s, settle_s, measured_s = options.pace.steps_s
    end_s = STREAMS * step_s + settle_s + measured_s
    flows = [
        flow(layout, *_ends(layout), end_s - begin_s, begin_s=begin_s)
        for begin_s in (number * step_s for number in range(STREAMS))
    ]

    def derive(reports: Sequence[Report], ten_bps: float) -> Figures:
        link_bps = _link_bps(layout)
        links = len(layout.sending_uplinks())
        # In the first half of a step, the new stream reaches its rate.
        first_bps = stream_rates_bps(reports[0], 1, step_s / 2, step_s)[0]
        return {
            "one_stream_share": first_bps / link_bps,
            "ten_streams_share": ten_bps / (links * link_bps),
            "ten_streams_ratio": ten_bps / (links * first_bps),
        }

    # The last interval of a report is left out, because it may be shorter.
    return StreamLoad(stage, flows, (end_s - measured_s, end_s - INTERVAL_S), derive=derive)


QUAD_GBE_TEAM = Plan(lambda options: [*_one_by_one(options)], campaign_runs=5)

# converged: standard and jumbo frames, and two faults that documents describe. All links stay up
# during the faults, so only contenders with path checks detect them.
CONVERGED_CONTENDERS = (
    *(MANUAL, "load-based", "adaptive", "dynamic"),
    *("active-backup", "balance-slb", "balance-tcp"),
)
WITH_PATH_CHECKS = ("load-based+path-check", "adaptive+path-check", "dynamic+path-check")
# Drivers call it 9014, the size of the frame with its header.
JUMBO_MTU = 9000
# The number of IOmeter's workers. A team that spreads them sends some to the faulty member.
WORKERS = 4
STANDARD, JUMBO = "one way, standard frames", "one way, jumbo frames"
STANDARD_BOTH, JUMBO_BOTH = "both ways, standard frames", "both ways, jumbo frames"
FAULTS = ("fault: a member's MTU", "fault: a member's VLAN")
# Each scenario: what it is, and its layout's parameters.
CONVERGED: Mapping[str, tuple[str, Mapping[str, int]]] = {
    STANDARD: ("A VM sends to a VM on the other host, with an MTU of 1500.", {}),
    JUMBO: ("A VM sends to a VM on the other host, with an MTU of 9000.", {"mtu": JUMBO_MTU}),
    STANDARD_BOTH: ("Both VMs send, with an MTU of 1500.", {}),
    JUMBO_BOTH: ("Both VMs send, with an MTU of 9000.", {"mtu": JUMBO_MTU}),
    FAULTS[0]: (
        "Jumbo frames, but one switch port of the receiving team has an MTU of 1500.",
        {"mtu": JUMBO_MTU, "odd_mtu": STANDARD_MTU},
    ),
    FAULTS[1]: ("One switch port of the receiving team is in another VLAN.", {"odd_vlan": 99}),
}


def _converged(options: Options) -> Iterator[Scenario]:
    for name, (what, parameters) in CONVERGED.items():
        layout, fault = layouts.converged(**parameters), name in FAULTS
        sender, receiver = _ends(layout)
        ways = [(sender, receiver), (receiver, sender)]
        figures = {"jumbo_ratio": layout.published["jumbo_ratio"]}
        yield Scenario(
            name=name,
            what=what,
            layout=layout,
            load=functools.partial(
                streams_between,
                ends=ways if name in (STANDARD_BOTH, JUMBO_BOTH) else ways[:1],
                times_s=options.pace.bulk_s,
                count=WORKERS,
                may_fail=fault,
            ),
            contenders=(*CONVERGED_CONTENDERS, *(WITH_PATH_CHECKS if fault else ())),
            published=dict.fromkeys(CONVERGED_CONTENDERS, figures) if name == JUMBO else {},
            reachable=not fault,
        )


CONVERGED_PLAN = Plan(
    lambda options: [*_converged(options)],
    [
        Rule(
            *("found within 5 s", "fault_found_s", WITH_PATH_CHECKS, FAULTS),
            most=5.0,
            shown="{:.1f} s",
            missing=math.inf,
        ),
        Rule(
            *("at least 0.900 x the best peer", "throughput_bps", WITH_PATH_CHECKS, FAULTS),
            least=0.9,
            over=BEST_PEER,
        ),
    ],
    derived=functools.partial(
        jumbo_ratios, standard_of={JUMBO: STANDARD, JUMBO_BOTH: STANDARD_BOTH}
    ),
)

# overlay: VMs of two hosts communicate through tunnels, whose endpoints a team balances.
BOTH_WAYS, ONE_WAY = "both ways, two endpoints", "one way, one endpoint"
ONE_ENDPOINT = "both ways, one endpoint"
# The same, through VXLAN.
VXLAN, VXLAN_ONE_WAY, VXLAN_ONE_ENDPOINT = (
    f"{name}, VXLAN" for name in (BOTH_WAYS, ONE_WAY, ONE_ENDPOINT)
)
# The scenario whose bond others are compared with, if it is not their own.
COMPARED_WITH = {BOTH_WAYS: ONE_ENDPOINT, VXLAN: VXLAN_ONE_ENDPOINT}
ONE_WAYS, ONE_ENDPOINTS = (ONE_WAY, VXLAN_ONE_WAY), (ONE_ENDPOINT, VXLAN_ONE_ENDPOINT)
# Teams that need no LAG, and those that do.
MOST_CONTENDERS = (
    *(MANUAL, "load-based", "adaptive", "active-backup", "balance-slb", "dynamic"),
    *("adaptive/lacp", "dynamic/lacp", "balance-tcp"),
)
# One endpoint: the policies that spread its traffic, and bonds.
SPREADING = ("adaptive", "dynamic", "active-backup", "balance-slb")
# Each VM's load, as a share of the team's capacity: every other pair of VMs is large. Their total load
# exceeds the team's capacity.
LARGE_RATIO, SMALL_RATIO = 0.22, 0.05
# The number of windows until a policy has made all of its single moves.
SETTLING_WINDOWS = 5
FAST_MBPS = 500
BASELINE = "balance-slb"
LEAST_RATIO = 1.8
# Each scenario: what it is, its layout's parameters, and its contenders.
OVERLAYS: dict[str, tuple[str, Mapping[str, int | str], Sequence[str]]] = {
    BOTH_WAYS: (
        "Eight VMs of each host send to and receive from the other host's at once, through Geneve from"
        " two endpoints a host. Together they offer more than the team carries.",
        {},
        MOST_CONTENDERS,
    ),
    ONE_WAY: (
        "Eight VMs send, through Geneve from the one endpoint of their host. The uplinks of the host that"
        " receives are ten times as fast, as a host mostly sends to several others.",
        {"endpoints": 1, "far_mbps": FAST_MBPS},
        MOST_CONTENDERS,
    ),
    ONE_ENDPOINT: (
        "The same in both directions. This is what most hosts have, without a LAG: one address, which a"
        " bond keeps on one uplink.",
        {"endpoints": 1},
        SPREADING,
    ),
}
OVERLAYS |= {
    f"{name}, VXLAN": (
        f"The same as the {place}, through VXLAN.",
        {**parameters, "encapsulation": "vxlan"},
        contenders,
    )
    for place, (name, (_, parameters, contenders)) in zip(
        ("first", "second", "third"), OVERLAYS.items(), strict=True
    )
}


def _overlays(options: Options) -> Iterator[Scenario]:
    for name, (what, parameters, contenders) in OVERLAYS.items():
        yield Scenario(
            name=name,
            what=what,
            layout=layouts.overlay(**parameters),
            load=functools.partial(
                _tunnelled,
                pace=options.pace,
                both_ways=name not in ONE_WAYS,
            ),
            contenders=tuple(contenders),
        )


def _tunnelled(stage: Stage, pace: Pace, *, both_ways: bool) -> Load:
    """TCP streams between the VMs of the same number; the senders' come first."""
    layout = stage.layout
    settle_s = float(SETTLING_WINDOWS * pace.window_s)
    measured_s = pace.streams_s[1]
    pairs = list(zip(layout.senders, layout.receivers, strict=True))
    back = [(receiver, sender) for sender, receiver in pairs] if both_ways else []
    # Two successive VMs have different endpoints and the same size.
    ratios = [SMALL_RATIO if number // 2 % 2 else LARGE_RATIO for number in range(len(pairs))]
    flows = [
        flow(
            *(layout, *ends, settle_s + measured_s + 1),
            rate_bps=int(ratios[number % len(pairs)] * layout.limit_bps),
        )
        for number, ends in enumerate([*pairs, *back])
    ]
    times_s = (settle_s, settle_s + measured_s)
    # A team that interrupts tunnels must be a result, not a failure of the bench.
    return StreamLoad(stage, flows, times_s, both_ways=both_ways, may_fail=True)


def _of_overlay(layout: Layout, seen: Observed, _found: Figures) -> Figures:
    """How even the second host's uplinks are."""
    if seen.scenario in (BOTH_WAYS, VXLAN):
        return {"return_cv": spread_cv(layout, seen, layout.uplinks_of("server2"))}
    return {}


def _over_one_endpoint(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """The throughput over that of a bond with one endpoint, as most hosts have it."""
    medians = {one.scenario.name: one.medians() for one in results}
    found = []
    for scenario, contenders in medians.items():
        bond = medians.get(COMPARED_WITH.get(scenario, scenario), {}).get(BASELINE)
        if bond is None or scenario in ONE_ENDPOINTS:  # peers decide where one endpoint receives
            continue
        for name in ("adaptive", "dynamic" if scenario in ONE_WAYS else "load-based"):
            if name in contenders:
                ratio = contenders[name]["throughput_bps"] / max(1.0, bond["throughput_bps"])
                what = (
                    f"{scenario}: {name} over {BASELINE} with one endpoint at least {LEAST_RATIO}"
                )
                found.append(Expectation(what, f"{ratio:.3f}", ratio >= LEAST_RATIO))
    return found


ALIKE = ("adaptive", "adaptive/lacp")
OVERLAY = Plan(
    lambda options: [*_overlays(options)],
    [
        Rule(
            *(f"uses both uplinks alike, {figure} at most 0.1", figure, ALIKE),
            where=[name for name in OVERLAYS if name not in ONE_ENDPOINTS],
            most=0.1,
        )
        for figure in ("spread_cv", "return_cv")
    ],
    _over_one_endpoint,
    per_run=_of_overlay,
    campaign_runs=5,
)
