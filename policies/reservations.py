"""Reservations: no uplink promises more than its capacity, where that can be avoided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies import failover
from policies.model import Unit, Uplink
from policies.planners.static import placeable


def kept(
    homes: Mapping[str, str], units: Sequence[Unit], uplinks: Sequence[Uplink]
) -> dict[str, str]:
    """The homes, but for units with a reservation that is more than is left of their uplink.

    Units that are not for moving, or that other rules place, stay. As few others as possible
    leave theirs: first come the pinned, then those that are where they
    belong, each the largest first. Where that does not do, all are placed anew on the emptiest:
    largest first, or those with the least choice. What still does not fit stays.
    """
    reserving = [u for u in units if u.reserve_bps and u.name in homes]
    if not reserving:
        return dict(homes)
    by_place = sorted(
        reserving, key=lambda u: (_may_leave(u), u.uplink != homes[u.name], *_size(u))
    )
    by_size = sorted(reserving, key=lambda u: (_may_leave(u), *_size(u)))
    by_choice = sorted(
        by_size, key=lambda u: (_may_leave(u), len(failover.only(u.allowed, uplinks)))
    )
    attempts = [
        dict(homes),
        _placed(homes, by_place, uplinks, keep=True),
        _placed(homes, by_size, uplinks, keep=False),
        _placed(homes, by_choice, uplinks, keep=False),
    ]
    # The first of the best: what is no better moves nobody.
    return min(attempts, key=lambda found: _excess_bps(found, reserving, uplinks))


def _may_leave(unit: Unit) -> bool:
    return unit.movable and not unit.ruled


def _size(unit: Unit) -> tuple[float, str]:
    return -unit.reserve_bps, unit.name


def _placed(
    homes: Mapping[str, str], units: Sequence[Unit], uplinks: Sequence[Uplink], keep: bool
) -> dict[str, str]:
    """One after another, each at home if it may be and fits, else where most is left."""
    found = dict(homes)
    left_bps = {uplink.name: uplink.capacity_bps for uplink in uplinks}
    for unit in units:
        fits_home = unit.reserve_bps <= left_bps[homes[unit.name]]
        if _may_leave(unit) and not (keep and fits_home):
            able = placeable(failover.only(unit.allowed, uplinks))
            room = [u.name for u in able if unit.reserve_bps <= left_bps[u.name]]
            if room:
                found[unit.name] = max(
                    room, key=lambda name: (left_bps[name], name == homes[unit.name])
                )
        left_bps[found[unit.name]] -= unit.reserve_bps
    return found


def _excess_bps(
    homes: Mapping[str, str], units: Sequence[Unit], uplinks: Sequence[Uplink]
) -> float:
    """By how much uplinks promise more than they have."""
    promised_bps = dict.fromkeys((uplink.name for uplink in uplinks), 0.0)
    for unit in units:
        promised_bps[homes[unit.name]] += unit.reserve_bps
    return sum(max(0.0, promised_bps[u.name] - u.capacity_bps) for u in uplinks)
