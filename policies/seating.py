"""Units and uplinks by number, and a placement whose cost is updated as units come and go."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from policies.placement import Candidate

# Sums of reservations must be exact, so they are counted in thousandths of a bit per second.
PER_BPS = 1000
# Up to this many uplinks, the bound checks every subset that units are confined to.
SUBSETS_OF = 4


def exactly(bps: float) -> int:
    return round(bps * PER_BPS)


class Problem:
    """A problem: units and uplinks by number, in the order of their names, with their costs.

    A cost is one whole number, in which each component of the vector outweighs all that follow.
    """

    def __init__(self, candidates: Sequence[Candidate], rooms: Sequence[tuple[str, int]]) -> None:
        self.candidates = candidates
        self.uplinks = [name for name, _ in rooms]
        self.rooms = [room for _, room in rooms]
        of = {name: number for number, name in enumerate(self.uplinks)}
        self.count = len(candidates)
        self.reserves = [exactly(c.reserve_bps) for c in candidates]
        self.able = [sorted(of[name] for name in c.able) for c in candidates]
        units, longest = self.count, max(len(c.able) for c in candidates)
        ranks = max(rank for c in candidates for rank in c.ranks)
        moved = units * longest + 1
        rank = moved * (units + 1)
        self.pair = rank * (units * ranks + 1)
        self.away = self.pair * (units * (units - 1) // 2 + 1)
        self.over = self.away * (units + 1)
        self.costs: list[dict[int, int]] = [
            {
                of[name]: c.ranks[i] * rank + (c.current not in (None, name)) * moved + i
                for i, name in enumerate(c.able)
            }
            for c in candidates
        ]
        self.least = [min(costs.values()) for costs in self.costs]
        self.affine = self._sets([c.affinity for c in candidates])
        self.apart = self._sets([c.anti_affinity for c in candidates])

    def _sets(self, names: Sequence[str | None]) -> list[int | None]:
        """The number of each unit's set; None for a unit without a set."""
        numbers: dict[str, int] = {}
        return [None if n is None else numbers.setdefault(n, len(numbers)) for n in names]

    def members(self, sets: Sequence[int | None]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in {s for s in sets if s is not None}]
        for unit, number in enumerate(sets):
            if number is not None:
                found[number].append(unit)
        return found

    def choosing(self) -> list[int]:
        """The units that may use several uplinks, as `in_order`."""
        units = [unit for unit in range(self.count) if len(self.able[unit]) > 1]
        return self.in_order(units)

    def in_order(self, units: Iterable[int]) -> list[int]:
        """The most decisive units first: the largest reservations, then the fewest choices.

        Otherwise equal members of a set are next to each other.
        """
        return sorted(
            units,
            key=lambda i: (
                -self.reserves[i],
                len(self.able[i]),
                -1 if self.affine[i] is None else self.affine[i],
                -1 if self.apart[i] is None else self.apart[i],
                i,
            ),
        )

    def bounding(self, units: Sequence[int]) -> Bounding:
        return Bounding(self, units)

    def numbers(self, found: Mapping[str, str]) -> list[int]:
        of = {name: number for number, name in enumerate(self.uplinks)}
        return [of[found[candidate.name]] for candidate in self.candidates]

    def staying(self, at: Sequence[int]) -> list[int]:
        """The placement `at`, but units that may use their current uplink stay there."""
        of = {name: number for number, name in enumerate(self.uplinks)}
        here = [of.get(c.current or "", -1) for c in self.candidates]
        return [h if h in a else o for h, a, o in zip(here, self.able, at, strict=True)]

    def names(self, at: Sequence[int]) -> dict[str, str]:
        return {c.name: self.uplinks[u] for c, u in zip(self.candidates, at, strict=True)}


class Bounding:
    """A lower bound of the excess of reservations that the remaining units will add.

    Even if divided like a fluid, units that are confined to some uplinks need more room than these
    have.
    """

    def __init__(self, problem: Problem, units: Sequence[int]) -> None:
        self._rooms = problem.rooms
        every = range(len(problem.uplinks))
        reserving = [unit for unit in units if problem.reserves[unit]]
        useful = sorted({u for unit in reserving for u in problem.able[unit]})
        subsets: Iterable[tuple[int, ...]] = [tuple(useful)]
        if len(every) <= SUBSETS_OF:
            subsets = [s for n in every for s in itertools.combinations(useful, n + 1)]
        self._demands: list[tuple[tuple[int, ...], list[int]]] = []
        for subset in subsets:
            left, demand = [0] * (len(units) + 1), 0
            for k in range(len(units) - 1, -1, -1):
                if all(u in subset for u in problem.able[units[k]]):
                    demand += problem.reserves[units[k]]
                left[k] = demand
            if demand:
                self._demands.append((subset, left))

    def more(self, k: int, state: State) -> int:
        """The bound after the first `k` units have their places."""
        most, rooms, promised = 0, self._rooms, state.promised
        for subset, left in self._demands:
            short = left[k]
            if short > most:
                for u in subset:
                    free = rooms[u] - promised[u]
                    if free > 0:
                        short -= free
                if short > most:
                    most = short
        return most


class State:
    """A placement of some or all units. `bound`: a lower bound of its cost, updated with each unit.

    `over`: the reservations beyond the uplinks' room. Members of sets without a place yet are
    assumed where they cost least.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        count = len(problem.uplinks)
        self.at = [-1] * problem.count
        self.promised = [0] * count
        self.over = 0
        self.linear = sum(problem.least)
        self._together = [
            _Together(members, problem.able, count) for members in problem.members(problem.affine)
        ]
        self._apart = [
            _Apart(members, problem.able, count) for members in problem.members(problem.apart)
        ]
        self.away = sum(s.away for s in self._together)
        self.pairs = sum(s.pairs for s in self._apart)

    @property
    def bound(self) -> int:
        p = self.problem
        return p.over * self.over + p.away * self.away + p.pair * self.pairs + self.linear

    def put(self, unit: int, uplink: int) -> None:
        p = self.problem
        self.at[unit] = uplink
        self.linear += p.costs[unit][uplink] - p.least[unit]
        if more := p.reserves[unit]:
            before = self.promised[uplink] - p.rooms[uplink]
            self.promised[uplink] += more
            self.over += max(0, before + more) - max(0, before)
        if (number := p.affine[unit]) is not None:
            self.away += self._together[number].put(p.able[unit], uplink, 1)
        if (number := p.apart[unit]) is not None:
            self.pairs += self._apart[number].put(uplink, 1)

    def take(self, unit: int) -> int:
        """Remove a unit from its uplink. Returns that uplink."""
        p, uplink = self.problem, self.at[unit]
        self.at[unit] = -1
        self.linear -= p.costs[unit][uplink] - p.least[unit]
        if less := p.reserves[unit]:
            before = self.promised[uplink] - p.rooms[uplink]
            self.promised[uplink] -= less
            self.over += max(0, before - less) - max(0, before)
        if (number := p.affine[unit]) is not None:
            self.away += self._together[number].put(p.able[unit], uplink, -1)
        if (number := p.apart[unit]) is not None:
            self.pairs += self._apart[number].put(uplink, -1)
        return uplink

    def move(self, unit: int, uplink: int) -> None:
        self.take(unit)
        self.put(unit, uplink)

    def put_all(self, at: Sequence[int]) -> None:
        for unit, uplink in enumerate(at):
            if self.at[unit] != uplink:
                if self.at[unit] >= 0:
                    self.take(unit)
                self.put(unit, uplink)

    def put_fixed(self) -> None:
        """Place units that have no choice."""
        for unit, able in enumerate(self.problem.able):
            if len(able) == 1:
                self.put(unit, able[0])

    def full(self) -> list[int]:
        """The uplinks with reservations beyond their room, the worst first."""
        over = [more - room for more, room in zip(self.promised, self.problem.rooms, strict=True)]
        return sorted((u for u, more in enumerate(over) if more > 0), key=lambda u: (-over[u], u))


class _Together:
    """An affinity set: a lower bound of the members that are not where most are."""

    def __init__(self, members: Sequence[int], able: Sequence[Sequence[int]], count: int) -> None:
        self._size = len(members)
        # By uplink: the number of members that are there, and of those that may come.
        self._reach = [0] * count
        for unit in members:
            for uplink in able[unit]:
                self._reach[uplink] += 1
        self.away = self._size - max(self._reach)

    def put(self, able: Sequence[int], uplink: int, more: int) -> int:
        """A member comes (1), or goes and can choose again (-1). Returns the bound's change."""
        for other in able:
            if other != uplink:
                self._reach[other] -= more
        before, self.away = self.away, self._size - max(self._reach)
        return self.away - before


class _Apart:
    """An anti-affinity set: a lower bound of the pairs that share an uplink."""

    def __init__(self, members: Sequence[int], able: Sequence[Sequence[int]], count: int) -> None:
        self._there = [0] * count
        self._left = len(members)
        self._useful = sorted({uplink for unit in members for uplink in able[unit]})
        self.pairs = self._least()

    def put(self, uplink: int, more: int) -> int:
        self._there[uplink] += more
        self._left -= more
        before, self.pairs = self.pairs, self._least()
        return self.pairs - before

    def _least(self) -> int:
        """The bound with the remaining members spread as evenly as possible."""
        there = [self._there[uplink] for uplink in self._useful]
        pairs = sum(n * (n - 1) // 2 for n in there)
        if not self._left:
            return pairs
        if self._left == 1:
            return pairs + min(there)
        level, left = min(there), self._left
        while left:
            here = sum(n <= level for n in there)
            some = min(left, here)
            pairs += some * level
            left -= some
            level += 1
        return pairs
