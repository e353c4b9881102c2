"""The bench of generated load jumps: each jump with each contender, and its control, pooled over all jumps."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from topologies.compare.figures import Figures, Result
from topologies.compare.plan import Options, Plan, Rule
from topologies.compare.run import Observed, Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Stage
from topologies.loads.probing import ROLE, FlowResult
from topologies.loads.settling import Reading, settle_s
from topologies.loads.shift_load import FRAME_BITS, DatagramsLoad
from topologies.network import processes
from topologies.seeds.jumps import Jump, generate
from topologies.seeds.perfect import PHASES, perfect_loss_ratio

OURS, PEER = "adaptive", "balance-slb/1s"
# The scenarios of a jump are `NAME jump` and `NAME control`. Reports have those of all jumps as one.
JUMP, CONTROL = " jump", " control"
JUMPS, CONTROLS = "all jumps", "all controls"
WATCHED_S, QUICK_WATCHED_S = 15.0, 6.0
QUICK_JUMPS = 2
FULL_RATIO = 0.9
# The jump comes at a random phase of the polls: a bond polls every second, ovs-lbt every 0.1 s.
MAX_WAIT_S = 1.0
# A real-time priority below the switch's, because a sender that has to wait sends a burst.
SENDER_PRIORITY = 1
# Utilization is a mean over spans of this length.
SPAN_S = 0.5
WHAT = {
    JUMPS: "Each run is a load jump that is generated from a seed, on a network of its own. Uplinks have mixed"
    " speeds, and VMs send UDP. The loads of one uplink's VMs rise above its capacity, each at a random time"
    " within 200 ms. A placement of whole VM ports exists that keeps every uplink below 85 %. Losses are those"
    f" of the first {WATCHED_S:.0f} s. A perfect decider polls every 100 ms, knows the present rates, and moves"
    f" VMs immediately. A fluid model computes its loss, as a mean over {PHASES} phases of the polls.",
    CONTROLS: "The same total loads, with all uplinks used equally. No load changes.",
}
IN_JUMPS = functools.partial(Rule, who=(OURS,), where=(JUMPS,))


def plan(seeds: Sequence[int]) -> Plan:
    """The bench of the jumps with these seeds."""
    jumps = [generate(seed) for seed in seeds]
    return Plan(
        lambda options: [*_scenarios(jumps, options)],
        [
            IN_JUMPS(
                "median loss above the perfect decider's at most 0.1 points",
                "excess_loss_ratio",
                most=0.001,
                shown="{:.3%}",
            ),
            IN_JUMPS(
                "worst loss above the perfect decider's at most 0.3 points",
                "excess_loss_ratio",
                most=0.003,
                shown="{:.3%}",
                worst_run=True,
            ),
            IN_JUMPS(
                f"from 1 s after the last start, no uplink above {FULL_RATIO:.0%} over any {SPAN_S:g} s",
                "highest_ratio",
                most=FULL_RATIO,
                shown="{:.1%}",
                worst_run=True,
            ),
            # Conditions on the testbed.
            IN_JUMPS(
                *("every VM is at home before the jump", "strangers"),
                most=0.0,
                shown="{:.0f} VMs are not",
                worst_run=True,
            ),
            Rule(
                *("without a jump, less than 0.01% is lost", "loss_ratio", (OURS,), (CONTROLS,)),
                below=0.0001,
                shown="{:.4%}",
                worst_run=True,
            ),
            # A machine that is too busy sends less than planned, and the load is then another one.
            Rule(
                *("at least 99% of the planned load was sent", "unsent_ratio", ()),
                most=0.01,
                shown="all but {:.2%}",
                worst_run=True,
            ),
        ],
        per_run=functools.partial(_above_perfect, {jump.name: jump for jump in jumps}),
        pooled=pooled,
        real_time=True,
        campaign_runs=1,
    )


def _scenarios(chosen: Sequence[Jump], options: Options) -> Iterator[Scenario]:
    quick = options.pace.name == "quick"
    watched_s = QUICK_WATCHED_S if quick else WATCHED_S
    for jump in chosen[:QUICK_JUMPS] if quick else chosen:
        for kind, all_of in ((JUMP, JUMPS), (CONTROL, CONTROLS)):
            jumps = kind == JUMP
            yield Scenario(
                name=f"{jump.name}{kind}",
                what=WHAT[all_of],
                layout=jump.layout(),
                load=functools.partial(SeededLoad, jump=jump, watched_s=watched_s, jumps=jumps),
                contenders=(OURS, PEER) if jumps else (OURS,),
                undisturbed=True,
                fixed=not jumps,
            )


def _above_perfect(
    jumps: Mapping[str, Jump], _layout: Layout, seen: Observed, found: Figures
) -> Figures:
    """The loss of the perfect decider, and how much more was lost."""
    if not seen.scenario.endswith(JUMP):
        return {}
    from_s, to_s = seen.measured_s
    perfect = perfect_loss_ratio(jumps[seen.scenario.removesuffix(JUMP)], to_s - from_s)
    return {
        "perfect_loss_ratio": perfect,
        "excess_loss_ratio": found["loss_ratio"] - perfect,
    }


def pooled(results: Sequence[Result]) -> list[Result]:
    """The results of all jumps as one, and those of all controls, with a run for each jump."""
    found = []
    for kind, name in ((JUMP, JUMPS), (CONTROL, CONTROLS)):
        of_kind = [one for one in results if one.scenario.name.endswith(kind)]
        contenders = dict.fromkeys(name for one in of_kind for name in one.figures)
        if of_kind:
            found.append(
                Result(
                    replace(of_kind[0].scenario, name=name),
                    {
                        n: [run for one in of_kind for run in one.figures.get(n, ())]
                        for n in contenders
                    },
                    {
                        n: [run for one in of_kind for run in one.observed.get(n, ())]
                        for n in contenders
                    },
                )
            )
    return found


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
            "unsent_ratio": 1 - sum(one.sent for one in flows) * FRAME_BITS / planned,
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
