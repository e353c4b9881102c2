"""How often a unit may be moved because of load: a budget of moves, and a rest after each.

Switches upstream take an address that moves often for a loop: EVPN stops to follow one after five
moves in 180 s (RFC 7432). So a unit is moved by load only while it has moved less than four times in
any 180 s, whatever for: failovers and operators' moves count, and are never refused. After each
move it rests, longer with each repetition, so that no load of any period makes it go back and
forth.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

MOST_MOVES = 4
PERIOD_S = 180.0
# After the first, second and third move of a period.
RESTS_S = (5.0, 20.0, 60.0)


@dataclass(slots=True)
class Damping:
    """When units have moved, for as long as it counts."""

    _moved_s: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def note(self, unit: str, now_s: float) -> None:
        """Count a move, whatever it was for."""
        self._moved_s[unit] = (*self._counted(unit, now_s), now_s)

    def keep(self, units: Collection[str]) -> None:
        """Forget all others."""
        self._moved_s = {name: at for name, at in self._moved_s.items() if name in units}

    def resting(self, now_s: float) -> frozenset[str]:
        """The units that are not to be moved because of load now."""
        for unit in list(self._moved_s):
            if not self._counted(unit, now_s):
                del self._moved_s[unit]
        return frozenset(unit for unit in self._moved_s if now_s < self.until_s(unit, now_s))

    def until_s(self, unit: str, now_s: float) -> float:
        """When a unit that has moved may be moved because of load again."""
        counted = self._counted(unit, now_s)
        if not counted:
            return now_s
        if len(counted) >= MOST_MOVES:
            return counted[-MOST_MOVES] + PERIOD_S
        return counted[-1] + RESTS_S[len(counted) - 1]

    def _counted(self, unit: str, now_s: float) -> tuple[float, ...]:
        return tuple(at for at in self._moved_s.get(unit, ()) if now_s - at < PERIOD_S)
