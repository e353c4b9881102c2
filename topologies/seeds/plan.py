"""The bench of generated load jumps: each jump with each contender, and its control."""

from __future__ import annotations

import bisect
import functools
import statistics
from collections.abc import Iterator, Mapping, Sequence

from topologies.compare.expectation import Expectation
from topologies.compare.figures import Result
from topologies.compare.plan import Options, Plan
from topologies.compare.run import Scenario
from topologies.graph.layout import Role
from topologies.loads.load import Stage
from topologies.loads.probing import ROLE, FlowResult
from topologies.loads.settling import Reading, settle_s
from topologies.loads.shift_load import FRAME_BITS, DatagramsLoad
from topologies.network import processes
from topologies.seeds.jumps import Jump, generate
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
# The jump comes at a random phase of the polls: a bond polls every second, ovs-lbt every 0.1 s.
MAX_WAIT_S = 1.0
# A real-time priority below the switch's, because a sender that has to wait sends a burst.
SENDER_PRIORITY = 1
# Utilization is a mean over spans of this length.
SPAN_S = 0.5


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


class SeededLoad(DatagramsLoad):
    """A jump, or with `jumps` false its control run, in which no rate changes.

    Each VM is on its home uplink before the jump. Contenders that place by port number put it there by
    themselves, and the load places the VMs on a bond. The control run offers the total load of the jump,
    spread so that all uplinks are used equally.
    """

    stable_s = 2.0
    # After this time the load starts with the VMs where they are.
    settle_timeout_s = 8.0

    def __init__(self, stage: Stage, jump: Jump, *, watched_s: float, jumps: bool = True) -> None:
        before_bps = [vm.before_bps for vm in jump.vms]
        after_bps = [vm.after_bps for vm in jump.vms]
        if not jumps:
            mean_ratio = jump.offered_bps / sum(jump.capacities_bps)
            used = jump.home_utilizations()
            after_bps = [vm.after_bps * mean_ratio / used[vm.home] for vm in jump.vms]
            before_bps = after_bps
        super().__init__(stage, before_bps, max_wait_s=MAX_WAIT_S, watched_s=watched_s)
        self._after_bps = after_bps
        self._delays_s = [vm.start_s if jumps else 0.0 for vm in jump.vms]
        uplinks = stage.layout.nodes(Role.UPLINK)
        self._homes = {vm: uplinks[home] for vm, home in zip(self._vms, jump.homes, strict=True)}

    def start(self) -> None:
        """Place every VM on its home, and start."""
        self._stage.place_by_port_number()
        super().start()
        processes.set_realtime_priority(self._programs[ROLE].pid, SENDER_PRIORITY)

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        return dict(uplinks) == self._homes

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        from_s, to_s = self.measured_s
        settled_s = from_s + max(self._delays_s) + 1
        offered_bps = dict.fromkeys(capacities_bps, 0.0)
        for vm, bps in zip(self._vms, self._after_bps, strict=True):
            if vm in self._placement:
                offered_bps[self._placement[vm]] += bps
        planned = sum(
            before * start_s + after * (to_s - from_s - start_s)
            for before, after, start_s in zip(
                self._before_bps, self._after_bps, self._delays_s, strict=True
            )
        )
        return {
            "settle_s": settle_s(self._readings, capacities_bps, from_s, to_s),
            "highest_ratio": highest_ratio(self._readings, capacities_bps, settled_s, to_s),
            # The highest load of an uplink if no VM moved.
            "jump_ratio": max(offered_bps[up] / bps for up, bps in capacities_bps.items()),
            "strangers": float(
                sum(self._placement.get(vm) != up for vm, up in self._homes.items())
            ),
            "sent_ratio": sum(one.sent for one in flows) * FRAME_BITS / planned,
        }


def highest_ratio(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], from_s: float, to_s: float
) -> float:
    """The highest utilization of any uplink over any `SPAN_S` between these times."""
    within = [one for one in readings if from_s <= one.at_s <= to_s]
    times_s = [one.at_s for one in within]
    found = [0.0]
    for before in within:
        # Spans can be longer than `SPAN_S` by the interval between readings.
        last = bisect.bisect_left(times_s, before.at_s + SPAN_S)
        for after in within[last : last + 1]:
            found += [
                (after.sent_bytes[up] - before.sent_bytes[up])
                * 8
                / (after.at_s - before.at_s)
                / bps
                for up, bps in capacities_bps.items()
            ]
    return max(found)
