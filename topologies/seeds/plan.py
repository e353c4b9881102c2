"""The bench of generated load jumps: each jump with each contender, its control, and the page of its report."""

from __future__ import annotations

import bisect
import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from topologies.compare.figures import Result
from topologies.compare.plan import Expectation, Options, Plan
from topologies.compare.run import Scenario
from topologies.graph.layout import Role
from topologies.loads.load import Stage
from topologies.loads.probing import ROLE, FlowResult
from topologies.loads.settling import Reading, settle_s
from topologies.loads.shift_load import FRAME_BITS, DatagramsLoad
from topologies.network import processes
from topologies.reports.markdown import bullets, table
from topologies.seeds.jumps import NAME, Jump, generate
from topologies.seeds.perfect import PHASES, perfect_loss_ratio

OURS, PEER = "adaptive", "balance-slb/1s"
# The scenarios of a jump are `NAME jump` and `NAME control`.
JUMP, CONTROL = " jump", " control"
# What a scenario has of the jump itself, as if it were a contender.
PERFECT = "perfect"
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
    jumped = {name: one for name, one in ours.items() if name.endswith(JUMP)}
    if jumped:
        perfect = {one.scenario.name: one.scenario.published.get(PERFECT, {}) for one in results}
        excess = {
            name: one["loss_ratio"] - perfect[name]["loss_ratio"] for name, one in jumped.items()
        }
        median = statistics.median(excess.values())
        yield Expectation(
            f"{OURS}: median loss above the perfect decider's at most {100 * MOST_MEDIAN_EXCESS:g} points",
            f"{100 * median:.3f}",
            median <= MOST_MEDIAN_EXCESS,
        )
        yield _every(
            f"{OURS}: worst loss above the perfect decider's at most {100 * MOST_WORST_EXCESS:g} points",
            *(excess, lambda ratio: f"{100 * ratio:.3f}", lambda ratio: ratio <= MOST_WORST_EXCESS),
        )
        yield _every(
            f"{OURS}: from 1 s after the last start, no uplink above {FULL_RATIO:.0%}"
            f" over any {SPAN_S:g} s",
            {name: one["highest_ratio"] for name, one in jumped.items()},
            *("{:.1%}".format, lambda ratio: ratio <= FULL_RATIO),
        )
        strangers = [name for name, one in jumped.items() if one["strangers"]]
        yield Expectation(
            f"testbed: under {OURS}, every VM is at home before the jump",
            ", ".join(strangers) or "all",
            not strangers,
        )
    lost = {name: one["loss_ratio"] for name, one in ours.items() if name.endswith(CONTROL)}
    if lost:
        yield _every(
            f"testbed: without a jump, less than {MOST_CONTROL_LOSS:.2%} is lost",
            *(lost, "{:.4%}".format, lambda ratio: ratio < MOST_CONTROL_LOSS),
        )
    yield _every(
        f"testbed: at least {LEAST_SENT_RATIO:.0%} of the planned load was sent",
        {
            f"{scenario}, {name}": one["sent_ratio"]
            for scenario, found in medians.items()
            for name, one in found.items()
        },
        *("{:.2%}".format, lambda ratio: ratio >= LEAST_SENT_RATIO, min),
    )


def _every(
    what: str,
    values: Mapping[str, float],
    shown: Callable[[float], str],
    is_met: Callable[[float], bool],
    worst: Callable[..., str] = max,
) -> Expectation:
    """A condition on every one of some values, and the worst of them."""
    name = worst(values, key=lambda one: values[one])
    missed = sum(not is_met(value) for value in values.values())
    text = f"{shown(values[name])} ({name}); {missed} of {len(values)} miss it"
    return Expectation(what, text, not missed)


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


TEXT = """\
`ovs-lbt bench shift --seeds {count}` generates load jumps from seeds, each on a network of its own. Uplinks have mixed
speeds, and VMs send UDP. The loads of one uplink's VMs rise above its capacity, each at a random time within 200 ms. A
placement of whole VM ports exists that keeps every uplink below 85 %.

- *To*: the utilization of that uplink if no VM port moves.
- *Lost*: the share of the datagrams of the first {watched_s:g} s.
- *Perfect*: the loss of a perfect decider, which polls every 100 ms, knows the present rates, and moves VMs immediately.
  A fluid model computes it, as a mean over {phases:.0f} phases of the polls."""

Report = Mapping[str, Any]


def _jumps(report: Report) -> list[Report]:
    """The scenarios in which the load jumps."""
    return [one for one in report["scenarios"] if one["name"].endswith(JUMP)]


def pooled(report: Report) -> dict[str, Any]:
    """Each contender with the runs of all jumps, and the medians of what the page shows."""
    names = dict.fromkeys(name for one in _jumps(report) for name in one["contenders"])
    found = {}
    for name in names:
        runs = [
            run
            for one in _jumps(report)
            for run in one["contenders"].get(name, {"runs": []})["runs"]
        ]
        figures = ("loss_ratio", "settle_s", "moves")
        known = {of: [run[of] for run in runs if of in run] for of in figures}
        medians = {of: statistics.median(values) for of, values in known.items() if values}
        found[name] = {**medians, "runs": runs}
    return found


def section(report: Report) -> list[str]:
    """The parts of the page."""
    perfect = _jumps(report)[0]["published"][PERFECT] if _jumps(report) else {}
    text = TEXT.format(
        count=len(_jumps(report)),
        watched_s=perfect.get("watched_s", 0),
        phases=perfect.get("phases", 0),
    )
    verdicts = [
        f"{'PASS' if one['met'] else '**FAIL**'} {one['condition']}: {one['found']}"
        for one in report["expectations"]
    ]
    return [f"# {NAME}", text, _table(report), f"## Expectations\n\n{bullets(verdicts)}"]


def _table(report: Report) -> str:
    """A row for each jump, and rows with the medians and the worst values."""
    names = list(pooled(report))
    rows: list[Sequence[str]] = []
    losses: dict[str, list[float]] = {name: [] for name in (PERFECT, *names)}
    for one in _jumps(report):
        perfect = one["published"][PERFECT]
        cells = []
        for name, of in losses.items():
            found = perfect if name == PERFECT else one["contenders"].get(name, {})
            cells.append(f"{found['loss_ratio']:.3%}" if found else "")
            of += [found["loss_ratio"]] if found else []
        rows.append(
            [
                one["name"].removesuffix(JUMP),
                "/".join(f"{bps / 1e6:.0f}" for bps in one["uplinks"].values()),
                f"{perfect['vms']:.0f}",
                f"{perfect['jump_ratio']:.0%}",
                *cells,
            ]
        )
    for word, of_values in (("median", statistics.median), ("worst", max)):
        label = f"{word}, n = {len(_jumps(report))}"
        rows.append([label, "", "", "", *(f"{of_values(v):.3%}" for v in losses.values() if v)])
    lost = (f"{name} lost" for name in losses)
    return table(["jump", "uplinks, Mbit/s", "VMs", "to", *lost], rows)
