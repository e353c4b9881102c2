"""What each strategy and constant of `adaptive` is worth: figures with it, and without it.

    python -m tests.unit.policies.taken_out --instances 1000 --optima /tmp/optima.json
    python -m tests.unit.policies.taken_out --jumps 16
    python -m tests.unit.policies.taken_out --replay TRACE.csv.gz --only PRICE_RATIO=0
    python -m tests.unit.policies.taken_out --replay TRACE.csv.gz --hosts host3 --vary 1 2

Prints a JSON object a line, for each variant of the planner. The first variant is the planner as it
is. `--only` selects variants whose names contain one of the texts. `--vary` replays again with other
loads that nobody could tell from the recorded ones: so much do figures differ by chance.
`docs/results/placements/parts.md` has the figures.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from controller.replay.host import Host, Options
from controller.replay.trace import HostTrace, read
from policies import gain
from policies.model import Plan, Snapshot
from policies.optimum import least_worst_ratio
from policies.planners import minmax, splitting
from tests.unit.controller.engine import jumps
from tests.unit.policies.placements import (
    after,
    best_ratio,
    instance,
    loaded,
    percentile,
    worst_ratio,
)

# A placement this close to the optimum counts as optimal.
OPTIMAL_RATIO = 1.001
# Plans are timed on every so manieth instance, so often.
TIMED_EVERY, TIMED_PASSES = 8, 3
# Each rate of a varied trace differs by up to this share from the recorded one.
VARIED_RATIO = 0.001


@dataclass(frozen=True, slots=True)
class Variant:
    """The planner with some names replaced: each an object, an attribute and its value."""

    name: str
    patches: tuple[tuple[object, str, object], ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, attribute, value in self.patches:
                stack.enter_context(mock.patch.object(target, attribute, value))
            yield


AS_IS = Variant("as it is")


def _constants() -> Iterator[Variant]:
    """Each constant at its neutral value, where it has one, at half and at twice its value."""
    values: list[tuple[Any, str, Sequence[float]]] = [
        (minmax, "LEAST_GAIN_OF_CAPACITY_RATIO", (0.0, 0.01, 0.04)),
        (minmax, "LEAST_STEP_RATIO", (0.0, 0.0005, 0.002)),
        (minmax, "LEFT_OUT_RATIO", (0.0, 0.0225, 0.09, float("inf"))),
        (minmax, "GOOD_STEP_RATIO", (0.0, 0.005, 0.02, float("inf"))),
        (minmax, "GOOD_STEP_OF_SURPLUS_RATIO", (0.0, 0.1, 0.4)),
        (minmax, "CLOSE_RATIO", (1.0, 1.0025, 1.01)),
        (minmax, "LEAST_BETTER_RATIO", (0.0, 0.005, 0.02)),
        (minmax, "NEIGHBOURS", (1, 2, 6)),
        (minmax, "LARGEST", (1, 4, 16)),
        (minmax, "PLACED_ANEW", (128, 512)),
        (minmax, "LEVELS", (4, 14)),
        (minmax, "MOST_STEPS", (80, 320)),
        (minmax, "FEW_UNITS", (0, 12, 48)),
        (minmax, "MOST_PLACEMENTS", (3000, 12_000)),
        (splitting, "PRICE_RATIO", (0.0, 0.01, 0.04)),
        (splitting, "ENOUGH_RATIO", (0.0, 0.6, 0.8)),
        (splitting, "NEAR_RATIO", (0.8, 1.0)),
        (splitting, "GAIN_RATIO", (0.0, 0.025, 0.1)),
        (splitting, "GAIN_OF_WORST_RATIO", (0.0, 0.05, 0.2)),
        (splitting, "COOL_RATIO", (0.0, 0.25, 0.75)),
        (splitting, "COOL_GAIN_RATIO", (0.0, 0.25, 1.0)),
        (splitting, "MOST_AT_ONCE", (4, 16)),
        (gain, "LEAST_GAIN_OF_WORST_RATIO", (0.05, 0.2)),
        (gain, "NEARLY_FULL_RATIO", (0.0, 0.9, 2.0)),
        (gain, "LEAST_GAIN_OF_NEARLY_FULL_RATIO", (0.0, 0.025, 0.1)),
        (gain, "LEAST_GAIN_PER_ADDRESS_RATIO", (0.0, 0.005, 0.02)),
        (gain, "WANDERS_RATIO", (0.0, 0.01, 0.04)),
    ]
    for module, name, others in values:
        short = module.__name__.rpartition(".")[2]
        for value in others:
            patches: list[tuple[object, str, object]] = [(module, name, value)]
            if name == "LEAST_GAIN_PER_ADDRESS_RATIO":
                patches = [(gain, "worthwhile", _chosen_at(value))]
            yield Variant(f"{short}.{name}={value:g}", tuple(patches))


def _chosen_at(each_ratio: float) -> Callable[..., Plan]:
    """`gain.worthwhile` with another default price."""
    chosen = gain.worthwhile

    def named(plan: Plan, snapshot: Snapshot, **named: float) -> Plan:
        return chosen(plan, snapshot, named.get("each_ratio", each_ratio))

    return named


# ---- strategies ------------------------------------------------------------------------

_Team = minmax._Team
_Step = minmax._Step


def _strategies() -> Iterator[Variant]:
    yield Variant("no drain", ((_Team, "_drain", lambda *_: False),))
    yield Variant("no exchange", ((_Team, "_exchanges_from", _none),))
    yield Variant("exchange where no move helps", ((_Team, "_best_step", _move_first),))
    yield Variant("exchange where it is better", ((_Team, "_best_step", _better_first),))
    yield Variant("moves by the fuller direction", ((_Team, "_moves_from", _moves_one_way),))
    yield Variant("exchange without the largest", ((_Team, "_exchanges_from", _near_only),))
    yield Variant("no placing anew", ((_Team, "placed_anew", _none),))
    for way in ("pack", "level", "search"):
        yield Variant(f"anew without {way}", ((_Team, "placed_anew", _anew_without({way})),))
    for way in ("pack", "level", "search"):
        others = {"pack", "level", "search"} - {way}
        yield Variant(f"anew by {way} only", ((_Team, "placed_anew", _anew_without(others)),))
    yield Variant("no leaving out", ((_Team, "leave_out", lambda *_: None),))
    yield Variant("bound as a fluid only", ((_Team, "bound_ratio", _fluid),))
    yield Variant("buckets with the rest", ((splitting, "_placed", _placed_together),))


def _none(*_: object) -> Iterator[Any]:
    return iter(())


def _move_first(team: Any, fullest: int, limit_ratio: float) -> Any:
    single = team._best(team._moves_from(fullest), limit_ratio)
    return single or team._best(team._exchanges_from(fullest), limit_ratio)


def _better_first(team: Any, fullest: int, limit_ratio: float) -> Any:
    single = team._best(team._moves_from(fullest), limit_ratio)
    exchange = team._best(team._exchanges_from(fullest), limit_ratio)
    found = [step for step in (single, exchange) if step is not None]
    return min(found, key=lambda step: step.ratio, default=None)


def _moves_one_way(team: Any, source: int) -> Iterator[Any]:
    direction = 0 if team._bps[0][source] >= team._bps[1][source] else 1
    for target in range(len(team.uplinks)):
        if target == source:
            continue
        wanted = team._wanted_bps(source, target, direction)
        if wanted <= 0.0:
            continue
        for item in team._near(source, direction, wanted):
            yield _Step(target, team._after(source, target, item), item)


def _near_only(team: Any, source: int) -> Iterator[Any]:
    direction = 0 if team._bps[0][source] >= team._bps[1][source] else 1
    sizes = team._sizes[direction]
    for target in range(len(team.uplinks)):
        if target == source:
            continue
        wanted = team._wanted_bps(source, target, direction)
        for item in team._near(source, direction, wanted):
            for back in team._near(target, direction, sizes[item] - wanted):
                yield _Step(target, team._after(source, target, item, back), item, back)


def _anew_without(ways: set[str]) -> Callable[..., Iterator[list[int]]]:
    def placed_anew(team: Any, found_ratio: float, bound_ratio: float) -> Iterator[list[int]]:
        fastest = max(team._caps)
        weight = [max(s, r) / fastest for s, r in zip(*team._sizes, strict=True)]
        loose = [i for i in range(len(team.items)) if not team._ruled[i]]
        chosen = sorted(loose, key=lambda i: (-weight[i], i))[: minmax.PLACED_ANEW]
        held = team._without(chosen)
        low, high = bound_ratio, found_ratio
        best: list[int] | None = None
        for _ in range(0 if "pack" in ways else minmax.LEVELS):
            level = (low + high) / 2.0
            at = team._packed(chosen, held, level)
            if at is None:
                low = level
            else:
                best, high = at, level
        if best is not None:
            yield best
        if "level" not in ways:
            yield team._levelled(chosen, held)
        if (
            "search" not in ways
            and len(chosen) <= minmax.FEW_UNITS
            and (at := team._searched(chosen, held, found_ratio))
        ):
            yield at

    return placed_anew


def _fluid_of(team: Any) -> float:
    return max(sum(used) for used in team._bps) / sum(team._caps)


_fluid = property(_fluid_of)


def _placed_together(snapshot: Snapshot, enough_ratio: float = 0.0) -> tuple[Any, ...]:
    return minmax.plan(snapshot, enough_ratio, splitting.PRICE_RATIO).moves


def variants(only: Sequence[str] = ()) -> list[Variant]:
    found = [*_strategies(), *_constants()]
    return [AS_IS, *(v for v in found if not only or any(text in v.name for text in only))]


# ---- figures ---------------------------------------------------------------------------


def piled(snapshot: Snapshot) -> Snapshot:
    """The same team, with all VM ports on its first uplink."""
    first = snapshot.uplinks[0].name
    units = tuple(replace(unit, uplink=first) for unit in snapshot.units)
    return loaded(replace(snapshot, units=units))


def optima(instances: int, path: Path, nodes: int) -> list[float]:
    """The least worst utilization of each instance, or a bound of it; kept in a file."""
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    for seed in range(instances):
        if str(seed) in known:
            continue
        snapshot = instance(seed)
        bound = least_worst_ratio(snapshot.uplinks, snapshot.units)
        reached = worst_ratio(after(snapshot, minmax.plan(snapshot)))
        if reached > bound * (1.0 + (OPTIMAL_RATIO - 1.0) / 2):
            bound, _ = best_ratio(snapshot, nodes)
        known[str(seed)] = bound
    path.write_text(json.dumps(known))
    return [known[str(seed)] for seed in range(instances)]


def reached(
    snapshots: Sequence[Snapshot], best: Sequence[float], plan: Callable[[Snapshot], Plan]
) -> dict[str, float]:
    """How close plans come to the optimum, and with how many moves."""
    plans = [plan(snapshot) for snapshot in snapshots]
    ratios = [
        worst_ratio(after(snapshot, planned)) / least
        for snapshot, planned, least in zip(snapshots, plans, best, strict=True)
    ]
    return {
        "mean_ratio": round(statistics.fmean(ratios), 5),
        "median_ratio": round(statistics.median(ratios), 5),
        "p99_ratio": round(percentile(ratios, 0.99), 4),
        "worst_ratio": round(max(ratios), 4),
        "not_optimal": sum(ratio > OPTIMAL_RATIO for ratio in ratios),
        "moves": sum(len(planned.moves) for planned in plans),
    }


def made(snapshot: Snapshot) -> Plan:
    """What the service would make of such peaks."""
    return gain.worthwhile(splitting.plan(snapshot), snapshot)


def time_ratios(variant: Variant, snapshots: Sequence[Snapshot]) -> list[float]:
    """Processor time for plans, over that of the planner as it is; one for each pass."""
    found = []
    for number in range(TIMED_PASSES):
        spent_s = {}
        for one in (AS_IS, variant)[:: 1 if number % 2 else -1]:
            with one.applied():
                began_s = time.thread_time()
                for snapshot in snapshots:
                    splitting.plan(snapshot)
                spent_s[one.name] = time.thread_time() - began_s
        found.append(spent_s[variant.name] / spent_s[AS_IS.name])
    return sorted(round(ratio, 3) for ratio in found)


def quality(chosen: Sequence[Variant], best: Sequence[float]) -> Iterator[Mapping[str, object]]:
    spread = [instance(seed) for seed in range(len(best))]
    heaped, of_heaped = list(map(piled, spread[::TIMED_EVERY])), best[::TIMED_EVERY]
    large = [instance(seed, uplinks=8, units=10_000) for seed in range(2)]
    for variant in chosen:
        with variant.applied():
            found = {
                "searched": reached(spread, best, minmax.plan),
                "searched_piled": reached(heaped, of_heaped, minmax.plan),
                "made": reached(spread, best, made),
            }
        yield {
            "variant": variant.name,
            **found,
            "time": time_ratios(variant, spread[::TIMED_EVERY]),
            "time_10000": time_ratios(variant, large),
        }


def jumped(chosen: Sequence[Variant], seeds: int) -> Iterator[Mapping[str, object]]:
    """What simulated load jumps lose beside a perfect decider, and their moves."""
    for variant in chosen:
        with variant.applied():
            found = [
                jumps.run(jump(seed, spread_s), phase_s=random.Random(seed).uniform(0.0, 0.1))
                for spread_s in (0.0, 0.05, 0.2)
                for seed in range(seeds)
                for jump in (jumps.made, jumps.made_like_trial)
            ]
        more = [one.loss_ratio - one.perfect_ratio for one in found]
        yield {
            "variant": variant.name,
            "median_more_ratio": round(statistics.median(more), 6),
            "mean_more_ratio": round(statistics.fmean(more), 6),
            "worst_more_ratio": round(max(more), 6),
            "above_90": sum(bool(one.above) for one in found),
            "most_rounds": max(len(one.rounds) for one in found),
            "moves": sum(one.moves for one in found),
        }


def varied(trace: HostTrace, seed: int) -> HostTrace:
    """The trace with each rate changed a little; with seed 0, as it is."""
    if not seed:
        return trace
    rng = random.Random(seed)

    def other(bps: float) -> float:
        return round(bps * rng.uniform(1.0 - VARIED_RATIO, 1.0 + VARIED_RATIO))

    samples = {
        start_s: {port: (other(tx_bps), other(rx_bps)) for port, (tx_bps, rx_bps) in loads.items()}
        for start_s, loads in trace.samples.items()
    }
    return replace(trace, samples=samples)


def replayed(
    chosen: Sequence[Variant], trace: Path, hosts: Sequence[str], seeds: Sequence[int]
) -> Iterator[Mapping[str, object]]:
    """Each variant, with each seed: the sum over these hosts, or over all."""
    traces = [host for host in read(trace) if not hosts or host.name in hosts]
    for seed in seeds:
        for variant in chosen:
            with variant.applied():
                first, *others = (
                    Host(varied(one, seed), "adaptive", Options()).replay() for one in traces
                )
            for figures in others:
                first.add_figures(figures)
            yield {"variant": variant.name, "seed": seed, **first.as_json()}


def main() -> None:
    parser = argparse.ArgumentParser(description="take parts of the planner out, one at a time")
    parser.add_argument("--instances", type=int, default=0)
    parser.add_argument("--optima", type=Path, default=Path("/tmp/optima.json"))
    parser.add_argument("--nodes", type=int, default=150, help="at which the solver stops, each")
    parser.add_argument("--jumps", type=int, default=0, help="load jumps of each kind")
    parser.add_argument("--replay", type=Path, help="recorded traffic")
    parser.add_argument("--hosts", nargs="*", default=[], help="to replay; all, if none is named")
    parser.add_argument("--vary", nargs="*", type=int, default=[0], help="seeds; 0: as recorded")
    parser.add_argument("--only", nargs="*", default=[], help="parts of variants' names")
    args = parser.parse_args()
    chosen = variants(args.only)
    found: list[Iterator[Mapping[str, object]]] = []
    if args.instances:
        found.append(quality(chosen, optima(args.instances, args.optima, args.nodes)))
    if args.jumps:
        found.append(jumped(chosen, args.jumps))
    if args.replay:
        found.append(replayed(chosen, args.replay, args.hosts, args.vary))
    for lines in found:
        for line in lines:
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
