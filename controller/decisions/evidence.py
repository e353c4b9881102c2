"""The figures that a decision was made by, for the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.model import Load, Snapshot, Uplink


@dataclass(frozen=True, slots=True)
class Evidence:
    """The team as a policy judged it.

    `loads`: the load that moves with each unit, by name. `how`: the time it covers, in words.
    """

    uplinks: tuple[Uplink, ...]
    loads: Mapping[str, Load]
    how: str

    @classmethod
    def evidence_of(cls, snapshot: Snapshot, how: str) -> Evidence:
        return cls(snapshot.uplinks, {unit.name: unit.load for unit in snapshot.units}, how)


def how(window_s: float | None) -> str:
    """The time that loads are averaged over, in words; empty for the latest loads."""
    return f"over {window_s:g} s" if window_s else ""
