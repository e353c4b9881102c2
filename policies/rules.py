"""Operators' rules, applied to every policy in one place."""

from __future__ import annotations

from collections.abc import Sequence

from policies import failover
from policies.model import Unit, Uplink
from policies.presets import Preset


def home(unit: Unit, uplinks: Sequence[Uplink], preset: Preset) -> str:
    """Where a unit belongs: its pin, else the binding it has, else where the policy says.

    That is always an uplink it may use; there must be one.
    """
    uplinks = failover.only(unit.allowed, uplinks)
    names = {uplink.name for uplink in uplinks}
    if unit.pin in names:
        return str(unit.pin)
    if unit.uplink in names:
        return str(unit.uplink)
    return preset.home(unit, uplinks)
