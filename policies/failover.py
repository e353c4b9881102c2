"""Failover: the order in which a unit uses uplinks when its home uplink fails."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Collection, Sequence

from policies.model import Role, Uplink

BackupOrder = Callable[[str, Sequence[Uplink]], list[Uplink]]


def as_configured(_unit: str, uplinks: Sequence[Uplink]) -> list[Uplink]:
    """Return the operator's failover order, the same for every unit."""
    return list(uplinks)


def scattered(unit: str, uplinks: Sequence[Uplink]) -> list[Uplink]:
    """Return a unit's own order, so that the units of a failed uplink spread by capacity.

    Weighted rendezvous hashing (Wang & Ravishankar's logarithmic method): an uplink comes first
    with a probability equal to its share of capacity, and removing an uplink does not change the
    order of the other uplinks.
    """
    return sorted(uplinks, key=lambda u: (_distance(unit, u.name, u.capacity_bps), u.name))


def order(
    unit: str,
    home: str,
    uplinks: Sequence[Uplink],
    backup: BackupOrder,
    allowed: frozenset[str] | None = None,
    burden: Callable[[str], tuple[int, ...]] = lambda _: (),
) -> tuple[Uplink, ...]:
    """Return all uplinks that a unit can use, best first: active, then standby, then drained ones.

    Among uplinks with the same role, the unit's home comes first, then the uplinks with the lowest
    cost under its rules (`burden`). The role takes precedence over a pin: `unused` uplinks are left
    out, `drained` ones come last. `allowed`: the uplinks that the unit can use; None: all.
    """
    ranks = {Role.ACTIVE: 0, Role.STANDBY: 1, Role.DRAINED: 2}
    candidates = [u for u in only(allowed, backup(unit, uplinks)) if u.role in ranks]
    return tuple(sorted(candidates, key=lambda u: (ranks[u.role], u.name != home, burden(u.name))))


def only(allowed: frozenset[str] | None, uplinks: Sequence[Uplink]) -> list[Uplink]:
    """Return the uplinks whose names are in `allowed` (None: all uplinks), in the given order."""
    return [u for u in uplinks if allowed is None or u.name in allowed]


def usable_first(ordered: Sequence[Uplink], kept_off: Collection[str] = ()) -> tuple[Uplink, ...]:
    """Return the uplinks in the given order, but unusable ones last. A unit uses the first uplink.

    `kept_off`: the names of uplinks to place after all other usable ones.
    """
    return tuple(sorted(ordered, key=lambda u: (not u.usable, u.name in kept_off)))


def in_service(uplinks: Sequence[Uplink]) -> list[Uplink]:
    """Return the uplinks that units can move to: usable active ones, else usable standby ones."""
    for role in (Role.ACTIVE, Role.STANDBY):
        if chosen := [u for u in uplinks if u.usable and u.role is role]:
            return chosen
    return []


@functools.lru_cache(maxsize=65536)
def _distance(unit: str, uplink: str, capacity_bps: float) -> float:
    digest = hashlib.blake2b(
        f"{unit}\0{uplink}".encode(errors="surrogatepass"), digest_size=8
    ).digest()
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2.0**64
    return -math.log(uniform) / capacity_bps
