"""Evens out what uplinks send by moving small units from the fullest to the emptiest.

The way of Open vSwitch's balance-slb (`bond_rebalance` in ofproto/bond.c), but for shares
of capacity instead of bytes. What comes in is not looked at: a hash of what is sent does
not steer it.
"""

from __future__ import annotations

from dataclasses import replace

from policies import failover
from policies.model import Load, Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.verdicts import Rest, Resting

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


def rest(snapshot: Snapshot) -> Rest:
    """Why nothing is moved, where nothing is."""
    uplinks = failover.in_service(snapshot.uplinks)
    if len(uplinks) < 2:
        return Rest(Resting.ALONE)
    emptiest, fullest = _extremes(uplinks, {u.name: u.load.tx_bps for u in uplinks})
    even = _sent_ratio(fullest) - _sent_ratio(emptiest) < LEAST_DIFFERENCE_RATIO
    return Rest(Resting.EVEN if even else Resting.NO_GAIN, fullest.name, emptiest.name)


def _sent_ratio(uplink: Uplink) -> float:
    return uplink.load.tx_bps / uplink.capacity_bps


def _extremes(uplinks: list[Uplink], sent_bps: dict[str, float]) -> tuple[Uplink, Uplink]:
    """The emptiest and the fullest uplink, with what they send."""
    sending = [replace(u, load=Load(tx_bps=sent_bps[u.name])) for u in uplinks]
    by_ratio = sorted(sending, key=lambda u: (_sent_ratio(u), u.name))
    return by_ratio[0], by_ratio[-1]


def _best_move(uplinks: list[Uplink], units: list[Unit], sent_bps: dict[str, float]) -> Move | None:
    if len(uplinks) < 2:
        return None
    emptiest, fullest = _extremes(uplinks, sent_bps)
    fullest_ratio, emptiest_ratio = _sent_ratio(fullest), _sent_ratio(emptiest)
    if fullest_ratio - emptiest_ratio < LEAST_DIFFERENCE_RATIO:
        return None

    def fuller_after(unit: Unit) -> float:
        left = fullest_ratio - unit.load.tx_bps / fullest.capacity_bps
        right = emptiest_ratio + unit.load.tx_bps / emptiest.capacity_bps
        return max(left, right)

    candidates = [
        u
        for u in units
        if u.uplink == fullest.name and (u.allowed is None or emptiest.name in u.allowed)
    ]
    best = min(candidates, key=lambda u: (fuller_after(u), u.name), default=None)
    total_bps = sent_bps[fullest.name] + sent_bps[emptiest.name]
    ideal_ratio = total_bps / (fullest.capacity_bps + emptiest.capacity_bps)
    least_gain_ratio = LEAST_GAIN_RATIO * (fullest_ratio - ideal_ratio)
    if best is None or fuller_after(best) > fullest_ratio - least_gain_ratio:
        return None
    return Move(best.name, fullest.name, emptiest.name, Reason.REBALANCE)
