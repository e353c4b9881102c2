"""Represents placement problems as numbers, and placements whose cost is updated at each move."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies.model import NO_RULES, Rules

# Sums of reservations must be exact, so they are counted in thousandths of a bit per second.
PER_BPS = 1000
# Up to this many uplinks, the bound checks every subset that units are confined to.
SUBSETS_OF = 4


def exactly(bps: float) -> int:
    return round(bps * PER_BPS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit and the uplinks that it can use, in its policy's order: the best first.

    `ranks`: the rank of each uplink in its preferences. `current`: its current uplink or home.
    `rules`: its sets, and the rate reserved for it.
    """

    name: str
    able: tuple[str, ...]
    ranks: tuple[int, ...]
    current: str | None = None
    rules: Rules = NO_RULES


# Units that move together: a single unit, or an affinity set.
Block = tuple[int, ...]


class Problem:
    """A placement problem: units and uplinks, numbered in the order of their names, and costs.

    A cost is one whole number, in which each part (`policies.placement`) outweighs all later ones.
    `costs`: by unit, the cost of each usable uplink beyond the least cost, in its policy's order.
    `affine`, `apart`: the members of affinity and anti-affinity sets. A block is placed as a whole.
    `easy`: by anti-affinity set, the blocks that a min-cost flow places. `hard`: other blocks.
    """

    def __init__(
        self, candidates: Sequence[Candidate], rooms: Mapping[str, int] | None = None
    ) -> None:
        """Number units and uplinks, and compute costs. Without `rooms`, ignore reservations."""
        self.candidates = candidates
        self.uplinks = sorted({name for c in candidates for name in c.able})
        self.rooms = [rooms[name] if rooms else 0 for name in self.uplinks]
        self.reserves = [exactly(c.rules.reserve_bps) if rooms else 0 for c in candidates]
        self._numbers = {name: number for number, name in enumerate(self.uplinks)}
        self.able = [sorted(self._numbers[name] for name in c.able) for c in candidates]
        units, longest = len(candidates), max(len(c.able) for c in candidates)
        moved = units * longest + 1
        rank = moved * (units + 1)
        self.pair = rank * (units * max(max(c.ranks) for c in candidates) + 1)
        self.away = self.pair * (units * (units - 1) // 2 + 1)
        self.over = self.away * (units + 1)
        self.costs: list[dict[int, int]] = []
        for c in candidates:
            costs = {
                self._numbers[name]: c.ranks[i] * rank + (c.current not in (None, name)) * moved + i
                for i, name in enumerate(c.able)
            }
            least = min(costs.values())
            self.costs.append({uplink: cost - least for uplink, cost in costs.items()})
        self.affine = _members(c.rules.affinity for c in candidates)
        self.apart = _members(c.rules.anti_affinity for c in candidates)
        self.set_of = {i: number for number, members in enumerate(self.apart) for i in members}
        affine_of = {i: number for number, members in enumerate(self.affine) for i in members}
        # The units that have a choice, the most decisive first: the largest reservations, then the
        # fewest choices. Otherwise equal members of a set are next to each other.
        sets = [(affine_of.get(i, -1), self.set_of.get(i, -1)) for i in range(units)]
        self.choosing = sorted(
            (i for i in range(units) if len(self.able[i]) > 1),
            key=lambda i: (-self.reserves[i], len(self.able[i]), sets[i], i),
        )
        whole = {i: members for members in self.affine if self.ways(members) for i in members}
        alone = [(i,) for i in range(units) if i not in whole]
        self.easy: list[list[Block]] = [[] for _ in self.apart]
        self.hard: list[Block] = []
        for block in [*alone, *dict.fromkeys(whole.values())]:
            of = [self.set_of[i] for i in block if i in self.set_of]
            divided = block[0] in affine_of and block[0] not in whole
            if len(of) == 1 and not divided and not any(self.reserves[i] for i in block):
                self.easy[of[0]].append(block)
            else:
                self.hard.append(block)
        # Blocks in most sets have the most influence.
        self.hard.sort(key=lambda block: (-sum(i in self.set_of for i in block), block))

    def ways(self, block: Block) -> list[int]:
        """Return the uplinks that all units of a block can use, in the order of its first unit."""
        if len(block) == 1:
            return self.able[block[0]]
        return [u for u in self.costs[block[0]] if all(u in self.costs[i] for i in block)]

    def numbers(self, found: Mapping[str, str]) -> list[int]:
        return [self._numbers[found[c.name]] for c in self.candidates]

    def names(self, at: Sequence[int]) -> dict[str, str]:
        return {c.name: self.uplinks[u] for c, u in zip(self.candidates, at, strict=True)}

    def staying(self, at: Sequence[int]) -> list[int]:
        """Return the placement `at`, but with units on their current uplink if they can use it."""
        here = [self._numbers.get(c.current or "", -1) for c in self.candidates]
        return [h if h in a else o for h, a, o in zip(here, self.able, at, strict=True)]


def _members(names: Iterable[str | None]) -> list[tuple[int, ...]]:
    """Return the units of each set."""
    found: dict[str, list[int]] = {}
    for unit, name in enumerate(names):
        if name is not None:
            found.setdefault(name, []).append(unit)
    return [tuple(members) for members in found.values()]


class Bounding:
    """A lower bound on the excess of reservations that the remaining units will add.

    Even if reservations were divided like a fluid, units that are confined to some uplinks would
    need more room than these uplinks have.
    """

    def __init__(self, problem: Problem, units: Sequence[int]) -> None:
        self._rooms = problem.rooms
        useful = sorted({u for i in units if problem.reserves[i] for u in problem.able[i]})
        sizes = range(1 if len(problem.uplinks) <= SUBSETS_OF else len(useful), len(useful) + 1)
        # By subset: the reservations of units confined to it, for each unit and all later ones.
        self._demands: list[tuple[tuple[int, ...], list[int]]] = []
        for subset in (s for n in sizes for s in itertools.combinations(useful, n)):
            asked = [problem.reserves[i] * (set(problem.able[i]) <= {*subset}) for i in units]
            left = [*itertools.accumulate(reversed(asked), initial=0)][::-1]
            if left[0]:
                self._demands.append((subset, left))

    def more(self, k: int, promised: Sequence[int]) -> int:
        """Return the lower bound after the first `k` units have reserved `promised` on uplinks."""
        most, rooms = 0, self._rooms
        for subset, left in self._demands:
            short = left[k]
            if short > most:
                for u in subset:
                    free = rooms[u] - promised[u]
                    if free > 0:
                        short -= free
                most = max(most, short)
        return most


class State:
    """A placement of some or all units, and a lower bound on its cost (`bound`).

    `over`: by how much reservations exceed the room on uplinks. In `bound`, unplaced members of
    (anti-)affinity sets are counted on the uplinks where they cost least.
    """

    def __init__(self, problem: Problem, at: Sequence[int] = (), *, partly: bool = False) -> None:
        """Place units on the uplinks `at`; without `at`, only the units without a choice.

        `partly`: place no units; pairs of members without a place are not part of the bound.
        """
        self.problem = problem
        count = len(problem.uplinks)
        self.at = [-1] * len(problem.able)
        self.promised = [0] * count
        self.over = 0
        self._together: dict[int, _Together] = {}
        self._apart: dict[int, _Apart] = {}
        self.bound = 0
        for members in problem.affine:
            together = _Together(members, problem.able, count)
            self.bound += problem.away * together.away
            self._together |= dict.fromkeys(members, together)
        for members in problem.apart:
            apart = _Apart(members, problem.able, count, 0 if partly else len(members))
            self.bound += problem.pair * apart.pairs
            self._apart |= dict.fromkeys(members, apart)
        for unit, able in enumerate(problem.able):
            if at or (len(able) == 1 and not partly):
                self.put((unit,), at[unit] if at else able[0])

    def put(self, block: Block, uplink: int) -> list[tuple[int, int]]:
        """Move a block's units to one uplink (-1: to none). Return the reverse moves."""
        return self.move([(unit, uplink) for unit in block])

    def move(self, way: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Move units to uplinks (-1: to none). Return the reverse moves."""
        back = []
        for unit, uplink in way:
            source = self.at[unit]
            back.append((unit, source))
            if source >= 0:
                self._count(unit, source, -1)
            self.at[unit] = uplink
            if uplink >= 0:
                self._count(unit, uplink, 1)
        return back

    def _count(self, unit: int, uplink: int, more: int) -> None:
        """Count a unit that is added to an uplink (`more` is 1) or removed from it (-1)."""
        p = self.problem
        bound = self.bound + more * p.costs[unit][uplink]
        if reserve := p.reserves[unit]:
            before = self.promised[uplink] - p.rooms[uplink]
            after = before + more * reserve
            self.promised[uplink] += more * reserve
            over = (after if after > 0 else 0) - (before if before > 0 else 0)
            self.over += over
            bound += p.over * over
        if together := self._together.get(unit):
            bound += p.away * together.put(p.able[unit], uplink, more)
        if apart := self._apart.get(unit):
            bound += p.pair * apart.put(uplink, more)
        self.bound = bound


class _Together:
    """An affinity set: a lower bound on the number of members outside the largest group."""

    def __init__(self, members: Sequence[int], able: Sequence[Sequence[int]], count: int) -> None:
        self._size = len(members)
        # By uplink: the number of members that are on it, or may still be placed on it.
        self._reach = [0] * count
        for unit in members:
            for uplink in able[unit]:
                self._reach[uplink] += 1
        self.away = self._size - max(self._reach)

    def put(self, able: Sequence[int], uplink: int, more: int) -> int:
        """Put a member on `uplink` (`more` is 1) or take it off (-1). Return the change in `away`."""
        for other in able:
            if other != uplink:
                self._reach[other] -= more
        before, self.away = self.away, self._size - max(self._reach)
        return self.away - before


class _Apart:
    """An anti-affinity set: a lower bound on the number of pairs that share an uplink."""

    def __init__(
        self, members: Sequence[int], able: Sequence[Sequence[int]], count: int, left: int
    ) -> None:
        self._there = [0] * count
        self._left = left
        self._useful = sorted({uplink for unit in members for uplink in able[unit]})
        self.pairs = self._least()

    def put(self, uplink: int, more: int) -> int:
        self._there[uplink] += more
        self._left -= more
        before, self.pairs = self.pairs, self._least()
        return self.pairs - before

    def _least(self) -> int:
        """Return the bound with the remaining members spread as evenly as possible."""
        there = [self._there[uplink] for uplink in self._useful]
        pairs = sum(n * (n - 1) // 2 for n in there)
        level, left = min(there), self._left
        while left > 0:
            some = min(left, sum(n <= level for n in there))
            pairs += some * level
            left -= some
            level += 1
        return pairs
