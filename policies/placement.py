"""The best placement of units that are linked by sets, as a minimum-cost flow.

The quality of a placement is a vector, compared from the left: members away from their affinity
set, pairs of an anti-affinity set on one uplink, ranks of preferences, units moved, and the rank of
each unit's uplink in the policy's own order.

An affinity set is one node. Members of an anti-affinity set flow to uplinks, and the k-th member on
an uplink costs k - 1 pairs, so a set larger than the team is spread as evenly as possible. This is
exact if each node is one member of one anti-affinity set. A node with more memberships (an affinity
set with members in several such sets) is tried on each uplink. The flow without it is the bound
that cuts such trials short. After `FLOWS_MAX` flows, the best placement so far is the answer; if
there is none yet, the remaining nodes are placed one by one where they cost least. The result
depends only on the arguments.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# A tenth of a second with hundreds of units, as far as measured.
FLOWS_MAX = 100
# The ways to divide affinity sets whose members cannot be together.
DIVISIONS_MAX = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit and the uplinks that it may use, in its policy's order: the best first.

    `ranks`: the rank of each uplink in its preferences. `current`: its place or home.
    `reserve_bps`: the rate reserved for it; this module does not check whether it fits
    (`policies.reservations` does).
    """

    name: str
    able: tuple[str, ...]
    ranks: tuple[int, ...]
    current: str | None = None
    affinity: str | None = None
    anti_affinity: str | None = None
    reserve_bps: float = 0.0

    @property
    def in_set(self) -> bool:
        return self.affinity is not None or self.anti_affinity is not None


def place(candidates: Iterable[Candidate]) -> dict[str, str]:
    """The best uplink of every unit. Units that may use none have none."""
    found: dict[str, str] = {}
    able = sorted((c for c in candidates if c.able), key=lambda c: c.name)
    for linked in components(able):
        found |= _place(tuple(linked))
    return found


def components(
    candidates: Sequence[Candidate], contended: Container[str] = ()
) -> list[list[Candidate]]:
    """The units in groups without links between them.

    Sets link units, and so do uplinks with less room than units may ask for (`contended`).
    """
    first: dict[tuple[str, str], int] = {}
    leads = list(range(len(candidates)))

    def lead(i: int) -> int:
        while leads[i] != i:
            leads[i] = i = leads[leads[i]]
        return i

    for i, candidate in enumerate(candidates):
        for key in _links(candidate, contended):
            a, b = lead(first.setdefault(key, i)), lead(i)
            leads[max(a, b)] = min(a, b)
    groups: dict[int, list[Candidate]] = {}
    for i, candidate in enumerate(candidates):
        groups.setdefault(lead(i), []).append(candidate)
    return list(groups.values())


def _links(candidate: Candidate, contended: Container[str]) -> Iterator[tuple[str, str]]:
    """The names of the sets and of the contended uplinks that link a unit to others."""
    if candidate.affinity is not None:
        yield "affinity", candidate.affinity
    if candidate.anti_affinity is not None:
        yield "anti-affinity", candidate.anti_affinity
    if candidate.reserve_bps:
        for uplink in candidate.able:
            if uplink in contended:
                yield "room", uplink


# ---- one component ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """Units that move together, and their cost on each uplink. `sets`: their memberships."""

    names: tuple[str, ...]
    costs: Mapping[str, int]
    sets: Mapping[str, int]

    @property
    def least(self) -> int:
        return min(self.costs.values())

    def cheapest(self) -> str:
        return min(self.costs, key=lambda uplink: self.costs[uplink])


@dataclass(frozen=True, slots=True)
class _Scale:
    """The vector's parts below affinity, combined into one whole number."""

    units: int
    uplinks: int
    ranks: int

    @property
    def moved(self) -> int:
        return self.units * self.uplinks + 1

    @property
    def rank(self) -> int:
        return self.moved * (self.units + 1)

    @property
    def pair(self) -> int:
        return self.rank * (self.units * self.ranks + 1)


@functools.lru_cache(maxsize=4096)
def _place(candidates: tuple[Candidate, ...]) -> Mapping[str, str]:
    scale = _Scale(
        len(candidates),
        max(len(c.able) for c in candidates),
        max(rank for c in candidates for rank in c.ranks),
    )
    search = _Search(scale)
    for nodes in itertools.islice(_divisions(candidates, scale), DIVISIONS_MAX):
        search.examine(nodes)
    return search.best


def _divisions(candidates: Sequence[Candidate], scale: _Scale) -> Iterator[list[_Node]]:
    """The nodes, for each way to divide affinity sets whose members cannot all be together."""
    alone = [_node([c], scale, c.able) for c in candidates if c.affinity is None]
    ways = []
    for members in _sets(candidates, "affinity").values():
        able = Counter(uplink for c in members for uplink in c.able)
        most = max(able.values())
        mains = [uplink for uplink in able if able[uplink] == most]
        if most == len(members):
            ways.append([[_node(members, scale, mains)]])
        else:
            ways.append([_divided(members, main, scale) for main in mains])
    for way in itertools.product(*ways):
        yield [*alone, *itertools.chain.from_iterable(way)]


def _divided(members: Sequence[Candidate], main: str, scale: _Scale) -> list[_Node]:
    core = [c for c in members if main in c.able]
    rest = [_node([c], scale, c.able) for c in members if main not in c.able]
    return [_node(core, scale, [main]), *rest]


def _node(members: Sequence[Candidate], scale: _Scale, uplinks: Iterable[str]) -> _Node:
    def at(uplink: str) -> int:
        total = 0
        for c in members:
            i = c.able.index(uplink)
            moved = c.current not in (None, uplink)
            total += c.ranks[i] * scale.rank + moved * scale.moved + i
        return total

    return _Node(
        names=tuple(c.name for c in members),
        costs={uplink: at(uplink) for uplink in uplinks},
        sets=Counter(c.anti_affinity for c in members if c.anti_affinity is not None),
    )


@dataclass(slots=True)
class _Search:
    """The best placement so far, over several divisions into nodes."""

    scale: _Scale
    best: dict[str, str] = field(default_factory=dict)
    _least: int | None = None
    _flows_made: int = 0
    _nodes: list[_Node] = field(default_factory=list)
    _tried: list[_Node] = field(default_factory=list)
    _flowing: dict[str, list[_Node]] = field(default_factory=dict)
    _flows: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[int, dict[str, str]]] = field(
        default_factory=dict
    )

    def examine(self, nodes: list[_Node]) -> None:
        """Find the best placement of these nodes, if it is better than the best so far."""
        self._nodes, self._flows, self._flowing = nodes, {}, {}
        self._tried = [node for node in nodes if sum(node.sets.values()) > 1]
        # Nodes that are in most sets have the most influence.
        self._tried.sort(key=lambda node: (-sum(node.sets.values()), node.names))
        for node in nodes:
            if sum(node.sets.values()) == 1:
                (name,) = node.sets
                self._flowing.setdefault(name, []).append(node)
        self._try([])

    def _try(self, placed: list[str]) -> None:
        """Continue from a placement of the first nodes, the best alternatives first."""
        if len(placed) == len(self._tried):
            self._keep(placed)
            return
        ways = [
            (self._bound([*placed, uplink]), i, uplink)
            for i, uplink in enumerate(self._tried[len(placed)].costs)
        ]
        for bound, _, uplink in sorted(ways):
            if self._least is not None and (bound >= self._least or self._spent):
                return
            self._try([*placed, uplink])

    @property
    def _spent(self) -> bool:
        return self._flows_made >= FLOWS_MAX

    def _bound(self, placed: list[str], exact: bool = False) -> int:
        """A lower bound of the cost of all placements that begin like this."""
        used = self._used(placed)
        fixed = sum(
            node.costs[uplink] for node, uplink in zip(self._tried, placed, strict=False)
        ) + self.scale.pair * sum(n * (n - 1) // 2 for n in used.values())
        others = [n for n in self._nodes if not n.sets] + self._tried[len(placed) :]
        flows = sum(self._flow_cost(name, used, exact) for name in self._flowing)
        return fixed + flows + sum(node.least for node in others)

    def _keep(self, placed: list[str]) -> None:
        total = self._bound(placed, exact=True)
        if self._least is not None and total >= self._least:
            return
        self._least, used = total, self._used(placed)
        found: dict[str, str] = {}
        for node, uplink in zip(self._tried, placed, strict=True):
            found |= dict.fromkeys(node.names, uplink)
        for node in self._nodes:
            if not node.sets:
                found |= dict.fromkeys(node.names, node.cheapest())
        for name in self._flowing:
            found |= self._flow(name, used)[1]
        self.best = found

    def _used(self, placed: list[str]) -> Counter[tuple[str, str]]:
        """The number of members of each set on each uplink, for placed nodes."""
        used: Counter[tuple[str, str]] = Counter()
        for node, uplink in zip(self._tried, placed, strict=False):
            for name, members in node.sets.items():
                used[name, uplink] += members
        return used

    def _flow_cost(self, name: str, used: Counter[tuple[str, str]], exact: bool) -> int:
        """The cost of a set's flow; after too many flows, a lower bound of it."""
        if exact or not self._spent:
            return self._flow(name, used)[0]
        return sum(node.least for node in self._flowing[name])

    def _flow(self, name: str, used: Counter[tuple[str, str]]) -> tuple[int, dict[str, str]]:
        """The best placement of a set's nodes beside its placed ones."""
        there = {uplink: n for (of, uplink), n in used.items() if of == name}
        key = name, tuple(sorted(there.items()))
        if key not in self._flows:
            self._flows_made += 1
            self._flows[key] = _flow(self._flowing[name], there, self.scale.pair)
        return self._flows[key]


def _flow(
    nodes: Sequence[_Node], there: Mapping[str, int], pair: int
) -> tuple[int, dict[str, str]]:
    """The least cost of nodes that are each one member of a set. `there`: other members.

    If the cheapest uplinks of all of them differ enough to make no pair, no flow needs to be
    computed.
    """
    cheapest = [node.cheapest() for node in nodes]
    if all(n + there.get(uplink, 0) == 1 for uplink, n in Counter(cheapest).items()):
        best = zip(nodes, cheapest, strict=True)
        return sum(node.least for node in nodes), {
            name: uplink for node, uplink in best for name in node.names
        }
    # The import costs 7 MB and 60 ms, which a service without such rules need not spend.
    import networkx as nx

    alike: dict[tuple[tuple[str, int], ...], list[_Node]] = {}
    for node in nodes:
        alike.setdefault(tuple(sorted(node.costs.items())), []).append(node)
    graph = nx.MultiDiGraph()
    graph.add_node("", demand=len(nodes))
    able: Counter[str] = Counter()
    for number, (costs, members) in enumerate(alike.items()):
        graph.add_node(number, demand=-len(members))
        for uplink, weight in costs:
            graph.add_edge(number, uplink, capacity=len(members), weight=weight)
            able[uplink] += len(members)
    for uplink, most in sorted(able.items()):
        for beside in range(there.get(uplink, 0), there.get(uplink, 0) + most):
            graph.add_edge(uplink, "", capacity=1, weight=beside * pair)
    total, flows = nx.network_simplex(graph)
    found: dict[str, str] = {}
    for number, members in enumerate(alike.values()):
        left = iter(members)
        for uplink, by_edge in sorted(flows[number].items()):
            for node in itertools.islice(left, sum(by_edge.values())):
                found |= dict.fromkeys(node.names, uplink)
    return int(total), found


def _sets(candidates: Iterable[Candidate], of: str) -> dict[str, list[Candidate]]:
    sets: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if (name := getattr(candidate, of)) is not None:
            sets.setdefault(name, []).append(candidate)
    return sets
