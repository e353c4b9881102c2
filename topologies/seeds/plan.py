"""The bench of generated load jumps: each jump with each contender, and its control."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence

from topologies.compare.expectation import Expectation
from topologies.compare.figures import Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.seeds.jumps import generate
from topologies.seeds.load import SPAN_S, SeededLoad
from topologies.seeds.perfect import PHASES, perfect_loss_ratio
from topologies.seeds.report import CONTROL, JUMP, PERFECT

OURS, PEER = "adaptive", "balance-slb/1s"
WATCHED_S, QUICK_WATCHED_S = 15.0, 6.0
QUICK_JUMPS = 2
# Loss in excess of the perfect decider's, as a ratio of what was sent.
MOST_MEDIAN_EXCESS = 0.001
MOST_WORST_EXCESS = 0.003
MOST_CONTROL_LOSS = 0.0001
FULL_RATIO = 0.9
# A machine that is too busy sends less than planned, and the load is then another one.
LEAST_SENT_RATIO = 0.99


def plan(seeds: Sequence[int]) -> Plan:
    """The bench of the jumps with these seeds."""
    return Plan(
        lambda options: [*_scenarios(seeds, options)],
        more=lambda _options, results: [*_expectations(results)],
        real_time=True,
        campaign_runs=1,
    )


def _scenarios(seeds: Sequence[int], options: Options) -> Iterator[Scenario]:
    quick = options.pace.name == "quick"
    watched_s = QUICK_WATCHED_S if quick else WATCHED_S
    for jump in map(generate, seeds[:QUICK_JUMPS] if quick else seeds):
        perfect = {
            "loss_ratio": perfect_loss_ratio(jump, watched_s),
            "jump_ratio": max(jump.home_utilizations()),
            "offered_bps": jump.offered_bps,
            "vms": float(len(jump.vms)),
            "watched_s": watched_s,
            "phases": float(PHASES),
        }
        for kind, what in ((JUMP, "The loads jump."), (CONTROL, "No load changes.")):
            jumps = kind == JUMP
            yield Scenario(
                name=f"{jump.name}{kind}",
                what=what,
                layout=jump.layout(),
                load=functools.partial(SeededLoad, jump=jump, watched_s=watched_s, jumps=jumps),
                contenders=(OURS, PEER) if jumps else (OURS,),
                published={PERFECT: perfect} if jumps else {},
                undisturbed=True,
                fixed=not jumps,
            )


def _expectations(results: Sequence[Result]) -> Iterator[Expectation]:
    """The conditions on the policy, and on the testbed that measured it."""
    medians = {one.scenario.name: one.medians() for one in results}
    ours = {name: found[OURS] for name, found in medians.items() if OURS in found}
    jumps = {name: one for name, one in ours.items() if name.endswith(JUMP)}
    if jumps:
        perfect = {one.scenario.name: one.scenario.published.get(PERFECT) for one in results}
        excess = {
            name: one["loss_ratio"] - (perfect[name] or {})["loss_ratio"]
            for name, one in jumps.items()
        }
        median = statistics.median(excess.values())
        yield Expectation(
            f"{OURS}: median loss above the perfect decider's at most"
            f" {MOST_MEDIAN_EXCESS * 100:g} points",
            f"{median * 100:.3f}",
            median <= MOST_MEDIAN_EXCESS,
        )
        worst = max(excess, key=lambda name: excess[name])
        above = sum(one > MOST_WORST_EXCESS for one in excess.values())
        yield Expectation(
            f"{OURS}: worst loss above the perfect decider's at most"
            f" {MOST_WORST_EXCESS * 100:g} points",
            f"{excess[worst] * 100:.3f} ({worst}); {above} of {len(excess)} above",
            not above,
        )
        fullest = max(jumps, key=lambda name: jumps[name]["highest_ratio"])
        above = sum(one["highest_ratio"] > FULL_RATIO for one in jumps.values())
        yield Expectation(
            f"{OURS}: from 1 s after the last start, no uplink above {FULL_RATIO:.0%}"
            f" over any {SPAN_S:g} s",
            f"{jumps[fullest]['highest_ratio']:.1%} ({fullest}); {above} of {len(jumps)} above",
            not above,
        )
        strangers = [name for name, one in jumps.items() if one["strangers"]]
        yield Expectation(
            f"testbed: under {OURS}, every VM is at home before the jump",
            ", ".join(strangers) or "all",
            not strangers,
        )
    lost = {name: one["loss_ratio"] for name, one in ours.items() if name.endswith(CONTROL)}
    if lost:
        worst = max(lost, key=lambda name: lost[name])
        yield Expectation(
            f"testbed: without a jump, less than {MOST_CONTROL_LOSS:.2%} is lost",
            f"{lost[worst]:.4%} ({worst})",
            lost[worst] < MOST_CONTROL_LOSS,
        )
    sent = {
        f"{scenario}, {name}": one["sent_ratio"]
        for scenario, found in medians.items()
        for name, one in found.items()
    }
    least = min(sent, key=lambda name: sent[name])
    yield Expectation(
        f"testbed: at least {LEAST_SENT_RATIO:.0%} of the planned load was sent",
        f"{sent[least]:.2%} ({least})",
        sent[least] >= LEAST_SENT_RATIO,
    )
