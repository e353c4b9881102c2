"""Static policies: place units by names, numbers and capacities, never by load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from policies import failover
from policies.model import Plan, Role, Snapshot, Unit, Uplink
from policies.verdicts import Rest, Standing, Verdict, WhyAtRest


def by_number(units: Sequence[Unit], uplinks: Sequence[Uplink]) -> dict[str, str]:
    """Place units like VMware's "originating virtual port ID": by number modulo active uplinks.

    Configured active uplinks count even if they are down, so that a failure does not change the
    homes of units on other uplinks.
    """
    homes = {}
    for unit in units:
        active = placeable(failover.only(unit.allowed, uplinks))
        homes[unit.name] = active[unit.number % len(active)].name
    return homes


def first_in_order(units: Sequence[Unit], uplinks: Sequence[Uplink]) -> dict[str, str]:
    """Place units like VMware's "explicit failover order": all on the first active uplink."""
    return {u.name: placeable(failover.only(u.allowed, uplinks))[0].name for u in units}


def by_capacity(units: Sequence[Unit], uplinks: Sequence[Uplink]) -> dict[str, str]:
    """Return each unit's home uplink; as few units as possible leave their uplink (`Unit.uplink`).

    Quotas are exact to one unit (Hamilton's method of largest remainders). If an uplink leaves the
    team, only its own units get new homes. An uplink that joins gets units from uplinks that have
    too many, preferably its own earlier units.
    """
    quotas = _quotas(len(units), placeable(uplinks))
    homes: dict[str, str] = {}
    for unit in _most_at_home_first(units, uplinks, quotas):
        if unit.uplink is not None and quotas.get(unit.uplink, 0) > 0:
            homes[unit.name] = unit.uplink
            quotas[unit.uplink] -= 1
    for unit in units:
        if unit.name not in homes:
            order = failover.scattered(unit.name, uplinks)
            home = next(uplink.name for uplink in order if quotas.get(uplink.name, 0) > 0)
            homes[unit.name] = home
            quotas[home] -= 1
    return homes


def stay(_snapshot: Snapshot) -> Plan:
    """Return an empty plan: a static policy never moves units to balance load."""
    return Plan()


def never(_snapshot: Snapshot, _unit: str) -> Verdict:
    return Verdict(Standing.NEVER)


def rest(_snapshot: Snapshot) -> Rest:
    return Rest(WhyAtRest.NEVER)


def placeable(uplinks: Sequence[Uplink]) -> Sequence[Uplink]:
    """Return the uplinks that can be a home: active ones, else standby, else drained, else all."""
    for role in (Role.ACTIVE, Role.STANDBY, Role.DRAINED):
        if chosen := [uplink for uplink in uplinks if uplink.role is role]:
            return chosen
    return uplinks


def _quotas(units: int, uplinks: Sequence[Uplink]) -> dict[str, int]:
    """Return the number of units for each uplink."""
    total_bps = sum(uplink.capacity_bps for uplink in uplinks)
    exact = {u.name: units * u.capacity_bps / total_bps for u in uplinks}
    quotas = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (quotas[name] - exact[name], name))
    for name in by_remainder[: units - sum(quotas.values())]:
        quotas[name] += 1
    assert sum(quotas.values()) == units, "every unit has a place"
    return quotas


def _most_at_home_first(
    units: Sequence[Unit], uplinks: Sequence[Uplink], quotas: dict[str, int]
) -> Sequence[Unit]:
    """Return the units in the order in which they keep their uplink, if not all of them can.

    A unit for which another uplink ranks higher has probably been moved there by a failover.
    """
    held = Counter(unit.uplink for unit in units)
    if all(held[name] <= quota for name, quota in quotas.items()):
        return units

    def rank(unit: Unit) -> int:
        order = [uplink.name for uplink in failover.scattered(unit.name, uplinks)]
        return order.index(unit.uplink) if unit.uplink in order else len(order)

    return sorted(units, key=rank)
