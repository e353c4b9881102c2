"""How often a unit may be moved because of load: a budget of moves, and a rest after each.

Switches upstream take an address that moves often for a loop: EVPN stops to follow one after five
moves in 180 s (RFC 7432). So a unit is moved by load only while it has moved less than four times in
any 180 s, whatever for: failovers and operators' moves count, and are never refused.

After each move by load a unit rests, four times as long as after the one before, an hour at most; an
hour without one takes a step of that back. So a load of whatever period moves it some times in all,
and once an hour from then on.

A move that was made while loads still changed is provisional: for a moment it may be corrected,
once, and the correction is no further step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

MOST_MOVES = 4
PERIOD_S = 180.0
FIRST_REST_S = 5.0
GROWTH = 4.0
LONGEST_REST_S = 3600.0
FORGOTTEN_AFTER_S = 3600.0
CORRECTED_WITHIN_S = 1.5


@dataclass(frozen=True, slots=True)
class Moved:
    """When a unit moved. `step`: how many moves by load in a row it was; 0 for any other.

    `provisional`: it may be corrected.
    """

    at_s: float
    step: int = 0
    provisional: bool = False

    def is_open(self, now_s: float) -> bool:
        """Whether it may still be corrected."""
        return self.provisional and now_s - self.at_s < CORRECTED_WITHIN_S


@dataclass(slots=True)
class Damping:
    """When units have moved, for as long as it counts."""

    longest_rest_s: float = LONGEST_REST_S
    _moves: dict[str, tuple[Moved, ...]] = field(default_factory=dict)

    def note(
        self, unit: str, now_s: float, by_load: bool = True, provisional: bool = False
    ) -> None:
        """Count a move, whatever it was for."""
        before = self._moves.get(unit, ())
        last = _by_load(before)
        if by_load and last and last.is_open(now_s):
            moved = Moved(now_s, last.step)
        else:
            moved = Moved(now_s, _step(before, now_s) + 1 if by_load else 0, provisional)
        self._moves[unit] = _counting((*before, moved), now_s)

    def restore(self, unit: str, moves: Iterable[Moved], now_s: float) -> None:
        """Count moves that were made before anybody knew the unit here."""
        if unit not in self._moves:
            past = (move for move in moves if move.at_s <= now_s)
            self._moves[unit] = _counting(tuple(sorted(past, key=lambda m: m.at_s)), now_s)

    def remembered(self, unit: str) -> tuple[Moved, ...]:
        """The moves that count, oldest first."""
        return self._moves.get(unit, ())

    def keep(self, units: Collection[str]) -> None:
        """Forget all others."""
        self._moves = {name: moves for name, moves in self._moves.items() if name in units}

    def resting(self, now_s: float) -> frozenset[str]:
        """The units that are not to be moved because of load now."""
        return frozenset(unit for unit in self._moves if now_s < self.until_s(unit, now_s))

    def spent(self, now_s: float) -> frozenset[str]:
        """The units that have moved as often as an address should."""
        return frozenset(u for u in self._moves if len(self._in_period(u, now_s)) >= MOST_MOVES)

    def until_s(self, unit: str, now_s: float) -> float:
        """When a unit that has moved may be moved because of load again."""
        moves = self._moves.get(unit, ())
        last = _by_load(moves)
        rested_s = now_s
        if last and not last.is_open(now_s):
            rested_s = last.at_s + self._rest_s(last.step)
        if len(moves) < MOST_MOVES:
            return max(now_s, rested_s)
        in_period = self._in_period(unit, now_s)
        free_s = in_period[-MOST_MOVES] + PERIOD_S if len(in_period) >= MOST_MOVES else now_s
        return max(now_s, rested_s, free_s)

    def _rest_s(self, step: int) -> float:
        return min(self.longest_rest_s, FIRST_REST_S * GROWTH ** (step - 1))

    def _in_period(self, unit: str, now_s: float) -> list[float]:
        return [m.at_s for m in self._moves.get(unit, ()) if now_s - m.at_s < PERIOD_S]


def _by_load(moves: Iterable[Moved]) -> Moved | None:
    """The last move by load."""
    return next((move for move in reversed(tuple(moves)) if move.step), None)


def _step(moves: Iterable[Moved], now_s: float) -> int:
    """How many moves by load count still: one less for each hour since."""
    last = _by_load(moves)
    return max(0, last.step - int((now_s - last.at_s) // FORGOTTEN_AFTER_S)) if last else 0


def _counting(moves: tuple[Moved, ...], now_s: float) -> tuple[Moved, ...]:
    """Those of the budget's period, and the last by load."""
    last = _by_load(moves) if _step(moves, now_s) else None
    return tuple(move for move in moves if now_s - move.at_s < PERIOD_S or move is last)
