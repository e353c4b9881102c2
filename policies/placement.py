"""Finds the best placement of units under operators' rules and reservations.

The quality of a placement is a vector, compared from the left: the rate that uplinks reserve beyond
their room, members away from their affinity set, pairs of an anti-affinity set on one uplink, ranks
of preferences, units moved, and the rank of each unit's uplink in the policy's own order. Hard
rules and pins are not part of it: they determine which uplinks a unit can use at all.

Units are placed together if a set links them, or if they could reserve more than the room of
uplinks that they share (`contended`). First, rules alone place the units. A unit or affinity set
that is one member of one anti-affinity set is placed by a min-cost flow: the k-th member on an
uplink costs k - 1 pairs, and members move in chains until the cost is lowest. Branch and bound
places all other units; the min-cost flows are part of its bound. If this placement exceeds the room
by no more than is unavoidable, it is the result. Otherwise, if there are more than `FEW_WAYS` ways
to place all units, this and other placements are improved move by move. Then branch and bound
searches all better placements, unless more than `WHOLE_UNITS` units have a choice.

Both searches have a step limit. They complete if there are at most `FEW_WAYS` ways, as with 6
units on 4 uplinks, and usually with many more. The result depends only on the arguments.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from policies.seating import Block, Bounding, Candidate, Problem, State, exactly

# The most placements examined, in whole or in part. This took up to 0.2 s when it was measured.
STEPS_MAX = 12_000
# The most steps that improve one placement, before another start is tried.
ATTEMPT_STEPS = 1500
ATTEMPTS = 4
# The most steps of a search by rules alone, where each step also computes flows.
RULES_STEPS = 600
# Blocks beyond this number are placed before the search, because each takes a level of recursion.
HARD_MAX = 300
# Up to this many ways to place all units, the search begins immediately: 6 units on 4 uplinks.
FEW_WAYS = 4**6
# With more units than this, there is no search over all units.
WHOLE_UNITS = 40
# The number of partners of about the right size that an exchange tries.
NEIGHBOURS = 2


def place(
    candidates: Iterable[Candidate], rooms_bps: Mapping[str, float] | None = None
) -> dict[str, str]:
    """Return the best uplink of every unit. Units that cannot use any uplink are omitted.

    `rooms_bps`: the rate that can be reserved on each uplink; None: ignore reservations.
    """
    able = sorted((c for c in candidates if c.able), key=lambda c: c.name)
    found: dict[str, str] = {}
    for linked in components(able, contended(able, rooms_bps) if rooms_bps else ()):
        if rooms_bps and any(c.rules.reserve_bps for c in linked):
            rooms = {name: exactly(rooms_bps[name]) for c in linked for name in c.able}
            found |= _with_rooms(tuple(linked), tuple(sorted(rooms.items())))
        else:
            found |= _by_rules(tuple(linked))
    assert all(found[c.name] in c.able for c in able if c.name in found), "only permitted uplinks"
    return found


def components(
    candidates: Sequence[Candidate], contended: Container[str] = ()
) -> list[list[Candidate]]:
    """Group the units, so that no unit is linked to a unit of another group.

    Units are linked by sets, and by uplinks with less room than units can reserve (`contended`).
    """
    first: dict[tuple[str, str], int] = {}
    leads = list(range(len(candidates)))

    def lead(i: int) -> int:
        while leads[i] != i:
            leads[i] = i = leads[leads[i]]
        return i

    for i, c in enumerate(candidates):
        links = [("affinity", c.rules.affinity), ("anti-affinity", c.rules.anti_affinity)]
        if c.rules.reserve_bps:
            links += [("room", name) for name in c.able if name in contended]
        for kind, name in links:
            if name is not None:
                a, b = lead(first.setdefault((kind, name), i)), lead(i)
                leads[max(a, b)] = min(a, b)
    groups: dict[int, list[Candidate]] = {}
    for i, candidate in enumerate(candidates):
        groups.setdefault(lead(i), []).append(candidate)
    return list(groups.values())


def contended(candidates: Iterable[Candidate], rooms_bps: Mapping[str, float]) -> frozenset[str]:
    """Return the uplinks that would lack room if all units that can use them reserved on them."""
    asked = Counter[str]()
    for candidate in candidates:
        if candidate.rules.reserve_bps:
            for uplink in candidate.able:
                asked[uplink] += exactly(candidate.rules.reserve_bps)
    return frozenset(name for name in asked if asked[name] > exactly(rooms_bps[name]))


@functools.lru_cache(maxsize=4096)
def _by_rules(candidates: tuple[Candidate, ...]) -> Mapping[str, str]:
    if len(candidates) > 1:
        return _Search(Problem(candidates)).by_rules()
    (c,) = candidates
    costs = [(rank, c.current not in (None, c.able[i]), i) for i, rank in enumerate(c.ranks)]
    return {c.name: c.able[min(costs)[-1]]}


# Each component keeps all of its units.
@functools.lru_cache(maxsize=64)
def _with_rooms(
    candidates: tuple[Candidate, ...], rooms: tuple[tuple[str, int], ...]
) -> Mapping[str, str]:
    """Return the placement by rules alone if no other one exceeds the room by less; else search."""
    problem = Problem(candidates, dict(rooms))
    by_rules = place(candidates)
    at, empty = problem.numbers(by_rules), State(problem)
    least = empty.over + Bounding(problem, problem.choosing).more(0, empty.promised)
    if State(problem, at).over <= least:
        return by_rules
    # Nothing should move without a benefit.
    return _Search(problem).with_rooms([at, problem.staying(at)])


# Units that move together, and their targets.
_Way = tuple[tuple[int, int], ...]


class _Search:
    """The best placement so far, and the number of placements examined."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._best: list[int] = []
        self._least = math.inf
        self._steps = 0

    def by_rules(self) -> Mapping[str, str]:
        """Place the easy blocks with min-cost flows, and search all ways to place the other blocks."""
        p = self.problem
        state = State(p, partly=True)
        for number, blocks in enumerate(p.easy):
            for block in blocks:
                self._put_best(state, block)
            self._settle(state, number)
        for block in p.hard[HARD_MAX:]:
            self._put_best(state, block)
        ended = self._through(state, p.hard[:HARD_MAX], RULES_STEPS, settle=True)
        if not ended or len(p.hard) > HARD_MAX:
            self._improve(self._best)
        # Of units that are alike, the first by name get the first uplinks.
        alike: dict[object, list[int]] = {}
        for number, block in ((n, block) for n, blocks in enumerate(p.easy) for block in blocks):
            if len(block) == 1:
                key = number, *sorted(p.costs[block[0]].items())
                alike.setdefault(key, []).append(block[0])
        for units in alike.values():
            for unit, uplink in zip(units, sorted(self._best[i] for i in units), strict=True):
                self._best[unit] = uplink
        return p.names(self._best)

    def with_rooms(self, offered: Sequence[Sequence[int]]) -> Mapping[str, str]:
        """Return the best placement found. If many are possible, first improve `offered` and others."""
        p = self.problem
        for at in offered:
            self._keep(State(p, at))
        if math.prod(len(p.able[i]) for i in p.choosing) > FEW_WAYS:
            for at in itertools.chain(offered, self._starts()):
                self._improve(at)
                if self._steps >= ATTEMPTS * ATTEMPT_STEPS:
                    break
        if len(p.choosing) <= WHOLE_UNITS:
            self._through(State(p), [(i,) for i in p.choosing], STEPS_MAX - self._steps)
        return p.names(self._best)

    def _keep(self, state: State) -> None:
        if state.bound < self._least:
            self._best, self._least = state.at.copy(), state.bound

    def _starts(self) -> Iterator[list[int]]:
        """Yield new placements, made unit by unit: the largest or least flexible units first."""
        p = self.problem
        by_choice = sorted(p.choosing, key=lambda i: (len(p.able[i]), -p.reserves[i], i))
        for units, emptiest in itertools.product((p.choosing, by_choice), (False, True)):
            state = State(p)
            for unit in units:
                self._put_best(state, (unit,), emptiest)
            yield state.at

    def _put_best(self, state: State, block: Block, emptiest: bool = False) -> None:
        """Place a block where it fits best: least excess, most room if `emptiest`, then least cost."""
        ways = []
        for uplink in self.problem.ways(block):
            free = self.problem.rooms[uplink] - state.promised[uplink]
            back = state.put(block, uplink)
            ways.append((state.over, -free if emptiest else 0, state.bound, uplink))
            state.move(back)
        self._steps += len(ways)
        state.put(block, min(ways, key=lambda way: way[:-1])[-1])

    # ---- step by step ----

    def _improve(self, at: Sequence[int]) -> None:
        """Make the best move of each block, if one lowers the cost, until none does."""
        p, state, until = self.problem, State(self.problem, at), self._steps + ATTEMPT_STEPS
        blocks = [(i,) for i in p.choosing] + [s for s in p.affine if len(s) > 1]
        before = math.inf
        while state.bound < before and self._steps < until:
            before = state.bound
            for block in blocks:
                best: tuple[int, _Way] = state.bound, ()
                for way in itertools.chain(
                    self._moves(state, block), self._exchanges(state, block)
                ):
                    if self._steps >= until:
                        break
                    self._steps += 1
                    back = state.move(way)
                    best = min(best, (state.bound, way))
                    state.move(back)
                state.move(best[1])
            for number in range(len(p.apart)):
                self._settle(state, number)
        self._keep(state)

    def _moves(self, state: State, block: Block) -> Iterator[_Way]:
        """Yield the moves of a unit, or of the units of an affinity set that can move together."""
        p = self.problem
        for uplink in range(len(p.uplinks)):
            units = [i for i in block if uplink in p.costs[i] and state.at[i] != uplink]
            if len(units) > 1 or (units and len(block) == 1):
                yield tuple((i, uplink) for i in units)

    def _exchanges(self, state: State, block: Block) -> Iterator[_Way]:
        """Yield exchanges of a misplaced unit with units of about the right size on other uplinks.

        The right size is that of the unit, or less by the source's excess or the target's room.
        """
        p, unit = self.problem, block[0]
        source, size = state.at[unit], p.reserves[unit]
        over = max(0, state.promised[source] - p.rooms[source])
        if len(block) > 1 or not size or not (over or p.costs[unit][source]):
            return
        for uplink in p.able[unit]:
            there = [i for i in p.choosing if state.at[i] == uplink and source in p.costs[i]]
            if uplink != source:
                free = p.rooms[uplink] - state.promised[uplink]
                for right in sorted({size - over, size - free, size}):
                    there.sort(key=lambda i: (abs(p.reserves[i] - right), i))
                    for other in there[:NEIGHBOURS]:
                        yield (unit, uplink), (other, source)

    def _settle(self, state: State, number: int) -> list[tuple[int, int]]:
        """Move easy blocks of an anti-affinity set to their best uplinks. Return the reverse moves.

        Blocks move in chains, each to the place of the next, while that lowers the cost.
        """
        p, off, way, back = self.problem, len(self.problem.uplinks), [(0, 0)], []
        while p.easy[number] and way:
            there = Counter(state.at[i] for i in p.apart[number])
            # The cheapest move from each uplink to each other one; a chain begins and ends at `off`.
            edges: dict[tuple[int, int], tuple[int, _Way]] = {}
            for u in range(off):
                edges[u, off] = p.pair * there[u], ()
                edges[off, u] = -p.pair * (there[u] - 1), ()
            for block in p.easy[number]:
                source = state.at[block[0]]
                if any(state.at[i] != source for i in block):
                    continue
                for uplink in p.ways(block):
                    cost = sum(p.costs[i][uplink] - p.costs[i][source] for i in block)
                    edge = edges.get((source, uplink))
                    if uplink != source and (edge is None or cost < edge[0]):
                        edges[source, uplink] = cost, tuple((i, uplink) for i in block)
            way = _cycle(edges, off + 1)
            back += state.move(way)
            self._steps += 1
        return back[::-1]

    # ---- all placements ----

    def _through(
        self, state: State, blocks: Sequence[Block], most: int, settle: bool = False
    ) -> bool:
        """Search all placements of these blocks, each on its best uplink first, by branch and bound.

        All other units stay, except easy ones if `settle`. Returns whether the search completed.
        """
        p, until, ended = self.problem, self._steps + most, True
        bounding = Bounding(p, [i for block in blocks for i in block])
        uplinks = [p.ways(block) for block in blocks]
        # For each block: the cost of it and all later blocks beyond the least costs of their units.
        costs = [
            min(sum(p.costs[i][u] for i in block) for u in ways)
            for block, ways in zip(blocks, uplinks, strict=True)
        ]
        more = [*itertools.accumulate(reversed(costs), initial=0)][::-1]

        def put(block: Block, uplink: int) -> list[tuple[int, int]]:
            back = state.put(block, uplink)
            sets = {p.set_of[i] for i in block if i in p.set_of} if settle else ()
            settled = [move for number in sorted(sets) for move in self._settle(state, number)]
            return settled + back

        def go_on(k: int) -> None:
            nonlocal ended
            if k == len(blocks):
                self._keep(state)
                return
            block, ways = blocks[k], []
            for uplink in uplinks[k]:
                back = put(block, uplink)
                bound = state.bound + more[k + 1] + p.over * bounding.more(k + 1, state.promised)
                state.move(back)
                if bound < self._least:
                    ways.append((bound, uplink))
            self._steps += 1
            for bound, uplink in sorted(ways, key=lambda way: way[0]):
                if bound >= self._least:
                    return
                if self._steps >= until and self._best:
                    ended = False
                    return
                back = put(block, uplink)
                go_on(k + 1)
                state.move(back)

        go_on(0)
        return ended


def _cycle(edges: Mapping[tuple[int, int], tuple[int, _Way]], count: int) -> list[tuple[int, int]]:
    """Return the moves of a cycle of edges that lowers the cost, or none (Bellman-Ford)."""
    far, via, last = [0] * count, [0] * count, -1
    for _ in range(count):
        last = -1
        for (u, v), (cost, _way) in edges.items():
            if far[u] + cost < far[v]:
                far[v], via[v], last = far[u] + cost, u, v
        if last < 0:
            return []
    for _ in range(count):
        last = via[last]
    way, v = list(edges[via[last], last][1]), via[last]
    while v != last:
        way += edges[via[v], v][1]
        v = via[v]
    return way
