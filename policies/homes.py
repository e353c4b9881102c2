"""Where units belong: by operators' rules first, then as their policy places them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies import failover, placement, reservations, rules
from policies.model import Role, Unit, Uplink
from policies.placement import Candidate
from policies.planners import static
from policies.presets import PRESETS


@dataclass(frozen=True, slots=True)
class Homes:
    """Where units belong, by name. `settled`: the rules that were looked at to say so."""

    by_name: dict[str, str] = field(default_factory=dict)
    settled: frozenset[object] = frozenset()


def homes(
    units: Sequence[Unit], uplinks: Sequence[Uplink], settled: frozenset[object] = frozenset()
) -> Homes:
    """Where units belong: their pin, else the uplink they have, else the policy's.

    That is always an uplink that the unit may use; one that may use none has no home. The
    policy may take a bucket from the uplink that it has, so that shares are kept.

    Units that should use some uplinks rather than others, are in sets, or have something reserved
    where there may not be room for all, are placed as suits them all best; whether links are up
    plays no part. Units that have homes keep them while
    nothing has changed since `settled`: what a policy or an operator chose meanwhile holds.
    """
    found: dict[str, str] = {}
    placed: dict[tuple[str, bool], list[Unit]] = {}
    rooms_bps = _rooms_bps(uplinks)
    reserving = _reserving(units, uplinks)
    contended = reservations.contended(reserving.values(), rooms_bps)
    bound_together = []
    for unit in units:
        names = {uplink.name for uplink in failover.only(unit.allowed, uplinks)}
        keeps = not unit.is_bucket or PRESETS[unit.policy].keeps_buckets
        if not names:
            continue
        asks = reserving.get(unit.name)
        if unit.rules.ruled or (asks and not contended.isdisjoint(asks.able)):
            bound_together.append(unit)
        elif unit.rules.pin in names:
            found[unit.name] = str(unit.rules.pin)
        elif unit.uplink in names and keeps:
            found[unit.name] = str(unit.uplink)
        else:
            known = unit.uplink if unit.uplink in names else None
            placed.setdefault((unit.policy, unit.is_bucket), []).append(replace(unit, uplink=known))
    for (policy, is_bucket), group in placed.items():
        preset = PRESETS[policy]
        found |= (preset.spread if is_bucket else preset.place)(group, uplinks)
    looked_at = set()
    for linked in _linked(bound_together, reserving, contended):
        asked = _asked(linked, uplinks)
        looked_at.add(asked)
        if asked in settled and all(u.uplink in _names(u, uplinks) for u in linked):
            found |= {unit.name: str(unit.uplink) for unit in linked}
        else:
            wishes = [_candidate(u, _wishes(u, uplinks)) for u in linked]
            found |= reservations.place(wishes, rooms_bps)
    return Homes(found, frozenset(looked_at))


def targets(
    units: Sequence[Unit], uplinks: Sequence[Uplink], homes: Mapping[str, str]
) -> dict[str, str]:
    """Where units are that are placed together while the home of one of them is out of service.

    All of them may have to move, to make room. Nothing is said of those all of whose homes serve.
    """
    serves = {u.name for u in uplinks if u.usable and u.role is Role.ACTIVE}
    together = [u for u in units if (u.rules.in_set or u.rules.reserve_bps) and u.name in homes]
    if all(homes[unit.name] in serves for unit in together):
        return {}
    at_home = [replace(unit, uplink=homes[unit.name]) for unit in together]
    wishes = [_candidate(unit, _serving(unit, uplinks)) for unit in at_home]
    rooms_bps = _rooms_bps(uplinks)
    contended = reservations.contended(wishes, rooms_bps)
    found: dict[str, str] = {}
    for group in placement.components(sorted(wishes, key=lambda c: c.name), contended):
        alone = len(group) == 1 and not group[0].in_set and contended.isdisjoint(group[0].able)
        if not alone and any(c.able and homes[c.name] not in c.able for c in group):
            found |= reservations.place(group, rooms_bps)
    return found


def order(
    unit: Unit,
    home: str,
    uplinks: Sequence[Uplink],
    taken: Mapping[str, int] | None = None,
) -> tuple[Uplink, ...]:
    """Every uplink a unit may use, in the order in which it fails over.

    By role, its home first, by its preferences; then where fewest members of its anti-affinity
    set are (`taken`: how many each uplink has), then as its policy has it. Members of an affinity
    set go the same way.
    """
    backup = PRESETS[unit.policy].backup
    if not unit.rules.ruled:
        return failover.order(unit.name, home, uplinks, backup, unit.allowed)
    known_by = unit.name if unit.rules.affinity is None else f"affinity {unit.rules.affinity}"

    def burden(uplink: str) -> tuple[int, int]:
        return rules.rank(unit, uplink), taken.get(uplink, 0) if taken else 0

    return failover.order(known_by, home, uplinks, backup, unit.allowed, burden)


def _linked(
    units: Iterable[Unit], reserving: Mapping[str, Candidate], contended: frozenset[str]
) -> Iterable[list[Unit]]:
    """The units in groups that no set links, nor an uplink that may have too little room."""
    by_name = {unit.name: unit for unit in sorted(units, key=lambda unit: unit.name)}
    alone = [reserving.get(unit.name) or _candidate(unit, ()) for unit in by_name.values()]
    for group in placement.components(alone, contended):
        yield [by_name[candidate.name] for candidate in group]


def _reserving(units: Iterable[Unit], uplinks: Sequence[Uplink]) -> dict[str, Candidate]:
    """Who has something reserved, and where each might ever belong, whoever is where now."""
    found: dict[str, Candidate] = {}
    reach: dict[tuple[frozenset[str] | None, str | None], tuple[str, ...]] = {}
    for unit in units:
        if unit.rules.reserve_bps:
            key = unit.allowed, unit.rules.pin
            if key not in reach:
                reach[key] = _may_use(unit, uplinks)
            found[unit.name] = Candidate(
                unit.name,
                reach[key],
                (),
                affinity=unit.rules.affinity,
                anti_affinity=unit.rules.anti_affinity,
                reserve_bps=unit.rules.reserve_bps,
            )
    return found


def _may_use(unit: Unit, uplinks: Sequence[Uplink]) -> tuple[str, ...]:
    """All that a unit may use, or its pin."""
    allowed = failover.only(unit.allowed, uplinks)
    names = tuple(uplink.name for uplink in allowed if uplink.role is not Role.UNUSED)
    return (unit.rules.pin,) if unit.rules.pin is not None and unit.rules.pin in names else names


def _rooms_bps(uplinks: Iterable[Uplink]) -> dict[str, float]:
    return {uplink.name: uplink.room_bps for uplink in uplinks}


def _asked(linked: Iterable[Unit], uplinks: Iterable[Uplink]) -> object:
    """All that says where units should be, loads and links and where they are apart.

    A drain is none of it: when it ends, units return. Capacities are, where something is reserved.
    """
    drained = Role.DRAINED, Role.ACTIVE
    reserving = any(unit.rules.reserve_bps for unit in linked)
    return (
        tuple(replace(unit, uplink=None, policy="", number=0) for unit in linked),
        tuple((u.name, drained[1] if u.role is drained[0] else u.role) for u in uplinks),
        tuple(u.capacity_bps for u in uplinks if reserving),
    )


def _candidate(unit: Unit, able: Sequence[str]) -> Candidate:
    """A pin, and where it is excluded from policies the home of a unit, are not for moving."""
    fixed = unit.rules.pin if unit.rules.pin in able else unit.uplink if unit.excluded else None
    able = (fixed,) if fixed in able and fixed is not None else able
    return Candidate(
        unit.name,
        tuple(able),
        tuple(rules.rank(unit, uplink) for uplink in able),
        unit.uplink,
        unit.rules.affinity,
        unit.rules.anti_affinity,
        unit.rules.reserve_bps,
    )


def _wishes(unit: Unit, uplinks: Sequence[Uplink]) -> list[str]:
    """The uplinks that a unit may call home, in the order its policy has for it.

    Active ones, and one that is drained if it is its home; a pin in any case.
    """
    allowed = failover.only(unit.allowed, uplinks)
    drained = [u for u in allowed if u.name == unit.uplink and u.role is Role.DRAINED]
    active = [u for u in allowed if u.role is Role.ACTIVE]
    able = [*active, *drained] or static.placeable(allowed)
    names = {uplink.name for uplink in able} | {str(unit.rules.pin)}
    own = PRESETS[unit.policy].place([replace(unit, uplink=None)], uplinks)[unit.name]
    return [uplink.name for uplink in order(unit, own, uplinks) if uplink.name in names]


def _serving(unit: Unit, uplinks: Sequence[Uplink]) -> list[str]:
    """The uplinks of the best role that a unit may use and that carry traffic."""
    able = [u for u in order(unit, str(unit.uplink), uplinks) if u.usable]
    return [uplink.name for uplink in able if uplink.role is able[0].role]


def _names(unit: Unit, uplinks: Sequence[Uplink]) -> set[str]:
    return {uplink.name for uplink in failover.only(unit.allowed, uplinks)}
