"""Evens out what uplinks send by moving small units from the fullest to the emptiest.

The way of Open vSwitch's balance-slb (`bond_rebalance` in ofproto/bond.c), but for shares
of capacity instead of bytes. What comes in is not looked at: a hash of what is sent does
not steer it.
"""

from __future__ import annotations

from policies import failover
from policies.model import Load, Move, Plan, Reason, Snapshot, Unit, Uplink

# Below that difference between the fullest and the emptiest uplink, as shares of capacity,
# nothing moves: noise is not worth reordering anybody's packets.
LEAST_DIFFERENCE_RATIO = 0.03
# A move must bring this much of what an ideal division between the two uplinks would bring.
# With equal uplinks it is a tenth of their difference, as balance-slb asks for; measured by
# that, a slow uplink would stay idle beside a fast one.
LEAST_GAIN_RATIO = 0.2


def even_out(snapshot: Snapshot) -> Plan:
    """The moves, greedily: each the one that leaves the fuller of the two emptiest.

    No unit moves twice in one plan, and every move lowers the higher utilization of its two
    uplinks, so that the same loads give no further moves.
    """
    uplinks = failover.in_service(snapshot.uplinks)
    sent_bps = {uplink.name: uplink.load.tx_bps for uplink in uplinks}
    units = [u for u in snapshot.units if u.movable and u.uplink in sent_bps]
    moves: list[Move] = []
    while move := _best_move(uplinks, units, sent_bps):
        moves.append(move)
        unit = next(u for u in units if u.name == move.unit)
        units.remove(unit)
        sent_bps[move.source] -= unit.load.tx_bps
        sent_bps[move.target] += unit.load.tx_bps
    return Plan(moves=tuple(moves))


def _best_move(uplinks: list[Uplink], units: list[Unit], sent_bps: dict[str, float]) -> Move | None:
    if len(uplinks) < 2:
        return None

    def ratio(uplink: Uplink) -> float:
        return Load(tx_bps=sent_bps[uplink.name]).utilization_ratio(uplink.capacity_bps)

    by_ratio = sorted(uplinks, key=lambda u: (ratio(u), u.name))
    emptiest, fullest = by_ratio[0], by_ratio[-1]
    if ratio(fullest) - ratio(emptiest) < LEAST_DIFFERENCE_RATIO:
        return None

    def fuller_after(unit: Unit) -> float:
        left = ratio(fullest) - unit.load.tx_bps / fullest.capacity_bps
        right = ratio(emptiest) + unit.load.tx_bps / emptiest.capacity_bps
        return max(left, right)

    candidates = [
        u
        for u in units
        if u.uplink == fullest.name and (u.allowed is None or emptiest.name in u.allowed)
    ]
    best = min(candidates, key=lambda u: (fuller_after(u), u.name), default=None)
    total_bps = sent_bps[fullest.name] + sent_bps[emptiest.name]
    ideal_ratio = total_bps / (fullest.capacity_bps + emptiest.capacity_bps)
    least_gain_ratio = LEAST_GAIN_RATIO * (ratio(fullest) - ideal_ratio)
    if best is None or fuller_after(best) > ratio(fullest) - least_gain_ratio:
        return None
    return Move(best.name, fullest.name, emptiest.name, Reason.REBALANCE)
