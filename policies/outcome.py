"""The loads of uplinks after moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policies.model import IDLE, Load, Move, Unit, Uplink

_NOTHING: Mapping[str, float] = {}


def after(
    uplinks: Iterable[Uplink],
    moves: Iterable[Move],
    loads: Mapping[str, Load],
    promised_bps: Mapping[str, float] = _NOTHING,
    back: bool = False,
) -> tuple[Uplink, ...]:
    """Return the uplinks with their loads and reservations after the moves.

    `back`: before moves that are already made. `loads` and `promised_bps` are by unit. Counters of
    units and of uplinks are not read at the same moment, so values below zero become zero.
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


def with_loads(
    uplinks: Iterable[Uplink], units: Iterable[Unit], loads: Mapping[str, Load]
) -> tuple[Uplink, ...]:
    """Return the uplinks as if their units had these loads (by name) on their present uplinks."""
    uplinks = tuple(uplinks)
    carried = {uplink.name: uplink.load for uplink in uplinks}
    for unit in units:
        load = loads.get(unit.name, IDLE)
        # Most buckets are idle.
        if load is not unit.load and unit.uplink in carried:
            carried[unit.uplink] += load - unit.load
    return tuple(u.carrying(IDLE.larger(carried[u.name])) for u in uplinks)


def sent(uplinks: Iterable[Uplink]) -> tuple[Uplink, ...]:
    """Return the uplinks with their sent traffic only."""
    return tuple(u.carrying(Load(tx_bps=u.load.tx_bps)) for u in uplinks)
