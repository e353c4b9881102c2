"""VMware's Load-Based Teaming: relieve an uplink whose mean load passes a threshold.

The rules are those of vSphere 4.1's "Route based on physical NIC load": the mean send or
receive utilization over the window counts, one unit moves at a time, it is the busiest
that fits, and it goes where it makes no new saturation.
"""

from __future__ import annotations

from policies import failover, rules
from policies.model import Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.verdicts import Rest, Resting, Standing, Verdict

# A unit with less of its uplink than this relieves nothing; moving it would be in vain,
# again with each window.
LEAST_SHARE_RATIO = 0.01


def relieve_saturated(snapshot: Snapshot) -> Plan:
    """At most one move, from the most utilized uplink that a move can relieve.

    A unit too big for any uplink is left alone: moving it would move the saturation.
    """
    saturated = [u for u in snapshot.uplinks if _is_saturated(u, snapshot)]
    unrelieved: list[str] = []
    for uplink in sorted(saturated, key=lambda u: (-u.utilization_ratio, u.name)):
        if move := _relief(uplink, snapshot):
            return Plan(moves=(move,), unrelieved=tuple(unrelieved))
        unrelieved.append(uplink.name)
    return Plan(unrelieved=tuple(unrelieved))


def verdict(snapshot: Snapshot, unit: str) -> Verdict:
    """What stands against moving a unit of the snapshot."""
    asked = next(u for u in snapshot.units if u.name == unit)
    uplink = next((u for u in snapshot.uplinks if u.name == asked.uplink), None)
    if not asked.movable:
        return Verdict(Standing.HELD)
    if uplink is None or not uplink.usable:
        return Verdict(Standing.OUT_OF_SERVICE)
    expected_ratio = {u.name: _after(u, asked) for u in _able(asked, uplink, snapshot)}
    if not _is_saturated(uplink, snapshot):
        return Verdict(Standing.BELOW, None, expected_ratio)
    if asked not in _busiest_first(uplink, snapshot):
        return Verdict(Standing.TOO_SMALL, None, expected_ratio)
    if _best_target(asked, uplink, snapshot) is None:
        return Verdict(Standing.NO_ROOM, None, expected_ratio)
    (move,) = relieve_saturated(snapshot).moves
    standing = Standing.MOVES if move.unit == unit else Standing.LATER
    return Verdict(standing, move, expected_ratio)


def rest(snapshot: Snapshot) -> Rest:
    """Why nothing is moved, where nothing is."""
    usable = [u for u in snapshot.uplinks if u.usable]
    fullest = max(usable, key=lambda u: (u.utilization_ratio, u.name), default=None)
    unrelieved = relieve_saturated(snapshot).unrelieved
    resting = Resting.UNRELIEVED if unrelieved else Resting.BELOW
    return Rest(resting, fullest.name if fullest else None, unrelieved=unrelieved)


def _is_saturated(uplink: Uplink, snapshot: Snapshot) -> bool:
    return uplink.usable and uplink.utilization_ratio > snapshot.threshold_ratio


def _relief(uplink: Uplink, snapshot: Snapshot) -> Move | None:
    """The busiest movable unit that some other uplink can take, and the best such uplink."""
    for unit in _busiest_first(uplink, snapshot):
        if target := _best_target(unit, uplink, snapshot):
            return Move(unit.name, uplink.name, target.name, Reason.THRESHOLD)
    return None


def _best_target(unit: Unit, uplink: Uplink, snapshot: Snapshot) -> Uplink | None:
    """The uplink that is emptiest with the unit, of those that stay within the threshold."""
    able = _able(unit, uplink, snapshot)
    fitting = [u for u in able if _after(u, unit) <= snapshot.threshold_ratio]
    return min(fitting, key=lambda u: (_after(u, unit), u.name), default=None)


def _able(unit: Unit, uplink: Uplink, snapshot: Snapshot) -> list[Uplink]:
    """The other uplinks in service that rules let it be moved to."""
    others = [u for u in failover.in_service(snapshot.uplinks) if u is not uplink]
    return [u for u in others if rules.permits(unit, u.name, snapshot.in_sets)]


def _busiest_first(uplink: Uplink, snapshot: Snapshot) -> list[Unit]:
    """Movable units that load a saturated direction of the uplink: busier direction first."""
    units = [u for u in snapshot.units if u.uplink == uplink.name and u.movable]
    busiest: list[Unit] = []
    for used_bps, share_bps in sorted(
        ((uplink.load.tx_bps, _tx_bps), (uplink.load.rx_bps, _rx_bps)),
        key=lambda direction: -direction[0],
    ):
        if used_bps > snapshot.threshold_ratio * uplink.capacity_bps:
            least_bps = LEAST_SHARE_RATIO * uplink.capacity_bps
            loading = [u for u in units if share_bps(u) >= least_bps and u not in busiest]
            busiest += sorted(loading, key=lambda u: (-share_bps(u), u.name))
    return busiest


def _tx_bps(unit: Unit) -> float:
    return unit.load.tx_bps


def _rx_bps(unit: Unit) -> float:
    return unit.load.rx_bps


def _after(uplink: Uplink, unit: Unit) -> float:
    """Utilization of `uplink` once it carries `unit` too, in its busier direction."""
    return (uplink.load + unit.load).utilization_ratio(uplink.capacity_bps)
