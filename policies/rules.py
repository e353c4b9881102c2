"""Operators' rules, applied to every policy in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from policies import failover
from policies.model import Unit, Uplink
from policies.presets import PRESETS


def homes(units: Sequence[Unit], uplinks: Sequence[Uplink]) -> dict[str, str]:
    """Where units belong, by name: their pin, else the uplink they have, else the policy's.

    That is always an uplink that the unit may use; one that may use none has no home. The
    policy may take a bucket from the uplink that it has, so that shares are kept.
    """
    found: dict[str, str] = {}
    placed: dict[tuple[str, bool], list[Unit]] = {}
    for unit in units:
        names = {uplink.name for uplink in failover.only(unit.allowed, uplinks)}
        keeps = not unit.is_bucket or PRESETS[unit.policy].keeps_buckets
        if not names:
            continue
        if unit.pin in names:
            found[unit.name] = str(unit.pin)
        elif unit.uplink in names and keeps:
            found[unit.name] = str(unit.uplink)
        else:
            known = unit.uplink if unit.uplink in names else None
            placed.setdefault((unit.policy, unit.is_bucket), []).append(replace(unit, uplink=known))
    for (policy, is_bucket), group in placed.items():
        preset = PRESETS[policy]
        found |= (preset.spread if is_bucket else preset.place)(group, uplinks)
    return found
