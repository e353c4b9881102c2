"""Computes the loads of uplinks after moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from policies.model import IDLE, Load, Move, Snapshot, Unit, Uplink

_NOTHING: Mapping[str, float] = {}


def after(
    uplinks: Iterable[Uplink],
    moves: Iterable[Move],
    loads: Mapping[str, Load],
    promised_bps: Mapping[str, float] = _NOTHING,
    back: bool = False,
) -> tuple[Uplink, ...]:
    """Return the uplinks with their loads and reservations after the moves.

    `back`: return the uplinks before the moves instead. `loads`, `promised_bps`: by unit name.
    As counters of units and of uplinks are read at different moments, negative values become zero.
    """
    uplinks = tuple(uplinks)
    carried = {uplink.name: uplink.load for uplink in uplinks}
    reserved_bps = {uplink.name: uplink.reserved_bps for uplink in uplinks}
    for move in moves:
        load, bps = loads.get(move.unit, Load()), promised_bps.get(move.unit, 0.0)
        for name, shifted in move.shifts(load):
            if name in carried:
                carried[name] = carried[name] - shifted if back else carried[name] + shifted
        for name, more_bps in ((move.source, -bps), (move.target, bps)):
            if name in reserved_bps:
                reserved_bps[name] += -more_bps if back else more_bps
    return tuple(
        u.carrying(IDLE.larger(carried[u.name]), max(0.0, reserved_bps[u.name])) for u in uplinks
    )


def team_after(
    snapshot: Snapshot,
    moves: Sequence[Move],
    loads: Mapping[str, Load] | None = None,
    promised_bps: Mapping[str, float] | None = None,
) -> Snapshot:
    """Return the team after the moves. `loads`, `promised_bps` None: those of the snapshot."""
    if not moves:
        return snapshot
    targets = {move.unit: move.target for move in moves}
    moving = [unit for unit in snapshot.units if unit.name in targets]

    def moved(unit: Unit) -> Unit:
        return replace(unit, uplink=targets[unit.name]) if unit.name in targets else unit

    if loads is None or promised_bps is None:
        loads = {unit.name: unit.load for unit in moving}
        promised_bps = {unit.name: unit.rules.reserve_bps for unit in moving}
    return replace(
        snapshot,
        uplinks=after(snapshot.uplinks, moves, loads, promised_bps),
        units=tuple(map(moved, snapshot.units)),
        in_sets=tuple(map(moved, snapshot.in_sets)),
    )


def with_loads(
    uplinks: Iterable[Uplink], units: Iterable[Unit], loads: Mapping[str, Load]
) -> tuple[Uplink, ...]:
    """Return the uplinks as if the units on them had these loads (by unit name)."""
    uplinks = tuple(uplinks)
    carried = {uplink.name: uplink.load for uplink in uplinks}
    for unit in units:
        load = loads.get(unit.name, IDLE)
        # Most buckets are idle.
        if load is not unit.load and unit.uplink in carried:
            carried[unit.uplink] += load - unit.load
    return tuple(u.carrying(IDLE.larger(carried[u.name])) for u in uplinks)


def sent(uplinks: Iterable[Uplink]) -> tuple[Uplink, ...]:
    """Return the uplinks with only the traffic that they send as their load."""
    return tuple(u.carrying(Load(tx_bps=u.load.tx_bps)) for u in uplinks)
