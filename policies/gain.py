"""Checks whether moves of a policy that acts immediately (`adaptive`) gain enough to be made.

Callers check the peaks of loads and the current loads. A placement that is good at the peaks of all
units is also good between the peaks. A move that would help only at the peaks may be too late.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from policies import failover, optimum
from policies.model import IDLE, Load, Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.outcome import after, sent, with_loads

# The moves of a decision must lower the worst utilization by this share of it. Peaks of a noisy
# load vary by some percent.
LEAST_GAIN_OF_WORST_RATIO = 0.1
# From this utilization on, an uplink is nearly full, and a smaller share is enough.
NEARLY_FULL_RATIO = 0.75
LEAST_GAIN_OF_NEARLY_FULL_RATIO = 0.05
# While no uplink is nearly full, each address that moves must gain this share of capacity. Upstream
# switches have to learn the address again, and it cannot move again for some time.
LEAST_GAIN_PER_ADDRESS_RATIO = 0.01
# Planners make no plan that lowers the worst utilization by a smaller share of capacity, because a
# smaller gain is noise.
LEAST_GAIN_OF_CAPACITY_RATIO = 0.02
# Above this utilization the next burst fills the uplink, and a VM port may have to be split.
HIGH_RATIO = 0.9
# Repeated peaks of the same load differ by this share.
WANDERS_RATIO = 0.02
# The most addresses that move together: upstream switches must learn each. Others move later.
MOST_AT_ONCE = 32


def worthwhile(
    plan: Plan, snapshot: Snapshot, each_ratio: float = LEAST_GAIN_PER_ADDRESS_RATIO
) -> Plan:
    """Return the plan with only the moves to make now.

    This is the first worthwhile set of the following ones: the moves of the `MOST_AT_ONCE`
    largest units, of the larger half of these units, of the largest quarter and so on, or of
    buckets alone. Merges gain nothing and are always made. `each_ratio`: the share of capacity that
    each address must gain while no uplink is nearly full; 0: do not try halves or quarters.
    """
    if not plan.moves:
        return plan
    merged = tuple(move for move in plan.moves if move.reason is Reason.MERGE)
    others = [move for move in plan.moves if move.reason is not Reason.MERGE]
    buckets = {unit.name for unit in snapshot.units if unit.is_bucket}
    made = _largest(others, snapshot.units, MOST_AT_ONCE)
    in_buckets = tuple(move for move in made if move.unit in buckets)
    addresses = len(made) - len(in_buckets)
    halvings = range(1, addresses.bit_length()) if each_ratio else ()
    fewer = (_largest(others, snapshot.units, addresses >> times) for times in halvings)
    for moves in (made, *fewer, in_buckets):
        if _gains(moves, snapshot, each_ratio):
            return replace(plan, moves=(*moves, *merged))
    return replace(plan, moves=merged)


def _largest(planned: Iterable[Move], units: Iterable[Unit], most: int) -> tuple[Move, ...]:
    """Return the moves of at most `most` units, largest first. An affinity set moves as a whole.

    Buckets are not addresses, so all their moves are included.
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
    """Whether moves that gain now do no harm if an earlier phase repeats.

    In no phase do such moves make an uplink fuller than the higher of two limits: the fullest
    uplink in that phase, and the utilization that the moves must reach now. So moves do not
    alternate between two phases forever. `phases`: the loads of units in each phase, by name.
    """
    limit_ratio = worst_ratio(snapshot.uplinks) * (1.0 - LEAST_GAIN_OF_NEARLY_FULL_RATIO)
    moving = {move.unit for move in moves}
    for phase in phases:
        uplinks = with_loads(snapshot.uplinks, snapshot.units, phase)
        loads = {name: phase.get(name, IDLE) for name in moving}
        most_ratio = max(limit_ratio, worst_ratio(uplinks))
        if worst_ratio(after(uplinks, moves, loads)) > most_ratio:
            return False
    return True


def keeps_worst(moves: Sequence[Move], snapshot: Snapshot) -> bool:
    """Whether moves leave the worst utilization about the same, or lower it."""
    loads = {unit.name: unit.load for unit in snapshot.units}
    left_ratio = worst_ratio(after(snapshot.uplinks, moves, loads))
    return left_ratio <= worst_ratio(snapshot.uplinks) * (1.0 + WANDERS_RATIO)


def is_possible(snapshot: Snapshot) -> bool:
    """Whether any plan could be worthwhile. If not, there is no need to compute one.

    True if VM ports are or may have to be split, because no bound is known for split VM ports.
    """
    if _may_resplit(snapshot):
        return True
    if _all_are_small(snapshot):
        return False
    found_ratio = worst_ratio(snapshot.uplinks)
    # A gain is a difference of two sums, which may be off by rounding.
    least_gain_ratio = 0.999 * LEAST_GAIN_OF_CAPACITY_RATIO
    most_ratio = min(_enough_ratio(found_ratio), found_ratio - least_gain_ratio)
    return optimum.least_worst_ratio(snapshot.uplinks, snapshot.units) <= most_ratio


def may_help_now(latest: Snapshot, peaks: Snapshot) -> bool:
    """Whether any plan for `peaks` could also be worthwhile for the current loads (`latest`).

    If not, no plan is worthwhile while loads stay the same, even if peaks fall or cooldowns end.
    """
    if _may_resplit(latest) or (peaks is not latest and _may_resplit(peaks)):
        return True
    most_ratio = _enough_ratio(worst_ratio(latest.uplinks))
    # Moves and the bound add up the same loads in another order, so either may be off by rounding.
    least_ratio = 0.999 * optimum.least_worst_ratio(latest.uplinks, latest.units)
    return least_ratio <= most_ratio


def _may_resplit(snapshot: Snapshot) -> bool:
    """Whether VM ports are split, or may have to be."""
    serving = failover.in_service(snapshot.uplinks)
    high = any(u.load.tx_bps > HIGH_RATIO * u.capacity_bps for u in serving)
    return any(u.spread or (high and u.divisible) for u in snapshot.units)


def _all_are_small(snapshot: Snapshot) -> bool:
    """Whether no address can gain the share that each must gain, as on a nearly idle host.

    A move relieves the fullest uplink by at most the load of the unit. So only a unit with this
    share of its capacity can gain the share.
    """
    serving = failover.in_service(snapshot.uplinks)
    most_ratio = max((uplink.utilization_ratio for uplink in serving), default=math.inf)
    if most_ratio >= NEARLY_FULL_RATIO or any(u.is_bucket for u in snapshot.units):
        return False
    fullest = {
        uplink.name: uplink.capacity_bps
        for uplink in serving
        if uplink.utilization_ratio >= most_ratio
    }
    there = (
        unit.load.utilization_ratio(fullest[unit.uplink])
        for unit in snapshot.units
        if unit.load is not IDLE and unit.uplink in fullest
    )
    # A gain is a difference of two sums, which may be off by rounding.
    return max(there, default=0.0) < LEAST_GAIN_PER_ADDRESS_RATIO * 0.999


def _gains(made: tuple[Move, ...], snapshot: Snapshot, each_ratio: float) -> bool:
    """Whether the moves gain enough. For buckets and splits, only sent traffic counts."""
    if not made:
        return False
    units = {unit.name: unit for unit in snapshot.units}
    moved = sum(not (move.is_resplit or units[move.unit].is_bucket) for move in made)
    uplinks = snapshot.uplinks if moved else sent(snapshot.uplinks)
    loads = {name: unit.load for name, unit in units.items()}
    found_ratio, left_ratio = worst_ratio(uplinks), worst_ratio(after(uplinks, made, loads))
    if left_ratio > _enough_ratio(found_ratio):
        return False
    return found_ratio >= NEARLY_FULL_RATIO or found_ratio - left_ratio >= each_ratio * moved


def _enough_ratio(found_ratio: float) -> float:
    """Return the worst utilization that worthwhile moves must reach, or stay below."""
    if found_ratio >= NEARLY_FULL_RATIO:
        return found_ratio * (1.0 - LEAST_GAIN_OF_NEARLY_FULL_RATIO)
    return found_ratio * (1.0 - LEAST_GAIN_OF_WORST_RATIO)


def worst_ratio(uplinks: Iterable[Uplink]) -> float:
    """Return the highest utilization of the uplinks in service."""
    serving = failover.in_service(tuple(uplinks))
    return max((uplink.utilization_ratio for uplink in serving), default=0.0)
