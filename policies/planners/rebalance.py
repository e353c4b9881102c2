"""`slb`, `dynamic`, `set`: moves small units from the fullest uplink to the emptiest.

This is the method of Open vSwitch's balance-slb (`bond_rebalance` in ofproto/bond.c), but with
shares of capacity instead of bytes. Received traffic is not considered, because a hash of sent
frames does not steer it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from policies import failover, rules
from policies.model import Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.outcome import team_after
from policies.verdicts import Rest, WhyAtRest

# Below this difference between the fullest and the emptiest uplink, as shares of capacity, nothing
# moves: noise is not worth reordering packets.
LEAST_DIFFERENCE_RATIO = 0.03
# All moves between two uplinks together must reach this part of the gain of an ideal division of
# their load. With equal uplinks that is a tenth of their difference, as in balance-slb. If the
# difference itself were the measure, a slow uplink would stay idle next to a fast one. If each move
# were measured separately, a load of many small units would not be moved.
LEAST_GAIN_OF_IDEAL_RATIO = 0.2


def even_out(snapshot: Snapshot) -> Plan:
    """Return greedily chosen moves. Each leaves the fuller of its two uplinks as empty as possible.

    No unit moves twice in one plan. Every move lowers the higher utilization of its two uplinks, so
    the same loads cause no further moves.
    """
    moves: list[Move] = []
    while made := _between_extremes(snapshot, {move.unit for move in moves}):
        moves += made
        snapshot = team_after(snapshot, made)
    return Plan(moves=tuple(moves))


def rest(snapshot: Snapshot) -> Rest:
    """Return the reason why no unit moves. Call this function only if no unit moves."""
    uplinks = failover.in_service(snapshot.uplinks)
    if len(uplinks) < 2:
        return Rest(WhyAtRest.ALONE)
    emptiest, fullest = _extremes(uplinks)
    why = WhyAtRest.EVEN if is_calm(snapshot) else WhyAtRest.NO_GAIN
    return Rest(why, fullest.name, emptiest.name)


def is_calm(snapshot: Snapshot) -> bool:
    """Whether uplink loads alone rule out moves. If several sets of loads do, so does their mean."""
    ratios = [_sent_ratio(uplink) for uplink in failover.in_service(snapshot.uplinks)]
    return len(ratios) < 2 or max(ratios) - min(ratios) < LEAST_DIFFERENCE_RATIO


def _sent_ratio(uplink: Uplink) -> float:
    return uplink.load.tx_bps / uplink.capacity_bps


def _extremes(uplinks: Iterable[Uplink]) -> tuple[Uplink, Uplink]:
    """Return the emptiest and the fullest uplink for sending."""
    by_ratio = sorted(uplinks, key=lambda u: (_sent_ratio(u), u.name))
    return by_ratio[0], by_ratio[-1]


def _between_extremes(snapshot: Snapshot, moved: Collection[str]) -> list[Move]:
    """Return the moves from the fullest to the emptiest uplink; empty if they gain too little.

    `moved`: the units that do not move again.
    """
    uplinks = failover.in_service(snapshot.uplinks)
    if len(uplinks) < 2:
        return []
    emptiest, fullest = _extremes(uplinks)
    # A unit that sends nothing makes no uplink emptier.
    there = [u for u in snapshot.units if u.uplink == fullest.name and u.load.tx_bps and u.movable]
    candidates = [unit for unit in there if unit.name not in moved]
    members = {unit.name: unit for unit in snapshot.in_sets}

    def permitted() -> list[Unit]:
        to = emptiest.name
        return [u for u in candidates if rules.permits(u, to, members.values())]

    left, right = fullest, emptiest
    moves = []
    while unit := _best_unit(left, right, permitted()):
        moves.append(Move(unit.name, fullest.name, emptiest.name, Reason.REBALANCE))
        assert unit.movable, "no unit that is pinned or excluded moves"
        candidates.remove(unit)
        if unit.name in members:
            members[unit.name] = replace(unit, uplink=emptiest.name)
        left = left.carrying(left.load - unit.load)
        right = right.carrying(right.load + unit.load)
    before_ratio, after_ratio = _sent_ratio(fullest), max(_sent_ratio(left), _sent_ratio(right))
    total_bps = fullest.load.tx_bps + emptiest.load.tx_bps
    ideal_ratio = total_bps / (fullest.capacity_bps + emptiest.capacity_bps)
    gains = before_ratio - after_ratio >= LEAST_GAIN_OF_IDEAL_RATIO * (before_ratio - ideal_ratio)
    return moves if gains else []


def _best_unit(fuller: Uplink, emptier: Uplink, units: list[Unit]) -> Unit | None:
    """Return the unit whose move leaves the fuller uplink emptiest; None if no move relieves it."""
    fuller_ratio, emptier_ratio = _sent_ratio(fuller), _sent_ratio(emptier)
    if fuller_ratio - emptier_ratio < LEAST_DIFFERENCE_RATIO:
        return None

    def after_ratio(unit: Unit) -> float:
        left = fuller_ratio - unit.load.tx_bps / fuller.capacity_bps
        right = emptier_ratio + unit.load.tx_bps / emptier.capacity_bps
        return max(left, right)

    best = min(units, key=lambda u: (after_ratio(u), u.name), default=None)
    return best if best is not None and after_ratio(best) < fuller_ratio else None
