"""Operators' rules: what they require, whether they are met, and which moves they permit.

Hard rules (`allow`, VLANs: `Unit.allowed`) always hold. The order of soft rules is: reservations,
`affinity`, `anti-affinity`, `prefer`. Moves because of load must neither break a soft rule nor make
a broken rule worse. Reservations are checked on uplinks (`Uplink.has_room_for`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from policies.model import Unit, Uplink, can_promise, room_bps


class Rule(StrEnum):
    """The rules that can be broken. Each value is the name of the rule's key."""

    ALLOW = "allow"
    PIN = "pin"
    RESERVE = "reserve-mbps"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    PREFER = "prefer"


def rank(unit: Unit, uplink: str) -> int:
    """Return the rank of an uplink in a unit's preferences; 0: no uplink is better.

    Preferred uplinks come first, in their order, and avoided ones last.
    """
    if uplink in unit.rules.prefer:
        return unit.rules.prefer.index(uplink)
    return len(unit.rules.prefer) + (uplink in unit.rules.avoid)


def permits(unit: Unit, target: str, others: Iterable[Unit], along: Collection[Unit] = ()) -> bool:
    """Whether rules permit a policy to move a unit to `target`, to balance load.

    `others`: the other members of its sets, on their uplinks. `along`: those that move with it.
    `target` must meet hard rules, break no soft rule further, and lose none of the unit's frames.
    """
    if unit.allowed is not None and target not in unit.allowed:
        return False
    if target in unit.kept_off:
        return False
    if not unit.rules.ruled or unit.uplink is None:
        return True
    moved = {unit.name, *(other.name for other in along)}
    others = [other for other in others if other.name not in moved] if unit.rules.in_set else []
    now, then = (_breaches(unit, uplink, others) for uplink in (unit.uplink, target))
    return all(after <= before for before, after in zip(now, then, strict=True))


def found(units: Iterable[Unit], uplinks: Iterable[Uplink] = ()) -> dict[str, dict[Rule, str]]:
    """Return, by unit and rule, a text about how the rule is broken; empty if the rule is met.

    The text names the unit's current uplink (`Unit.uplink`) and the required one. `uplinks`: the
    team, whose capacities limit reservations.
    """
    units = list(units)
    promised_bps = defaultdict[str | None, float](float)
    for unit in units:
        promised_bps[unit.uplink] += unit.rules.reserve_bps
    capacities_bps = {uplink.name: uplink.capacity_bps for uplink in uplinks}
    together, apart = _members(units, "affinity"), _members(units, "anti_affinity")
    states = {}
    for unit in units:
        state: dict[Rule, str] = {}
        if unit.rules.confined:
            state[Rule.ALLOW] = _allow(unit)
        if unit.rules.pin is not None:
            state[Rule.PIN] = _pin(unit)
        if unit.rules.reserve_bps and unit.uplink in capacities_bps:
            capacity_bps = capacities_bps[unit.uplink]
            state[Rule.RESERVE] = _reserve(unit.uplink, promised_bps[unit.uplink], capacity_bps)
        if unit.rules.affinity is not None:
            state[Rule.AFFINITY] = _affinity(unit, together.get(unit.rules.affinity, {}))
        if unit.rules.anti_affinity is not None:
            members = apart.get(unit.rules.anti_affinity, {})
            state[Rule.ANTI_AFFINITY] = _anti_affinity(unit, members)
        if unit.rules.prefer or unit.rules.avoid:
            state[Rule.PREFER] = _prefer(unit)
        if state:
            states[unit.name] = state
    return states


def broken(states: Mapping[str, Mapping[Rule, str]]) -> dict[tuple[str, Rule], str]:
    """Return the texts of the broken rules, by unit and rule. `states`: the result of `found`."""
    return {
        (name, rule): text
        for name, state in sorted(states.items())
        for rule, text in state.items()
        if text
    }


def _breaches(unit: Unit, uplink: str, others: Iterable[Unit]) -> tuple[int, int, int]:
    """Return the violations of soft rules: members elsewhere, members on the same uplink, rank."""
    together, apart = unit.rules.affinity, unit.rules.anti_affinity
    members = [u for u in others if u.uplink is not None]
    elsewhere = sum(u.rules.affinity == together and u.uplink != uplink for u in members)
    beside = sum(u.rules.anti_affinity == apart and u.uplink == uplink for u in members)
    return (
        0 if together is None else elsewhere,
        0 if apart is None else beside,
        rank(unit, uplink),
    )


def _members(units: Iterable[Unit], of: str) -> dict[str, dict[str, list[str]]]:
    """Return the members of each set by uplink. Members without an uplink are omitted."""
    sets: dict[str, dict[str, list[str]]] = {}
    for unit in units:
        if (name := getattr(unit.rules, of)) is not None and unit.uplink is not None:
            sets.setdefault(name, {}).setdefault(unit.uplink, []).append(unit.name)
    return sets


def _allow(unit: Unit) -> str:
    if unit.uplink is None and not unit.allowed:
        return "has no uplink, because no allowed uplink carries its VLANs"
    if unit.uplink is None:
        return f"has no uplink until {_or(sorted(unit.allowed or ()))} carries traffic"
    if unit.allowed is not None and unit.uplink not in unit.allowed:
        return f"on {unit.uplink}; allowed: {_or(sorted(unit.allowed))}"
    return ""


def _pin(unit: Unit) -> str:
    if unit.uplink == unit.rules.pin:
        return ""
    ruled_out = unit.allowed is not None and unit.rules.pin not in unit.allowed
    but = ", which is not allowed" if ruled_out else ""
    return f"on {unit.uplink or 'no uplink'}, although pinned to {unit.rules.pin}{but}"


def _reserve(uplink: str, promised_bps: float, capacity_bps: float) -> str:
    if can_promise(promised_bps, 0.0, capacity_bps):
        return ""
    most = f"at most {room_bps(capacity_bps) / 1e6:g} can be reserved"
    return f"on {uplink}, where {promised_bps / 1e6:g} Mbit/s is reserved; {most}"


def _prefer(unit: Unit) -> str:
    if unit.uplink is None or rank(unit, unit.uplink) == 0:
        return ""
    if unit.rules.prefer:
        return f"on {unit.uplink}, although {unit.rules.prefer[0]} is preferred"
    return f"on {unit.uplink}, although {_or(sorted(unit.rules.avoid))} should be avoided"


def _affinity(unit: Unit, members: Mapping[str, list[str]]) -> str:
    if unit.uplink is None or len(members) < 2:
        return ""
    others = _some(n for uplink, names in members.items() if uplink != unit.uplink for n in names)
    return f"on {unit.uplink}, apart from {others} of affinity set {unit.rules.affinity}; all members should share one uplink"


def _anti_affinity(unit: Unit, members: Mapping[str, list[str]]) -> str:
    beside = members.get(unit.uplink or "", [])
    if len(beside) < 2:
        return ""
    others = _some(name for name in beside if name != unit.name)
    return f"on {unit.uplink} together with {others} of anti-affinity set {unit.rules.anti_affinity}; all members should use different uplinks"


def _some(names: Iterable[str]) -> str:
    """Return the first three names, and the number of the others."""
    first = sorted(names)
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    return ", ".join(first[:3]) + more


def _or(names: list[str]) -> str:
    return " or ".join(names)
