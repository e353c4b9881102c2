"""Solves rules and reservations as one problem: the best placement that uplinks have room for.

The quality of a placement is a vector, compared from the left: the rate that uplinks reserve beyond
their room, and then what `policies.placement` compares: affinity, anti-affinity, preferences, units
moved, and the policy's own order. Hard rules and pins are not part of it: they determine which
uplinks a unit may use at all.

Units are placed together if a set links them, or if uplinks that they may use could be asked for
more than their room (`contended`). If the best placement by rules alone exceeds the room by no more
than is unavoidable, it is the answer. Otherwise, if there are more than `FEW_WAYS` ways to place
all units, that placement and some others are improved step by step; the others place the largest
units, or those with the fewest choices, first. Then branch and bound searches all placements that
could be better, unless more than `WHOLE_UNITS` units have a choice. The search always completes if
there are at most `FEW_WAYS` ways, as with 6 units on 4 uplinks, and usually with many more. After
`STEPS_MAX` steps, the best placement so far is the answer. The result depends only on the arguments.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies import placement
from policies.placement import Candidate
from policies.seating import Problem, State, exactly

# Placements examined, in whole or in part. This takes two tenths of a second, as far as measured.
STEPS_MAX = 12_000
# At most this many of them improve one placement, before another start is tried.
ATTEMPT_STEPS = 2000
ATTEMPTS = 4
# Up to this many ways to place all units, the search begins at once: 6 units on 4 uplinks.
FEW_WAYS = 4**6
# With more units than this, there is no search over all units, only over those of a few uplinks.
WHOLE_UNITS = 40
# For such a part: the number of units, the smallest, because they fill gaps best; and the number of
# steps.
PART_UNITS = 14
PART_STEPS = 600
# The number of partners of about the right size that an exchange tries, larger and smaller.
NEIGHBOURS = 2


@dataclass(frozen=True, slots=True)
class Found:
    """A placement. `steps`: how many were examined for it. `proven`: no placement is better."""

    by_name: Mapping[str, str]
    steps: int = 0
    proven: bool = True


def place(candidates: Iterable[Candidate], rooms_bps: Mapping[str, float]) -> dict[str, str]:
    """The best uplink of every unit. Units that may use none have none.

    `rooms_bps`: the rate that each uplink can reserve.
    """
    able = sorted((c for c in candidates if c.able), key=lambda c: c.name)
    found: dict[str, str] = {}
    for linked in placement.components(able, contended(able, rooms_bps)):
        found |= solve(linked, rooms_bps).by_name
    return found


def solve(linked: Sequence[Candidate], rooms_bps: Mapping[str, float]) -> Found:
    """The best placement of units that are placed together, by name."""
    if not any(candidate.reserve_bps for candidate in linked):
        return Found(placement.place(linked))
    names = {uplink for candidate in linked for uplink in candidate.able}
    rooms = tuple((name, exactly(rooms_bps[name])) for name in sorted(names))
    return _solve(tuple(linked), rooms)


def contended(candidates: Iterable[Candidate], rooms_bps: Mapping[str, float]) -> frozenset[str]:
    """The uplinks that would exceed their room if all units that may use them did."""
    asked = Counter[str]()
    for candidate in candidates:
        if candidate.reserve_bps:
            for uplink in candidate.able:
                asked[uplink] += exactly(candidate.reserve_bps)
    return frozenset(name for name in asked if asked[name] > exactly(rooms_bps[name]))


# Each component keeps all of its units.
@functools.lru_cache(maxsize=64)
def _solve(candidates: tuple[Candidate, ...], rooms: tuple[tuple[str, int], ...]) -> Found:
    """Use the placement by rules alone if no placement exceeds room by less; otherwise search."""
    problem = Problem(candidates, rooms)
    by_rules = placement.place(candidates)
    at = problem.numbers(by_rules)
    state = State(problem)
    units = problem.choosing()
    state.put_fixed()
    least = state.over + problem.bounding(units).more(0, state)
    state.put_all(at)
    if state.over <= least:
        return Found(by_rules)
    search = _Search(problem)
    search.offer(at)
    # Nothing should move without a benefit.
    search.offer(problem.staying(at))
    return search.run()


# Units that move at once, and their targets.
_Way = tuple[tuple[int, int], ...]


class _Search:
    """The best placement so far, and the number of placements examined."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.best: list[int] = []
        self.least: int | None = None
        self.steps = 0
        self._units = problem.choosing()
        self._offered: list[list[int]] = []
        self._until = 0

    def run(self) -> Found:
        """Improve the offered placements and others if there are many ways; then search all ways."""
        if math.prod(len(self.problem.able[unit]) for unit in self._units) > FEW_WAYS:
            for at in itertools.chain(self._offered, self._starts()):
                self._improve(at)
                if self.steps >= ATTEMPTS * ATTEMPT_STEPS:
                    break
            self._rest_by_rules()
        whole = len(self._units) <= WHOLE_UNITS
        proven = whole and self._through(self._units, STEPS_MAX - self.steps)
        return Found(self.problem.names(self.best), self.steps, proven)

    def offer(self, at: Sequence[int]) -> None:
        state = State(self.problem)
        state.put_all(at)
        self._take(state)
        if state.at not in self._offered:
            self._offered.append(state.at)

    def _take(self, state: State) -> bool:
        if self.least is not None and state.bound >= self.least:
            return False
        self.best, self.least = state.at.copy(), state.bound
        return True

    @property
    def _spent(self) -> bool:
        return self.steps >= self._until

    # ---- where to begin ----

    def _starts(self) -> Iterator[list[int]]:
        """New placements, unit by unit: the largest first, or the fewest choices first."""
        p = self.problem
        by_choice = sorted(self._units, key=lambda i: (len(p.able[i]), -p.reserves[i], i))
        for units in (self._units, by_choice):
            for emptiest in (False, True):
                state = State(p)
                state.put_fixed()
                for unit in units:
                    self._put_best(state, unit, emptiest)
                yield state.at

    def _put_best(self, state: State, unit: int, emptiest: bool) -> None:
        """Place a unit where it fits best: least excess, most room if `emptiest`, then least cost."""
        p, ways = self.problem, []
        for uplink in p.able[unit]:
            free = p.rooms[uplink] - state.promised[uplink]
            state.put(unit, uplink)
            ways.append(((state.over, -free if emptiest else 0, state.bound, uplink), uplink))
            state.take(unit)
        self.steps += len(ways)
        state.put(unit, min(ways)[1])

    # ---- step by step ----

    def _improve(self, at: Sequence[int]) -> None:
        """Apply the best move, exchange or rearrangement until none helps or steps run out."""
        state, self._until = State(self.problem), self.steps + ATTEMPT_STEPS
        state.put_all(at)
        while not self._spent and (self._step(state) or self._anew(state)):
            pass
        self._take(state)

    def _step(self, state: State) -> bool:
        """Make the best move of misplaced units, or if none helps the best exchange.

        Returns whether one lowered the cost.
        """
        before, units = state.bound, self._misplaced(state)
        best: tuple[int, _Way] = before, ()
        for ways in (self._moves(state, units), self._exchanges(state, units)):
            for way in ways:
                if self._spent:
                    break
                self.steps += 1
                back = [(unit, state.at[unit]) for unit, _ in way]
                for unit, uplink in way:
                    state.move(unit, uplink)
                best = min(best, (state.bound, way))
                for unit, uplink in back:
                    state.move(unit, uplink)
            if best[0] < before:
                for unit, uplink in best[1]:
                    state.move(unit, uplink)
                return True
        return False

    def _misplaced(self, state: State) -> list[int]:
        """The units to move: those with reservations on uplinks beyond their room.

        If no uplink is, the units that another uplink would suit better, and if a set is not
        satisfied, the members of all sets.
        """
        p = self.problem
        if state.over:
            full = set(state.full())
            return [i for i in self._units if state.at[i] in full and p.reserves[i]]
        wishing = [i for i in self._units if p.costs[i][state.at[i]] > p.least[i]]
        if state.away or state.pairs:
            in_sets = (p.affine, p.apart)
            wishing += [i for i in self._units if any(of[i] is not None for of in in_sets)]
        return list(dict.fromkeys(wishing))

    def _moves(self, state: State, units: Iterable[int]) -> Iterator[_Way]:
        """Moves of single units, and of affinity sets as far as they may move together."""
        p = self.problem
        sets = set[int]()
        for unit in units:
            yield from (((unit, u),) for u in p.able[unit] if u != state.at[unit])
            if (number := p.affine[unit]) is not None:
                sets.add(number)
        of_set = p.members(p.affine) if sets else []
        for number in sorted(sets):
            for uplink in range(len(p.uplinks)):
                way = tuple(
                    (i, uplink)
                    for i in of_set[number]
                    if uplink in p.costs[i] and state.at[i] != uplink
                )
                if len(way) > 1:
                    yield way

    def _exchanges(self, state: State, units: Sequence[int]) -> Iterator[_Way]:
        """Exchanges with units of other uplinks that are of about the right size.

        That is smaller by the excess of the source, smaller by the free room of the target, or equal.
        """
        p = self.problem
        there: dict[int, list[int]] = {}
        for unit in self._units:
            there.setdefault(state.at[unit], []).append(unit)
        for members in there.values():
            members.sort(key=lambda i: (p.reserves[i], i))
        for unit in units:
            source = state.at[unit]
            for uplink in p.able[unit]:
                if uplink == source:
                    continue
                over = max(0, state.promised[source] - p.rooms[source])
                free = p.rooms[uplink] - state.promised[uplink]
                sizes = {p.reserves[unit] - over, p.reserves[unit] - free, p.reserves[unit]}
                for other in self._near(there.get(uplink, []), sizes):
                    if source in p.costs[other]:
                        yield (unit, uplink), (other, source)

    def _near(self, units: Sequence[int], sizes: Iterable[int]) -> list[int]:
        reserves = self.problem.reserves
        found: dict[int, None] = {}
        for size in sorted(sizes):
            low, high = 0, len(units)
            while low < high:
                middle = (low + high) // 2
                if reserves[units[middle]] < size:
                    low = middle + 1
                else:
                    high = middle
            found |= dict.fromkeys(units[max(0, low - NEIGHBOURS) : low + NEIGHBOURS])
        return list(found)

    # ---- all there are ----

    def _anew(self, state: State) -> bool:
        """Rearrange the smallest units of two or three uplinks, one of which exceeds its room.

        Returns whether that lowered the cost.
        """
        p = self.problem
        full = state.full()[:2]
        others = sorted(range(len(p.uplinks)), key=lambda u: (state.promised[u] - p.rooms[u], u))[
            :6
        ]
        before = state.bound
        for more in (1, 2):
            for one in full:
                for rest in itertools.combinations([u for u in others if u != one], more):
                    if self._spent:
                        return False
                    part = {one, *rest}
                    units = [i for i in self._units if state.at[i] in part and p.reserves[i]]
                    units = p.in_order(units)[-PART_UNITS:]
                    found = _Through(self, state, units, PART_STEPS).run(state.bound, part)
                    if found is not None and found[0] < before:
                        for unit, uplink in zip(units, found[1], strict=True):
                            state.move(unit, uplink)
                        return True
        return False

    def _through(self, units: Sequence[int], most: int) -> bool:
        """Search all placements that could be better. Returns whether the search completed."""
        state = State(self.problem)
        state.put_all(self.best)
        search = _Through(self, state, units, most)
        found = search.run(self.least, None)
        if found is not None:
            for unit, uplink in zip(units, found[1], strict=True):
                state.move(unit, uplink)
            self._take(state)
        return search.ended

    def _rest_by_rules(self) -> None:
        """Offer the best placement in which units with reservations stay and rules place the rest."""
        p = self.problem
        fixed = []
        if all(p.reserves[unit] for unit in self._units):
            return
        for candidate, uplink, reserve in zip(p.candidates, self.best, p.reserves, strict=True):
            name = p.uplinks[uplink]
            able = (name,) if reserve else candidate.able
            ranks = (candidate.ranks[candidate.able.index(name)],) if reserve else candidate.ranks
            fixed.append(
                Candidate(
                    candidate.name,
                    able,
                    ranks,
                    candidate.current,
                    candidate.affinity,
                    candidate.anti_affinity,
                )
            )
        self.offer(p.numbers(placement.place(fixed)))


class _Through:
    """Branch and bound over the units, each on its best uplink first.

    All other units stay. `ended`: the search completed within its steps.
    """

    def __init__(self, search: _Search, state: State, units: Sequence[int], most: int) -> None:
        self._search, self._state, self._units = search, state, units
        self._bounding = search.problem.bounding(units)
        self._left = most
        self._over = search.problem.over
        self._best: list[int] | None = None
        self._least: int | None = None
        self._part: set[int] | None = None
        self.ended = True

    def run(self, least: int | None, part: set[int] | None) -> tuple[int, list[int]] | None:
        """The cost and the units' uplinks of the best placement that costs less than `least`.

        None if there is none. `least` None: any cost. `part`: the uplinks to use; None: all. Leaves
        the state unchanged.
        """
        state, self._least, self._part = self._state, least, part
        before = [state.take(unit) for unit in self._units]
        self._go_on(0)
        for unit, uplink in zip(self._units, before, strict=True):
            state.put(unit, uplink)
        if self._best is None or self._least is None:
            return None
        return self._least, self._best

    def _go_on(self, k: int) -> None:
        state = self._state
        if k == len(self._units):
            if self._least is None or state.bound < self._least:
                self._least = state.bound
                self._best = [state.at[unit] for unit in self._units]
            return
        unit, ways = self._units[k], []
        for uplink in self._search.problem.able[unit]:
            if self._part is None or uplink in self._part:
                state.put(unit, uplink)
                bound = state.bound + self._over * self._bounding.more(k + 1, state)
                state.take(unit)
                if self._least is None or bound < self._least:
                    ways.append((bound, uplink))
        self._search.steps += 1
        self._left -= 1
        for bound, uplink in sorted(ways):
            if self._least is not None and bound >= self._least:
                return
            if self._left <= 0:
                self.ended = False
                return
            state.put(unit, uplink)
            self._go_on(k + 1)
            state.take(unit)
