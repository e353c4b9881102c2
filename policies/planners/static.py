"""Static policies: place units by names and numbers, never by load."""

from __future__ import annotations

from collections.abc import Sequence

from policies import failover
from policies.model import Plan, Role, Snapshot, Unit, Uplink
from policies.verdicts import Rest, Standing, Verdict, WhyAtRest


def by_number(units: Sequence[Unit], uplinks: Sequence[Uplink]) -> dict[str, str]:
    """Place units as VMware's "originating virtual port ID": number modulo count of active uplinks.

    Configured active uplinks count even if they are down, so that a failure does not change the
    homes of units on other uplinks.
    """
    homes = {}
    for unit in units:
        active = placeable(failover.only(unit.allowed, uplinks))
        homes[unit.name] = active[unit.number % len(active)].name
    return homes


def first_in_order(units: Sequence[Unit], uplinks: Sequence[Uplink]) -> dict[str, str]:
    """Place units as VMware's "explicit failover order": all units on the first active uplink."""
    return {u.name: placeable(failover.only(u.allowed, uplinks))[0].name for u in units}


def stay(_snapshot: Snapshot) -> Plan:
    """Return an empty plan, because a static policy never moves anything because of load."""
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
