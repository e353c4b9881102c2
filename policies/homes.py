"""Computes the home uplink of each unit: from operators' rules first, then from its policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies import failover, placement, rules
from policies.model import Role, Unit, Uplink
from policies.planners import static
from policies.presets import PRESETS
from policies.seating import Candidate


@dataclass(frozen=True, slots=True)
class Homes:
    """The home uplinks of units, by unit name. `satisfied`: the rules that these homes satisfy."""

    by_name: dict[str, str]
    satisfied: frozenset[object]


def homes(
    units: Sequence[Unit], uplinks: Sequence[Uplink], satisfied: frozenset[object] = frozenset()
) -> Homes:
    """Return the home uplink of each unit: its pin, else its current uplink, else its policy's choice.

    A home is always an uplink that the unit can use. A unit that can use no uplink has no home. The
    policy can take a bucket from its uplink, so that each uplink has its correct share.

    Units that prefer or avoid uplinks, are in sets, or have reservations that may not all fit are
    placed together, at the lowest total cost, regardless of the state of links. Units keep their
    homes while their rules are among `satisfied`, so later moves are not undone.
    """
    found: dict[str, str] = {}
    placed: dict[tuple[str, bool], list[Unit]] = {}
    rooms_bps = {uplink.name: uplink.room_bps for uplink in uplinks}
    reserving = _reserving(units, uplinks)
    contended = placement.contended(reserving.values(), rooms_bps)
    bound_together = []
    everywhere = {uplink.name for uplink in uplinks}
    for unit in units:
        names = everywhere if unit.allowed is None else _names(unit, uplinks)
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
    asked_for = set()
    for linked in _linked(bound_together, reserving, contended):
        asked = _asked(linked, uplinks)
        asked_for.add(asked)
        if asked in satisfied and all(u.uplink in _names(u, uplinks) for u in linked):
            found |= {unit.name: str(unit.uplink) for unit in linked}
        else:
            wishes = [_candidate(u, _wishes(u, uplinks)) for u in linked]
            found |= placement.place(wishes, rooms_bps)
    assert everywhere.issuperset(found.values()), "a home is an uplink of the team"
    return Homes(found, frozenset(asked_for))


def targets(
    units: Sequence[Unit], uplinks: Sequence[Uplink], homes: Mapping[str, str]
) -> dict[str, str]:
    """Return the uplinks for units that are placed together, if a home is out of service.

    All these units may have to move to make room. Groups with all homes in service are omitted.
    """
    serves = {u.name for u in uplinks if u.usable and u.role is Role.ACTIVE}
    together = [u for u in units if (u.rules.in_set or u.rules.reserve_bps) and u.name in homes]
    if all(homes[unit.name] in serves - unit.kept_off for unit in together):
        return {}
    at_home = [replace(unit, uplink=homes[unit.name]) for unit in together]
    wishes = [_candidate(unit, _serving(unit, uplinks)) for unit in at_home]
    rooms_bps = {uplink.name: uplink.room_bps for uplink in uplinks}
    contended = placement.contended(wishes, rooms_bps)
    found: dict[str, str] = {}
    for group in placement.components(sorted(wishes, key=lambda c: c.name), contended):
        one = group[0]
        alone = len(group) == 1 and not one.rules.in_set and contended.isdisjoint(one.able)
        if not alone and any(c.able and homes[c.name] not in c.able for c in group):
            found |= placement.place(group, rooms_bps)
    return found


def order(
    unit: Unit,
    home: str,
    uplinks: Sequence[Uplink],
    taken: Mapping[str, int] | None = None,
) -> tuple[Uplink, ...]:
    """Return all uplinks that a unit can use, in its failover order.

    The uplinks are ordered by role, with the home first, then by the unit's preferences, then by
    how many members of its anti-affinity set are on each uplink (`taken`), then by its policy.
    Members of an affinity set have the same order.
    """
    known_by = unit.name if unit.rules.affinity is None else f"affinity {unit.rules.affinity}"

    def burden(uplink: str) -> tuple[int, int]:
        return rules.rank(unit, uplink), taken.get(uplink, 0) if taken else 0

    backup = PRESETS[unit.policy].backup
    return failover.order(known_by, home, uplinks, backup, unit.allowed, burden)


def _linked(
    units: Iterable[Unit], reserving: Mapping[str, Candidate], contended: frozenset[str]
) -> Iterable[list[Unit]]:
    """Group the units so that no two groups share a set, or an uplink with too little room."""
    by_name = {unit.name: unit for unit in sorted(units, key=lambda unit: unit.name)}
    alone = [reserving.get(unit.name) or _candidate(unit, ()) for unit in by_name.values()]
    for group in placement.components(alone, contended):
        yield [by_name[candidate.name] for candidate in group]


def _reserving(units: Iterable[Unit], uplinks: Sequence[Uplink]) -> dict[str, Candidate]:
    """Return the units with reservations, each with all uplinks that could be its home."""
    found: dict[str, Candidate] = {}
    reach: dict[tuple[frozenset[str] | None, str | None], tuple[str, ...]] = {}
    for unit in units:
        if unit.rules.reserve_bps:
            key = unit.allowed, unit.rules.pin
            if key not in reach:
                reach[key] = _may_use(unit, uplinks)
            found[unit.name] = Candidate(unit.name, reach[key], (), rules=unit.rules)
    return found


def _may_use(unit: Unit, uplinks: Sequence[Uplink]) -> tuple[str, ...]:
    """Return the uplinks that a unit can use; for a pinned unit, its pin."""
    allowed = failover.only(unit.allowed, uplinks)
    names = tuple(uplink.name for uplink in allowed if uplink.role is not Role.UNUSED)
    return (unit.rules.pin,) if unit.rules.pin is not None and unit.rules.pin in names else names


def _asked(linked: Iterable[Unit], uplinks: Iterable[Uplink]) -> object:
    """Return everything that determines homes, except loads, links and the current places.

    A drain is not included, so that units return when it ends. Capacities are included if a unit
    has a reservation.
    """
    reserving = any(unit.rules.reserve_bps for unit in linked)
    return (
        tuple(replace(unit, uplink=None, policy="", number=0) for unit in linked),
        tuple((u.name, Role.ACTIVE if u.role is Role.DRAINED else u.role) for u in uplinks),
        tuple(u.capacity_bps for u in uplinks if reserving),
    )


def _candidate(unit: Unit, able: Sequence[str]) -> Candidate:
    """Return a candidate for placement. Pinned units and excluded ones with a home cannot move."""
    fixed = unit.rules.pin if unit.rules.pin in able else unit.uplink if unit.excluded else None
    able = (fixed,) if fixed in able and fixed is not None else able
    ranks = tuple(rules.rank(unit, uplink) for uplink in able)
    return Candidate(unit.name, tuple(able), ranks, unit.uplink, unit.rules)


def _wishes(unit: Unit, uplinks: Sequence[Uplink]) -> list[str]:
    """Return the uplinks that can be a unit's home, in the order of its policy.

    These are active uplinks, the unit's home if it is drained, and in any case its pin.
    """
    allowed = failover.only(unit.allowed, uplinks)
    drained = [u for u in allowed if u.name == unit.uplink and u.role is Role.DRAINED]
    active = [u for u in allowed if u.role is Role.ACTIVE]
    able = [*active, *drained] or static.placeable(allowed)
    names = {uplink.name for uplink in able} | {str(unit.rules.pin)}
    own = PRESETS[unit.policy].place([replace(unit, uplink=None)], uplinks)[unit.name]
    return [uplink.name for uplink in order(unit, own, uplinks) if uplink.name in names]


def _serving(unit: Unit, uplinks: Sequence[Uplink]) -> list[str]:
    """Return the usable uplinks with the best role, preferably not in the unit's `kept_off`."""
    usable = [u for u in order(unit, str(unit.uplink), uplinks) if u.usable]
    able = [u for u in usable if u.name not in unit.kept_off] or usable
    return [uplink.name for uplink in able if uplink.role is able[0].role]


def _names(unit: Unit, uplinks: Sequence[Uplink]) -> set[str]:
    return {uplink.name for uplink in failover.only(unit.allowed, uplinks)}
