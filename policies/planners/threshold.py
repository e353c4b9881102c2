"""`load-based`, VMware's Load-Based Teaming: relieves an uplink above the threshold.

The rules are those of vSphere 4.1's "Route based on physical NIC load". The utilization is the mean
over the window, in the busier direction. One unit moves at a time, to an uplink that it does not
saturate: the busiest unit that has such an uplink.
"""

from __future__ import annotations

from operator import attrgetter

from policies import failover, rules
from policies.model import IDLE, Load, Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.verdicts import Rest, Standing, Verdict, WhyAtRest

# A move does not help if the unit uses less than this share of its uplink, or if the fuller of the
# two uplinks is relieved by less than this share. Such moves would be repeated in each window.
LEAST_SHARE_RATIO = 0.01

# A switch counts flows late, so a unit's load over a short window may be this share too low. The
# counters of uplinks are not late, so they include load that no unit accounts for.
COUNTED_LATE_RATIO = 0.25

_DIRECTIONS = attrgetter("tx_bps"), attrgetter("rx_bps")
# Units that move together: one unit, or all members of an affinity set on one uplink.
Group = tuple[Unit, ...]


def relieve_saturated(snapshot: Snapshot) -> Plan:
    """Return at most one move, from the most utilized uplink that a move can relieve.

    A unit that is, or may be, too big for any uplink stays: moving it would only move the
    saturation. Units that a rule keeps together move together and count as one.
    """
    saturated = [u for u in snapshot.uplinks if _is_saturated(u, snapshot)]
    unrelieved: list[str] = []
    for uplink in sorted(saturated, key=lambda u: (-u.utilization_ratio, u.name)):
        if moves := _relief(uplink, snapshot):
            return Plan(moves=moves, unrelieved=tuple(unrelieved))
        unrelieved.append(uplink.name)
    return Plan(unrelieved=tuple(unrelieved))


def verdict(snapshot: Snapshot, unit: str) -> Verdict:
    """Return why `relieve_saturated` does or does not move a unit of the snapshot."""
    asked = next(u for u in snapshot.units if u.name == unit)
    uplink = next((u for u in snapshot.uplinks if u.name == asked.uplink), None)
    if not asked.movable:
        return Verdict(Standing.HELD)
    if uplink is None or not uplink.usable:
        return Verdict(Standing.OUT_OF_SERVICE)
    group = _together(asked, snapshot)
    expected_ratio = {u.name: _after(u, group) for u in _able(group, uplink, snapshot)}
    if not _is_saturated(uplink, snapshot):
        return Verdict(Standing.BELOW, None, expected_ratio)
    if group not in _busiest_first(uplink, snapshot):
        return Verdict(Standing.TOO_SMALL, None, expected_ratio)
    late = _late(group, _unaccounted(uplink, snapshot))
    if _best_target(group, late, uplink, snapshot) is None:
        most_ratio = {u.name: _after(u, group, late) for u in _able(group, uplink, snapshot)}
        return Verdict(Standing.NO_ROOM, None, most_ratio)
    moves = {move.unit: move for move in relieve_saturated(snapshot).moves}
    if unit in moves:
        return Verdict(Standing.MOVES, moves[unit], expected_ratio)
    return Verdict(Standing.LATER, next(iter(moves.values())), expected_ratio)


def rest(snapshot: Snapshot) -> Rest:
    """Return the reason why no unit moves. Call this function only if no unit moves."""
    usable = [u for u in snapshot.uplinks if u.usable]
    fullest = max(usable, key=lambda u: (u.utilization_ratio, u.name), default=None)
    unrelieved = relieve_saturated(snapshot).unrelieved
    why = WhyAtRest.UNRELIEVED if unrelieved else WhyAtRest.BELOW
    return Rest(why, fullest.name if fullest else None, unrelieved=unrelieved)


def is_calm(snapshot: Snapshot) -> bool:
    """Whether uplink loads alone rule out moves. If several sets of loads do, so does their mean."""
    return not any(_is_saturated(uplink, snapshot) for uplink in snapshot.uplinks)


def _is_saturated(uplink: Uplink, snapshot: Snapshot) -> bool:
    return uplink.usable and uplink.utilization_ratio > snapshot.threshold_ratio


def _relief(uplink: Uplink, snapshot: Snapshot) -> tuple[Move, ...]:
    """Return the moves of the busiest group that fits on another uplink, to the best one."""
    unaccounted = _unaccounted(uplink, snapshot)
    for group in _busiest_first(uplink, snapshot):
        if target := _best_target(group, _late(group, unaccounted), uplink, snapshot):
            return tuple(
                Move(unit.name, uplink.name, target.name, Reason.THRESHOLD) for unit in group
            )
    return ()


def _best_target(group: Group, late: Load, uplink: Uplink, snapshot: Snapshot) -> Uplink | None:
    """Return the uplink within the threshold that is emptiest after the units are added, if any."""
    able = _able(group, uplink, snapshot)
    fitting = [
        u
        for u in able
        if _after(u, group) <= snapshot.threshold_ratio
        and u.has_room_for(group)
        and _after(u, group, late) + LEAST_SHARE_RATIO <= uplink.utilization_ratio
    ]
    return min(fitting, key=lambda u: (_after(u, group), u.name), default=None)


def _late(group: Group, unaccounted: Load) -> Load:
    """Return the load that units may carry beyond their counted load."""
    tx_bps, rx_bps = (COUNTED_LATE_RATIO * bps(_load(group)) for bps in _DIRECTIONS)
    return Load(min(unaccounted.tx_bps, tx_bps), min(unaccounted.rx_bps, rx_bps))


def _unaccounted(uplink: Uplink, snapshot: Snapshot) -> Load:
    """Return the load of an uplink that none of the policy's units accounts for."""
    counted = sum((u.load for u in snapshot.units if u.uplink == uplink.name), IDLE)
    return IDLE.larger(uplink.load - counted)


def _able(group: Group, uplink: Uplink, snapshot: Snapshot) -> list[Uplink]:
    """Return the other uplinks in service that rules allow for the units."""
    others = [u for u in failover.in_service(snapshot.uplinks) if u is not uplink]
    members = snapshot.in_sets
    return [u for u in others if all(rules.permits(unit, u.name, members, group) for unit in group)]


def _busiest_first(uplink: Uplink, snapshot: Snapshot) -> list[Group]:
    """Return movable groups that load a saturated direction of the uplink, the busiest first."""
    units = [u for u in snapshot.units if u.uplink == uplink.name and u.movable]
    groups = dict.fromkeys(_together(unit, snapshot) for unit in units)
    busiest: list[Group] = []
    for bps in sorted(_DIRECTIONS, key=lambda bps: -bps(uplink.load)):
        if bps(uplink.load) > snapshot.threshold_ratio * uplink.capacity_bps:
            least_bps = LEAST_SHARE_RATIO * uplink.capacity_bps
            loading = [g for g in groups if bps(_load(g)) >= least_bps and g not in busiest]
            busiest += sorted(loading, key=lambda g: (-bps(_load(g)), g[0].name))
    return busiest


def _together(unit: Unit, snapshot: Snapshot) -> Group:
    """Return a unit's affinity set on its uplink; only the unit itself if a member cannot move."""
    if unit.rules.affinity is None:
        return (unit,)
    movable = {u.name: u for u in snapshot.units if u.movable}
    names = [
        u.name
        for u in snapshot.in_sets
        if (u.rules.affinity, u.uplink) == (unit.rules.affinity, unit.uplink)
    ]
    if not all(name in movable for name in names):
        return (unit,)
    return tuple(movable[name] for name in sorted(names))


def _load(group: Group) -> Load:
    return sum((unit.load for unit in group), IDLE)


def _after(uplink: Uplink, group: Group, more: Load = IDLE) -> float:
    """Return the utilization of `uplink` with the units, in its busier direction."""
    total = sum((unit.load for unit in group), uplink.load + more)
    return total.utilization_ratio(uplink.capacity_bps)
