"""The benches of loads that differ or change: `vmware_lbt`, `mixed_speed`, `shift` and `flows`."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence

from topologies import layouts
from topologies.compare.contenders import MANUAL, ORACLE, USUAL
from topologies.compare.figures import (
    Figures,
    Phase,
    Result,
    in_order,
    mean_utilization_of,
    phases_of,
    uplink_difference,
)
from topologies.compare.plan import EACH_PEER, Expectation, Options, Plan, Rule
from topologies.compare.run import Observed, Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.flow_load import LARGE_BYTES, SEED, SMALL_BYTES, FlowLoad
from topologies.loads.flow_plan import DATA_MINING, WEB_SEARCH, SizeDistribution, popularity
from topologies.loads.load import Load, Stage
from topologies.loads.settling import NEAR_RATIO
from topologies.loads.shift_load import FailureLoad, ShiftLoad
from topologies.loads.streams import settled_streams
from topologies.loads.web_load import WebLoad

OURS = "adaptive"

# vmware_lbt: a ramp of web users that exceeds the capacity of one uplink.
WEB_USERS, UNEQUAL = "web users", "unequal VMs"
# The VMs' loads in the second scenario. The uplinks can be equally loaded only if the first and the
# last VM share one. No hash of ports or addresses knows that.
WEIGHTS = (4, 3, 2, 1)
MOST_QOS_DIFFERENCE = 0.001
MOST_UPLINK_DIFFERENCE = 0.05
EXPECTED_MOVES = 2


def _web_users(options: Options) -> list[Scenario]:
    layout = layouts.vmware_lbt()
    document = layout.published
    published: Figures = {
        "steady_share_of_limit": document["total_share"],
        "qos_ratio": document["qos_ratio"],
    }
    contenders = (*USUAL, "balance-tcp")
    return [
        Scenario(
            name=WEB_USERS,
            what=f"A ramp of web users on four VMs ({options.direction}).",
            layout=layout,
            load=lambda stage: WebLoad(stage, options.pace, options.direction),
            contenders=contenders,
            published={
                MANUAL: published,
                "load-based": {**published, "moves": document["moves"]},
            },
        ),
        Scenario(
            name=UNEQUAL,
            what="The same ramp, with loads of the four VMs in proportion to"
            f" {', '.join(map(str, WEIGHTS))} ({options.direction}).",
            layout=layout,
            load=lambda stage: WebLoad(stage, options.pace, options.direction, WEIGHTS),
            contenders=contenders,
        ),
    ]


def phases(options: Options, result: Result) -> list[Phase]:
    """The phases of the first run of `load-based`. Empty if it did not run, or VMs are unequal."""
    if result.scenario.name != WEB_USERS or "load-based" not in result.observed:
        return []
    first = result.observed["load-based"][0]
    return phases_of(result.scenario.layout, first, options.pace.ramp_s)


def _of_web_users(options: Options, results: Sequence[Result]) -> Iterator[Expectation]:
    """The phases of the document, and the quality of its service."""
    for result in results:
        if result.scenario.name != WEB_USERS:
            continue
        found, contenders = phases(options, result), result.medians()
        if found:
            starts = ", ".join(f"{one.name} from {one.start_s:.1f} s" for one in found)
            yield Expectation("four phases in order", starts, in_order(found))
            apart = uplink_difference(found[-1].uplink_utilization)
            yield Expectation(
                f"uplinks within {MOST_UPLINK_DIFFERENCE:.0%} of each other in phase 4",
                f"{apart:.1%}",
                apart <= MOST_UPLINK_DIFFERENCE,
            )
        if {MANUAL, "load-based"} <= contenders.keys():
            manual, ours = (contenders[name]["qos_ratio"] for name in (MANUAL, "load-based"))
            yield Expectation(
                "load-based: quality of service within 0.1 point of manual's",
                f"{ours:.2%} and {manual:.2%}",
                manual - ours <= MOST_QOS_DIFFERENCE,
            )
        fewest = min(one["downloads"] for one in contenders.values())
        if least := options.pace.least_downloads:
            what = f"at least {least} downloads for each contender"
            yield Expectation(what, f"{fewest:.0f}", fewest >= least)


VMWARE_LBT = Plan(
    _web_users,
    [
        Rule(
            *(f"exactly {EXPECTED_MOVES} moves", "moves", ("load-based",), (WEB_USERS,)),
            least=EXPECTED_MOVES,
            most=EXPECTED_MOVES,
            shown="{:.0f}",
        ),
        Rule(
            *("at least 0.98 of manual's throughput", "throughput_bps", ("load-based",)),
            where=(WEB_USERS,),
            least=0.98,
            over=MANUAL,
        ),
        Rule(
            "at most 0.95 of manual's throughput, because all loads share one uplink",
            *("throughput_bps", ("originating-port",), (WEB_USERS,)),
            most=0.95,
            over=MANUAL,
        ),
    ],
    lambda options, results: [*_of_web_users(options, results)],
    phases=phases,
    drawn={
        WEB_USERS: ("uplinks", "start of the load"),
        UNEQUAL: ("uplinks-unequal", "start of the load"),
    },
    campaign_runs=5,
)

# mixed_speed: equal and skewed loads of many VMs on a fast and a slow uplink.
# The total load as a share of all uplinks.
OFFERED_RATIO = 0.7
MOST_DIFFERENCE = 0.10
EQUAL, SKEWED = "equal loads", "skewed loads"
# The loads of real VMs are skewed. These loads are random, so that their sums were not chosen.
WEIGHTS_SEED, SIGMA = 1, 0.8


def _mixed_speed(options: Options) -> list[Scenario]:
    layout = layouts.mixed_speed()
    draws = random.Random(WEIGHTS_SEED)
    skewed = [draws.lognormvariate(0.0, SIGMA) for _ in layout.nodes(Role.VM)]

    return [
        Scenario(
            name=name,
            what=f"Every VM offers {what}, in total {OFFERED_RATIO:.0%} of both uplinks.",
            layout=layout,
            load=functools.partial(
                settled_streams, pace=options.pace, offered_ratio=OFFERED_RATIO, weights=weights
            ),
            contenders=(*USUAL, "balance-tcp"),
        )
        for name, what, weights in (
            (EQUAL, "the same load", [1.0] * len(skewed)),
            (SKEWED, f"a load drawn from a log-normal distribution (sigma {SIGMA})", skewed),
        )
    ]


def _difference(layout: Layout, seen: Observed, _found: Figures) -> Figures:
    """The difference between the uplinks' utilizations."""
    return {"uplink_difference": uplink_difference(mean_utilization_of(layout, seen))}


# Equal loads allow it: ten VMs on the fast uplink, and one on the slow uplink.
EVEN = f"utilizations within {MOST_DIFFERENCE:.0%} of each other"
MIXED_SPEED = Plan(
    _mixed_speed,
    [
        Rule(
            *(EVEN, "uplink_difference", ("load-based", "adaptive", "dynamic"), (EQUAL,)),
            most=MOST_DIFFERENCE,
            shown="{:.1%}",
        ),
        Rule(
            *(EVEN.replace("within", "not within"), "uplink_difference", ("balance-slb",)),
            where=(EQUAL,),
            least=MOST_DIFFERENCE,
            shown="{:.1%}",
        ),
    ],
    per_run=_difference,
    campaign_runs=5,
)

# shift: a load jump on one uplink, an uplink failure, and single moves.
SHIFT_CONTENDERS = (MANUAL, "load-based", OURS, "balance-slb", "balance-slb/1s")
JUMP, FAILURE, EQUAL_FAILURE = "load jump", "an uplink fails", "one of equal uplinks fails"
EVEN_RATIO, HOT_RATIO, COLD_RATIO = 0.10, 0.29, 0.04
# The speeds of three uplinks, of which the last fails. The twelve VMs send 70 % of the remaining
# capacity.
FAILURE_SPEEDS_MBPS = {FAILURE: (100, 50, 50), EQUAL_FAILURE: (75, 75, 75)}
FAILURE_RATES_MBPS = (18, 15, 13, 12, 11, 9, 7, 6, 5, 4, 3, 2)


def _shift(options: Options) -> list[Scenario]:
    layout = layouts.shift()
    speed_bps = layout.capacity_bps(layout.nodes(Role.UPLINK)[0])
    rates_bps = [ratio * speed_bps for ratio in (EVEN_RATIO, HOT_RATIO, COLD_RATIO)]
    longest_wait_s, watched_s = options.pace.shift_s
    return [
        Scenario(
            name=JUMP,
            what=f"Each of eight VMs sends {EVEN_RATIO:.0%} of an uplink's speed. Then the four VMs of"
            f" one uplink send {HOT_RATIO:.0%} and the others {COLD_RATIO:.0%}. Losses and"
            f" reordering are measured for {watched_s:.0f} s after the jump, which is also the time"
            " of a contender that does not settle.",
            layout=layout,
            load=lambda stage: ShiftLoad(
                stage, *rates_bps, max_wait_s=longest_wait_s, watched_s=watched_s
            ),
            contenders=SHIFT_CONTENDERS,
        ),
        *(_uplink_failure(name, speeds, options) for name, speeds in FAILURE_SPEEDS_MBPS.items()),
    ]


def _uplink_failure(name: str, speeds_mbps: tuple[int, int, int], options: Options) -> Scenario:
    fast_mbps, _, slow_mbps = speeds_mbps
    mixed = layouts.mixed_speed(
        slow_uplinks=2, vms=len(FAILURE_RATES_MBPS), uplink_mbps=fast_mbps, slow_mbps=slow_mbps
    )
    rates_bps = [mbps * 1e6 for mbps in FAILURE_RATES_MBPS]
    longest_wait_s, watched_s = options.pace.failure_s
    return Scenario(
        name=name,
        what=f"Twelve VMs send between {min(FAILURE_RATES_MBPS)} and {max(FAILURE_RATES_MBPS)}"
        f" Mbit/s on uplinks of {', '.join(map(str, speeds_mbps))} Mbit/s. One uplink of"
        f" {slow_mbps} Mbit/s loses its carrier. No loss: the time after which everything arrives."
        f" Placed: the time after which no uplink has more than {NEAR_RATIO:.1f} times the"
        " total load over the remaining capacity. A contender that does not get there has the"
        f" {watched_s:.0f} s that are watched.",
        layout=Layout("shift", mixed.graph),
        load=lambda stage: FailureLoad(
            stage,
            rates_bps,
            mixed.nodes(Role.UPLINK)[-1],
            options.pace.still_s,
            max_wait_s=longest_wait_s,
            watched_s=watched_s,
        ),
        contenders=SHIFT_CONTENDERS[1:],
    )


JUMP_RULES = functools.partial(Rule, who=(OURS,), where=(JUMP,))
FASTEST_BOND = ("balance-slb/1s",)
RESTORED_RULES = functools.partial(
    Rule, figure="restored_s", who=(OURS,), where=(FAILURE, EQUAL_FAILURE), shown="{:.2f} s"
)
SHIFT = Plan(
    _shift,
    [
        # `adaptive` settles soon, with few moves and little loss, and sooner than the fastest bond.
        JUMP_RULES("settled within 1.0 s", "settle_s", most=1.0, shown="{:.2f} s"),
        JUMP_RULES("at most 0.1% of the packets lost", "loss_ratio", most=0.001, shown="{:.3%}"),
        JUMP_RULES("at most 4 moves", "moves", most=4, shown="{:g}"),
        JUMP_RULES("settled sooner", "settle_s", than=FASTEST_BOND, shown="{:.2f} s"),
        JUMP_RULES("fewer packets lost", "loss_ratio", than=FASTEST_BOND, shown="{:.3%}"),
        JUMP_RULES("no more moves", "moves", than=FASTEST_BOND, or_equal=True, shown="{:g}"),
        RESTORED_RULES("nothing lost and placed by capacity within 5.0 s", most=5.0),
        RESTORED_RULES("sooner", than=EACH_PEER),
    ],
    drawn={JUMP: ("shift", "load jump"), FAILURE: ("failure", "failure")},
    real_time=True,
    campaign_runs=5,
)

# flows: the duration of requests of published sizes, at two loads and in a failure.
# Sizes are a tenth of those that were measured. Faster uplinks than those of the layout would make
# Open vSwitch's userspace datapath the bottleneck, which forwards on one core.
SCALE = 0.1
# The load on the wire as a share of both uplinks.
LOADS = ((WEB_SEARCH, 0.7), (WEB_SEARCH, 0.9), (DATA_MINING, 0.7))
# The start of a flow that is later than this is no longer random.
MOST_LATE_MS = 20.0


def _flows(options: Options) -> Iterator[Scenario]:
    layout = layouts.flows()
    popular = max(popularity(len(layout.nodes(Role.VM)), SEED))

    def load(stage: Stage, of: SizeDistribution, ratio: float) -> Load:
        load_bps = ratio * layout.limit_bps
        return FlowLoad(stage, of.scaled(SCALE), load_bps, *options.pace.flows_s)

    for of, ratio in LOADS:
        yield Scenario(
            name=f"{of.name}, {ratio:.0%}",
            what=f"Requests for sizes as published for {of.name} ({of.source}),"
            " divided by ten. They start at random, whether or not others have ended, and load the"
            f" uplinks by {ratio:.0%} of what both carry. The most popular VM gets"
            f" {popular:.0%} of them. Small: below"
            f" {SMALL_BYTES // 1000} kB; large: above {LARGE_BYTES // 10**6} MB. Slowdown: the time"
            " over that on an idle uplink. The oracle knows the sizes of all flows, and places each"
            " one as it starts. Chance is different in each run, and the same for every contender.",
            layout=layout,
            load=functools.partial(load, of=of, ratio=ratio),
            contenders=(
                *(MANUAL, "load-based", OURS, "dynamic", "dynamic/lacp"),
                *("active-backup", "balance-slb", "balance-tcp", ORACLE),
            ),
        )


FLOWS = Plan(
    lambda options: [*_flows(options)],
    [
        Rule(
            f"99 % of the flows start within {MOST_LATE_MS:.0f} ms",
            *("late_p99_ms", ()),
            most=MOST_LATE_MS,
            shown="{:.1f} ms",
        ),
        # Teams without a LAG.
        Rule(
            *("p99 of the slowdown no higher", "slowdown_p99", (OURS,)),
            shown="{:.1f}",
            than=(MANUAL, "active-backup", "balance-slb"),
            or_equal=True,
        ),
    ],
    draws_slowdowns=True,
    real_time=True,
)
