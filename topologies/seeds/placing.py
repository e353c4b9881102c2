"""Whole loads onto uplinks: whether they fit, and how evenly at best. By search, not by rule.

A branch and bound over all placements. Loads are placed largest first. Two uplinks that are
alike (same capacity, same load so far) are one branch, and a branch that cannot get below
what was found ends. It gives up only where that is said.
"""

from __future__ import annotations

from collections.abc import Sequence

# Nearer than this to what a fluid would have, nothing better is looked for: as a ratio of that.
NEAR_ENOUGH = 0.01
# Each step places one load. Whether loads fit is nearly always found in some hundred; how evenly
# at best may take for ever, and is then as good as anybody would tell.
MOST_STEPS = 300_000
MOST_STEPS_FOR_BEST = 50_000

Placement = tuple[int, ...]


def worst_ratio(
    loads: Sequence[float], capacities: Sequence[float], placement: Sequence[int]
) -> float:
    """The worst uplink's load as a share of its capacity."""
    sums = [0.0] * len(capacities)
    for load, uplink in zip(loads, placement, strict=True):
        sums[uplink] += load
    return max(total / capacity for total, capacity in zip(sums, capacities, strict=True))


def fitting(
    loads: Sequence[float], capacities: Sequence[float], below_ratio: float
) -> Placement | None:
    """A placement that keeps every uplink below this share of its capacity.

    None: there is none, or `MOST_STEPS` did not find one.
    """
    return _Search(loads, capacities, below_ratio, below_ratio, MOST_STEPS).found


def best(
    loads: Sequence[float], capacities: Sequence[float], homes: Sequence[int] | None = None
) -> Placement:
    """The placement whose worst uplink is least used, or is within `NEAR_ENOUGH` of a fluid's.

    Of equals the one that is nearer to `homes` is likely, as each load's home is tried first
    among uplinks that are as empty. After `MOST_STEPS_FOR_BEST` it is the best that was found.
    """
    bound = fluid_ratio(loads, capacities)
    enough_ratio = bound * (1 + NEAR_ENOUGH)
    search = _Search(
        loads, capacities, float("inf"), enough_ratio, MOST_STEPS_FOR_BEST, homes=homes
    )
    assert search.found is not None, "without a limit every placement is one"
    return search.found


def fluid_ratio(loads: Sequence[float], capacities: Sequence[float]) -> float:
    """No placement of whole loads is better than this: as a fluid, or the largest load alone."""
    return max(sum(loads) / sum(capacities), max(loads, default=0.0) / max(capacities))


class _Search:
    """One search, made when it is constructed; `found` is its placement."""

    def __init__(
        self,
        loads: Sequence[float],
        capacities: Sequence[float],
        below_ratio: float,
        enough_ratio: float,
        most_steps: int,
        homes: Sequence[int] | None = None,
    ) -> None:
        self._loads = loads
        self._capacities = capacities
        self._homes = homes
        self._order = sorted(range(len(loads)), key=lambda number: (-loads[number], number))
        # What is still to be placed after so many.
        self._rest = [0.0] * (len(loads) + 1)
        for place in range(len(loads) - 1, -1, -1):
            self._rest[place] = self._rest[place + 1] + loads[self._order[place]]
        self._below_ratio = below_ratio
        self._enough_ratio = enough_ratio
        self._most_steps = most_steps
        self._steps = 0
        self._sums = [0.0] * len(capacities)
        self._placed = [0] * len(loads)
        self.found: Placement | None = None
        self._extend(0)

    def _extend(self, place: int) -> bool:
        """Place the rest; whether the search is over."""
        if place == len(self._order):
            self.found = tuple(self._placed)
            self._below_ratio = worst_ratio(self._loads, self._capacities, self._placed)
            return self._below_ratio <= self._enough_ratio
        if not self._rest_fits(place):
            return False
        number = self._order[place]
        load = self._loads[number]
        for uplink in self._branches(number, load):
            self._steps += 1
            if self._steps > self._most_steps:
                return True
            before = self._sums[uplink]
            if (before + load) / self._capacities[uplink] >= self._below_ratio:
                continue
            self._sums[uplink], self._placed[number] = before + load, uplink
            over = self._extend(place + 1)
            self._sums[uplink] = before
            if over:
                return True
        return False

    def _rest_fits(self, place: int) -> bool:
        """Whether what is left fits, were it a fluid."""
        if self._below_ratio == float("inf"):
            return True
        room = sum(
            self._below_ratio * capacity - total
            for total, capacity in zip(self._sums, self._capacities, strict=True)
        )
        return self._rest[place] < room

    def _branches(self, number: int, load: float) -> list[int]:
        """Uplinks to try, the one that would be least used first; of those alike, one."""

        def rank(uplink: int) -> tuple[float, bool]:
            used = (self._sums[uplink] + load) / self._capacities[uplink]
            return used, self._homes is not None and self._homes[number] != uplink

        alike: set[tuple[float, float]] = set()
        branches = []
        for uplink in sorted(range(len(self._capacities)), key=rank):
            key = (self._sums[uplink], self._capacities[uplink])
            if key not in alike:
                alike.add(key)
                branches.append(uplink)
        return branches
