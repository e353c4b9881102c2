"""Whether moves are worth making: by what they gain, at the peaks and at this moment.

A placement that is good at the peaks of all units is good for the time between them, too; and what
would help at the peaks but not now, may have passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from policies import failover, optimum
from policies.model import IDLE, Load, Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.outcome import after, sent, with_loads

# Of the worst utilization: what a round must bring. Peaks of a noisy load wander by some percent.
LEAST_GAIN_RATIO = 0.1
# An uplink that is nearly full is relieved for less.
NEARLY_FULL_RATIO = 0.75
LEAST_GAIN_FULL_RATIO = 0.05
# Of capacity: what each address has to bring that moves while no uplink is nearly full. Switches
# upstream learn it anew, and it is not moved again for some time, whatever comes then.
PRICE_RATIO = 0.01
# Above that uplinks fill up with the next burst, and a VM port may have to be divided.
HIGH_RATIO = 0.9
# By so much peaks of loads that are the same differ.
WANDERS_RATIO = 0.02
# More moves at once have switches upstream learn too much; the rest follows.
MOST_AT_ONCE = 32


def chosen(plan: Plan, snapshot: Snapshot, price_ratio: float = PRICE_RATIO) -> Plan:
    """A plan with the moves to make now: all, those of the largest units if many, or none.

    Those of buckets alone, where the others are not worth it. What is made whole again gains
    nothing by that, and is made whole. `price_ratio`: what each address has to bring that moves
    while no uplink is nearly full; where all do not, those of fewer units may.
    """
    if not plan.moves:
        return plan
    merged = tuple(move for move in plan.moves if move.reason is Reason.MERGE)
    others = [move for move in plan.moves if move.reason is not Reason.MERGE]
    buckets = {unit.name for unit in snapshot.units if unit.is_bucket}
    made = _largest(others, snapshot.units, MOST_AT_ONCE)
    in_buckets = tuple(move for move in made if move.unit in buckets)
    sizes = _halves(len(made) - len(in_buckets)) if price_ratio else ()
    fewer = (_largest(others, snapshot.units, most) for most in sizes)
    for moves in (made, *fewer, in_buckets):
        if _gains(moves, snapshot, price_ratio):
            return replace(plan, moves=(*moves, *merged))
    return replace(plan, moves=merged)


def _halves(number: int) -> Iterator[int]:
    """Half of it, half of that, and so on down to one."""
    while number > 1:
        yield (number := number // 2)


def _largest(planned: Iterable[Move], units: Iterable[Unit], most: int) -> tuple[Move, ...]:
    """The moves of so many of the largest units; a set goes as a whole.

    Buckets are no addresses: all of them may.
    """
    by_name = {unit.name: unit for unit in units}
    buckets: list[Move] = []
    together: dict[str, list[Move]] = {}
    for move in planned:
        if by_name[move.unit].is_bucket:
            buckets.append(move)
        else:
            together.setdefault(by_name[move.unit].rules.affinity or move.unit, []).append(move)

    def size_bps(group: Iterable[Move]) -> float:
        loads = [by_name[move.unit].load for move in group]
        return max(max(load.tx_bps, load.rx_bps) for load in loads)

    made: list[Move] = []
    for _, group in sorted(together.items(), key=lambda item: (-size_bps(item[1]), item[0])):
        if made and len(made) + len(group) > most:
            break
        made += group
    return (*made, *buckets)


def harms_no_phase(
    moves: Sequence[Move], snapshot: Snapshot, phases: Iterable[Mapping[str, Load]]
) -> bool:
    """Whether moves that gain now cost nothing when units carry what they did before.

    In no phase an uplink gets fuller than the fullest one is in that phase, or is to be now: so
    moves to and fro between two phases come to an end. `phases`: what units carried, by name.
    """
    limit_ratio = worst_ratio(snapshot.uplinks) * (1.0 - LEAST_GAIN_FULL_RATIO)
    moving = {move.unit for move in moves}
    for phase in phases:
        uplinks = with_loads(snapshot.uplinks, snapshot.units, phase)
        loads = {name: phase.get(name, IDLE) for name in moving}
        most_ratio = max(limit_ratio, worst_ratio(uplinks))
        if worst_ratio(after(uplinks, moves, loads)) > most_ratio:
            return False
    return True


def stays(moves: Sequence[Move], snapshot: Snapshot) -> bool:
    """Whether moves leave the worst utilization about as it is, or better."""
    loads = {unit.name: unit.load for unit in snapshot.units}
    left_ratio = worst_ratio(after(snapshot.uplinks, moves, loads))
    return left_ratio <= worst_ratio(snapshot.uplinks) * (1.0 + WANDERS_RATIO)


def may_be(snapshot: Snapshot) -> bool:
    """Whether any plan could be worth it; if not, nobody needs to make one.

    Bounds are for units as they are, so not where VM ports are divided, or may have to be.
    """
    serving = failover.in_service(snapshot.uplinks)
    high = any(u.load.tx_bps > HIGH_RATIO * u.capacity_bps for u in serving)
    if any(u.spread or (high and u.divisible) for u in snapshot.units):
        return True
    least_ratio = optimum.least_worst_ratio(snapshot.uplinks, snapshot.units)
    return least_ratio <= _enough_ratio(snapshot)


def _gains(made: tuple[Move, ...], snapshot: Snapshot, price_ratio: float) -> bool:
    """Of buckets and splits, what is sent decides: they change nothing else."""
    if not made:
        return False
    units = {unit.name: unit for unit in snapshot.units}
    sending = all(move.is_resplit or units[move.unit].is_bucket for move in made)
    if sending:
        snapshot = replace(snapshot, uplinks=sent(snapshot.uplinks))
    loads = {name: unit.load for name, unit in units.items()}
    found_ratio, left_ratio = (
        worst_ratio(uplinks) for uplinks in (snapshot.uplinks, after(snapshot.uplinks, made, loads))
    )
    if left_ratio > _enough_ratio(snapshot):
        return False
    moved = sum(not (move.is_resplit or units[move.unit].is_bucket) for move in made)
    return found_ratio >= NEARLY_FULL_RATIO or found_ratio - left_ratio >= price_ratio * moved


def _enough_ratio(snapshot: Snapshot) -> float:
    """The worst utilization that is worth moves."""
    found_ratio = worst_ratio(snapshot.uplinks)
    full = found_ratio >= NEARLY_FULL_RATIO
    return found_ratio * (1.0 - (LEAST_GAIN_FULL_RATIO if full else LEAST_GAIN_RATIO))


def worst_ratio(uplinks: Iterable[Uplink]) -> float:
    """Of the uplinks in service, the highest utilization."""
    serving = failover.in_service(tuple(uplinks))
    return max((uplink.utilization_ratio for uplink in serving), default=0.0)
