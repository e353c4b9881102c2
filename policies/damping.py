"""Limits a unit's moves because of load, by a budget of moves and a cooldown after each move.

Upstream switches mistake an address that moves often for a loop: EVPN stops following an address
after five moves in 180 s (RFC 7432). So a unit is moved because of load only if it has moved fewer
than four times in the last 180 s. Failovers and operators' moves count, but are never refused.

After each move because of load, a unit is in cooldown. Each cooldown is four times as long as the
previous one, and at most an hour. After each hour without a move, the next cooldown is one step
shorter. So a load that changes periodically moves a unit a few times, and then once an hour.

A move that was made while loads were still changing is provisional: it can be corrected once within
`CORRECTED_WITHIN_S`, and the correction does not count as a further step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

MOST_MOVES = 4
PERIOD_S = 180.0
FIRST_COOLDOWN_S = 5.0
GROWTH = 4.0
LONGEST_COOLDOWN_S = 3600.0
FORGOTTEN_AFTER_S = 3600.0
CORRECTED_WITHIN_S = 1.5


@dataclass(frozen=True, slots=True)
class Moved:
    """The time of a unit's move. `step`: its cooldown step; 0 if it was not made because of load.

    `provisional`: the move was made while loads were still changing, so it can be corrected.
    """

    at_s: float
    step: int = 0
    provisional: bool = False

    def is_open(self, now_s: float) -> bool:
        """Whether the move can still be corrected."""
        return self.provisional and now_s - self.at_s < CORRECTED_WITHIN_S


@dataclass(slots=True)
class Damping:
    """The recent moves of all units."""

    longest_cooldown_s: float = LONGEST_COOLDOWN_S
    _moves: dict[str, tuple[Moved, ...]] = field(default_factory=dict)

    def note(
        self, unit: str, now_s: float, by_load: bool = True, provisional: bool = False
    ) -> None:
        """Record a move. `by_load`: whether load is the reason. `provisional`: as in `Moved`."""
        before = self._moves.get(unit, ())
        last = _by_load(before)
        if by_load and last and last.is_open(now_s):
            moved = Moved(now_s, last.step)
        else:
            moved = Moved(now_s, _step(before, now_s) + 1 if by_load else 0, provisional)
        assert not before or before[-1].at_s <= now_s, "moves are recorded as they happen"
        self._moves[unit] = _counting((*before, moved), now_s)

    def restore(self, unit: str, moves: Iterable[Moved], now_s: float) -> None:
        """Record earlier moves of a unit, unless moves of this unit are recorded already."""
        if unit not in self._moves:
            past = (move for move in moves if move.at_s <= now_s)
            self._moves[unit] = _counting(tuple(sorted(past, key=lambda m: m.at_s)), now_s)

    def remembered(self, unit: str) -> tuple[Moved, ...]:
        """Return the moves of a unit that still affect its budget or cooldown, oldest first."""
        return self._moves.get(unit, ())

    def keep(self, units: Collection[str]) -> None:
        """Forget all units except `units`."""
        self._moves = {name: moves for name, moves in self._moves.items() if name in units}

    def in_cooldown(self, now_s: float) -> frozenset[str]:
        """Return the units that are in cooldown or have used up their budget of moves."""
        return frozenset(unit for unit in self._moves if now_s < self.until_s(unit, now_s))

    def spent(self, now_s: float) -> frozenset[str]:
        """Return the units that have used up their budget of moves."""
        return frozenset(u for u in self._moves if len(self._in_period(u, now_s)) >= MOST_MOVES)

    def until_s(self, unit: str, now_s: float) -> float:
        """Return the time from which a unit can be moved because of load again."""
        last = _by_load(self._moves.get(unit, ()))
        cooled_s = now_s
        if last and not last.is_open(now_s):
            cooldown_s = FIRST_COOLDOWN_S * GROWTH ** (last.step - 1)
            cooled_s = last.at_s + min(self.longest_cooldown_s, cooldown_s)
        in_period = self._in_period(unit, now_s)
        free_s = in_period[-MOST_MOVES] + PERIOD_S if len(in_period) >= MOST_MOVES else now_s
        return max(now_s, cooled_s, free_s)

    def next_change_s(self, now_s: float) -> float:
        """Return when the result of `in_cooldown` changes next; infinity if it stays the same.

        A cooldown begins when a provisional move can no longer be corrected.
        """
        found = math.inf
        for unit, moves in self._moves.items():
            last = _by_load(moves)
            begins_s = last.at_s + CORRECTED_WITHIN_S if last and last.is_open(now_s) else now_s
            for at_s in (begins_s, self.until_s(unit, now_s)):
                if now_s < at_s < found:
                    found = at_s
        return found

    def _in_period(self, unit: str, now_s: float) -> list[float]:
        return [m.at_s for m in self._moves.get(unit, ()) if now_s - m.at_s < PERIOD_S]


def _by_load(moves: Sequence[Moved]) -> Moved | None:
    """Return the last move because of load."""
    return next((move for move in reversed(moves) if move.step), None)


def _step(moves: Sequence[Moved], now_s: float) -> int:
    """Return the number of steps that still count: one less for each hour since the last move."""
    last = _by_load(moves)
    return max(0, last.step - int((now_s - last.at_s) // FORGOTTEN_AFTER_S)) if last else 0


def _counting(moves: tuple[Moved, ...], now_s: float) -> tuple[Moved, ...]:
    """Return only the moves that use up the budget, and the last move because of load."""
    recent = tuple(move for move in moves[-MOST_MOVES:] if now_s - move.at_s < PERIOD_S)
    last = _by_load(moves) if _step(moves, now_s) else None
    return recent if last is None or last in recent else (last, *recent)
