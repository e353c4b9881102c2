"""Searches placements of whole loads on uplinks: whether the loads fit, and the most even one.

The search is a branch and bound over all placements, with the largest loads placed first. Uplinks
of equal capacity and load are one branch. A branch that cannot improve on the best placement so
far is cut. The number of steps is limited.
"""

from __future__ import annotations

from collections.abc import Sequence

# The search for the best placement ends within this ratio of the lower bound.
TOLERANCE_RATIO = 0.01
# Each step places one load. A few hundred steps nearly always decide whether loads fit. The best
# placement can take exponentially many steps, so its search accepts a good one.
MOST_STEPS = 300_000
MOST_STEPS_FOR_BEST = 50_000

Placement = tuple[int, ...]


def worst_ratio(
    loads: Sequence[float], capacities: Sequence[float], placement: Sequence[int]
) -> float:
    """The load of the most utilized uplink as a share of its capacity."""
    sums = [0.0] * len(capacities)
    for load, uplink in zip(loads, placement, strict=True):
        sums[uplink] += load
    return max(total / capacity for total, capacity in zip(sums, capacities, strict=True))


def find_below(
    loads: Sequence[float], capacities: Sequence[float], below_ratio: float
) -> Placement | None:
    """Find a placement that keeps every uplink below this share of its capacity.

    Returns None if no such placement exists, or if the search did not find one in `MOST_STEPS`.
    """
    return _Search(loads, capacities, below_ratio, below_ratio, MOST_STEPS).found


def find_best(
    loads: Sequence[float], capacities: Sequence[float], homes: Sequence[int] | None = None
) -> Placement:
    """Find the placement with the lowest worst utilization, within `TOLERANCE_RATIO`.

    Among equally utilized uplinks the search tries a load's home first, so it prefers placements
    near `homes`. After `MOST_STEPS_FOR_BEST` steps it returns the best placement so far.
    """
    target_ratio = lower_bound_ratio(loads, capacities) * (1 + TOLERANCE_RATIO)
    search = _Search(
        loads, capacities, float("inf"), target_ratio, MOST_STEPS_FOR_BEST, homes=homes
    )
    assert search.found is not None, "without a limit, every placement qualifies"
    return search.found


def lower_bound_ratio(loads: Sequence[float], capacities: Sequence[float]) -> float:
    """A lower bound on the worst utilization: divisible loads, or the largest load alone."""
    return max(sum(loads) / sum(capacities), max(loads, default=0.0) / max(capacities))


class _Search:
    """A search that runs in the constructor; `found` is the placement, if there is one."""

    def __init__(
        self,
        loads: Sequence[float],
        capacities: Sequence[float],
        below_ratio: float,
        target_ratio: float,
        most_steps: int,
        homes: Sequence[int] | None = None,
    ) -> None:
        self._loads = loads
        self._capacities = capacities
        self._homes = homes
        self._order = sorted(range(len(loads)), key=lambda number: (-loads[number], number))
        # By the number of placed loads: the sum of the others.
        self._remaining = [0.0] * (len(loads) + 1)
        for place in range(len(loads) - 1, -1, -1):
            self._remaining[place] = self._remaining[place + 1] + loads[self._order[place]]
        self._below_ratio = below_ratio
        self._target_ratio = target_ratio
        self._most_steps = most_steps
        self._steps = 0
        self._sums = [0.0] * len(capacities)
        self._placed = [0] * len(loads)
        self.found: Placement | None = None
        self._extend(0)

    def _extend(self, place: int) -> bool:
        """Place the loads from `place` on. Returns whether the search is over."""
        if place == len(self._order):
            self.found = tuple(self._placed)
            self._below_ratio = worst_ratio(self._loads, self._capacities, self._placed)
            return self._below_ratio <= self._target_ratio
        if not self._remaining_fit(place):
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

    def _remaining_fit(self, place: int) -> bool:
        """Whether the remaining loads would fit if they were divisible."""
        if self._below_ratio == float("inf"):
            return True
        room = sum(
            self._below_ratio * capacity - total
            for total, capacity in zip(self._sums, self._capacities, strict=True)
        )
        return self._remaining[place] < room

    def _branches(self, number: int, load: float) -> list[int]:
        """The uplinks to try, the least utilized first, and one of those that are interchangeable."""

        def rank(uplink: int) -> tuple[float, bool]:
            used = (self._sums[uplink] + load) / self._capacities[uplink]
            return used, self._homes is not None and self._homes[number] != uplink

        seen: set[tuple[float, float]] = set()
        branches = []
        for uplink in sorted(range(len(self._capacities)), key=rank):
            key = (self._sums[uplink], self._capacities[uplink])
            if key not in seen:
                seen.add(key)
                branches.append(uplink)
        return branches
