"""Placement that looks at names and numbers only, never at load."""

from __future__ import annotations

from collections.abc import Sequence

from policies.model import Plan, Role, Snapshot, Unit, Uplink


def by_port_number(unit: Unit, uplinks: Sequence[Uplink]) -> str:
    """VMware's "originating virtual port ID": ofport modulo the number of active uplinks.

    Counts configured active uplinks whether they are up or not, so that a failure
    re-places nobody but the units of the failed uplink.
    """
    active = placeable(uplinks)
    return active[unit.ofport % len(active)].name


def first_in_order(_unit: Unit, uplinks: Sequence[Uplink]) -> str:
    """VMware's "explicit failover order": everything on the first active uplink."""
    return placeable(uplinks)[0].name


def stay(_snapshot: Snapshot) -> Plan:
    """A static policy never moves anything because of load."""
    return Plan()


def placeable(uplinks: Sequence[Uplink]) -> Sequence[Uplink]:
    """The uplinks a unit may call home: the active ones, else standby ones, else all."""
    for role in (Role.ACTIVE, Role.STANDBY):
        if chosen := [uplink for uplink in uplinks if uplink.role is role]:
            return chosen
    return uplinks
