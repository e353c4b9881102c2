"""Makes the worst utilization of a team as low as it can, with few moves.

Utilization is that of the busier direction, as a share of the uplink's own capacity. The plan
starts from where units are, and makes the best move or exchange between the fullest uplink and
another, again and again, with units of the right size found by bisection. Only while that leaves
more than the fluid bound are the largest units also placed anew, some ways, and the best of
these taken. In the end each move that is no longer of use is left out.

Guaranteed: the worst utilization falls by `LEAST_GAIN_RATIO` of capacity at least, or nothing
moves; rules are kept as `policies.rules.permits` has it, no uplink is promised more by a move
than it has room for, and the same loads after the moves give no further ones. Whole units are hard to
divide (multiprocessor scheduling), so that the optimum itself is not promised: tests hold the
result against an exact solver. O(n log n) for n units on a fixed number of uplinks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from policies import failover, rules
from policies.model import Load, Move, Plan, Reason, Snapshot, Unit, Uplink, can_promise
from policies.verdicts import Rest, Resting, Standing, Verdict

# Of capacity: what all moves together must bring. Less is noise, or not worth anybody's moving.
LEAST_GAIN_RATIO = 0.02
# Of the worst utilization: what a step must bring, and what may be lost by leaving a move out.
LEAST_STEP_RATIO = 0.001
# What may be lost by leaving out all that do not bring their price: less than is worth a round.
LEFT_OUT_RATIO = 0.045
# A move that brings so much is made without looking for an exchange that brings more.
GOOD_STEP_RATIO = 0.01
# So near the bound a placement is good enough not to be taken apart.
CLOSE_RATIO = 1.005
# A placing anew must be so much better than steps from where units are.
LEAST_BETTER_RATIO = 0.01
# Of how many of its neighbours in size, either way, and of how many of the largest units of an
# uplink, moves and exchanges are tried.
NEIGHBOURS = 3
LARGEST = 8
# How many of the largest units are placed anew, and in how many steps a fill level is looked for.
PLACED_ANEW = 256
LEVELS = 7
# Steps to the end of a search, without those that just drain an uplink: it ends by itself much
# earlier but for adverse loads.
MOST_STEPS = 160
# How many placements of a small team are looked through, of how many units.
FEW_UNITS = 24
MOST_PLACEMENTS = 6000


def settle(snapshot: Snapshot, enough_ratio: float = 0.0, price_ratio: float = 0.0) -> Plan:
    """The moves, by name; none where they gain too little.

    A placement is good enough where no uplink is fuller than `enough_ratio`. Each move lowers the
    worst utilization by `price_ratio` of what it is in the end, or is left out.
    """
    team = _Team(snapshot)
    before_ratio = team.worst_ratio
    if len(team.uplinks) < 2 or not team.items or before_ratio <= enough_ratio:
        return Plan()
    bound_ratio = team.bound_ratio
    if before_ratio - bound_ratio < LEAST_GAIN_RATIO:
        return Plan()
    target_ratio = max(bound_ratio, enough_ratio)
    team.descend(target_ratio)
    found_ratio, found = team.worst_ratio, team.at.copy()
    if found_ratio > target_ratio * CLOSE_RATIO:
        for at in team.placed_anew(found_ratio, bound_ratio):
            team.put(at)
            team.descend(target_ratio)
            if team.worst_ratio < found_ratio * (1.0 - LEAST_BETTER_RATIO):
                found_ratio, found = team.worst_ratio, team.at.copy()
            if found_ratio <= target_ratio * CLOSE_RATIO:
                break
        team.put(found)
    team.leave_out(max(found_ratio, enough_ratio), price_ratio)
    if before_ratio - team.worst_ratio < LEAST_GAIN_RATIO:
        return Plan()
    return Plan(moves=tuple(team.moves()))


def verdict(snapshot: Snapshot, unit: str, planned: Plan | None = None) -> Verdict:
    """What stands against moving a unit of the snapshot; `planned`: what is made instead."""
    asked = next(u for u in snapshot.units if u.name == unit)
    serving = failover.in_service(snapshot.uplinks)
    uplink = next((u for u in serving if u.name == asked.uplink), None)
    if not asked.movable:
        return Verdict(Standing.HELD)
    if uplink is None:
        return Verdict(Standing.OUT_OF_SERVICE)
    others = [u for u in serving if u is not uplink]
    expected_ratio = {
        u.name: (u.load + asked.load).utilization_ratio(u.capacity_bps)
        for u in others
        if rules.permits(asked, u.name, snapshot.in_sets)
    }
    moves = (settle(snapshot) if planned is None else planned).moves
    if mine := next((move for move in moves if move.unit == unit), None):
        return Verdict(Standing.MOVES, mine, expected_ratio)
    return Verdict(Standing.NO_USE, None, expected_ratio)


def rest(snapshot: Snapshot) -> Rest:
    """Why nothing is moved, where nothing is."""
    uplinks = failover.in_service(snapshot.uplinks)
    if len(uplinks) < 2:
        return Rest(Resting.ALONE)
    by_ratio = sorted(uplinks, key=lambda u: (u.utilization_ratio, u.name))
    emptiest, fullest = by_ratio[0], by_ratio[-1]
    return Rest(Resting.NO_BETTER, fullest.name, emptiest.name)


# Units that move together: one, or all of an affinity set that are on one uplink.
_Item = tuple[Unit, ...]
# Of each uplink, what it sends and what it receives.
_Used = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class _Step:
    """Items that leave the fullest uplink for another, and those that come in return."""

    target: int
    ratio: float
    gone: int
    back: int | None = None


class _Team:
    """A placement that is being changed: which item is on which uplink, and what that makes.

    Directions are 0, towards the network, and 1. `_by_size`: for each direction and uplink its
    items, smallest first.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.uplinks: Sequence[Uplink] = failover.in_service(snapshot.uplinks)
        self.uplinks = sorted(self.uplinks, key=lambda u: u.name)
        self._of = {uplink.name: i for i, uplink in enumerate(self.uplinks)}
        self._caps = [uplink.capacity_bps for uplink in self.uplinks]
        self._members = {unit.name: unit for unit in snapshot.in_sets}
        self.items: list[_Item] = self._groups(snapshot)
        loads = [
            item[0].load if len(item) == 1 else sum((u.load for u in item), Load())
            for item in self.items
        ]
        self._sizes = ([load.tx_bps for load in loads], [load.rx_bps for load in loads])
        self._homes = [self._of[str(item[0].uplink)] for item in self.items]
        self.at = self._homes.copy()
        self._ruled = [_is_ruled(item[0]) for item in self.items]
        self._reserved_bps = [uplink.reserved_bps for uplink in self.uplinks]
        self._by_size: list[list[list[int]]] = [[[] for _ in self._caps] for _ in (0, 1)]
        self._base = self._held()
        self._fill()

    # ---- what there is ------------------------------------------------------------------

    def _groups(self, snapshot: Snapshot) -> list[_Item]:
        """What may be moved, by name; a set is held where one of its units is."""
        movable = [u for u in snapshot.units if _may_move(u) and u.uplink in self._of]
        movable.sort(key=lambda u: u.name)
        together: dict[tuple[str, str | None], set[str]] = {}
        for unit in snapshot.in_sets:
            if unit.rules.affinity is not None:
                together.setdefault((unit.rules.affinity, unit.uplink), set()).add(unit.name)
        groups: dict[tuple[str, str | None], list[Unit]] = {}
        for unit in movable:
            if unit.rules.affinity is not None:
                groups.setdefault((unit.rules.affinity, unit.uplink), []).append(unit)
        whole = [
            tuple(units)
            for key, units in groups.items()
            if together.get(key, set()) <= {unit.name for unit in units}
        ]
        return [(unit,) for unit in movable if unit.rules.affinity is None] + whole

    def _held(self) -> _Used:
        """What uplinks carry that is not for moving. Counters are not of quite one moment."""
        rest = ([u.load.tx_bps for u in self.uplinks], [u.load.rx_bps for u in self.uplinks])
        for sizes, left in zip(self._sizes, rest, strict=True):
            for size, home in zip(sizes, self._homes, strict=True):
                left[home] -= size
        return [max(0.0, bps) for bps in rest[0]], [max(0.0, bps) for bps in rest[1]]

    def _fill(self) -> None:
        """Loads and lists for the items as they are."""
        self._bps = (self._base[0].copy(), self._base[1].copy())
        for sizes, used, lists in zip(self._sizes, self._bps, self._by_size, strict=True):
            for size, uplink in zip(sizes, self.at, strict=True):
                used[uplink] += size
            for item in sorted(range(len(sizes)), key=sizes.__getitem__):
                lists[self.at[item]].append(item)

    def _ratio(self, uplink: int) -> float:
        return max(self._bps[0][uplink], self._bps[1][uplink]) / self._caps[uplink]

    @property
    def worst_ratio(self) -> float:
        return max(map(self._ratio, range(len(self.uplinks))), default=0.0)

    @property
    def bound_ratio(self) -> float:
        """What no placement can beat: all divided as a fluid, the largest on the fastest."""
        fastest_bps, total_bps = max(self._caps), sum(self._caps)
        fluid = max(sum(used) for used in self._bps) / total_bps
        largest = max(max(sizes) for sizes in self._sizes) / fastest_bps
        held = max(
            bps / cap for base in self._base for bps, cap in zip(base, self._caps, strict=True)
        )
        return max(fluid, largest, held)

    # ---- from step to step -----------------------------------------------------------------

    def descend(self, bound_ratio: float) -> None:
        """Steps from the fullest uplink, each the best, until none brings enough.

        Or until the bound is as good as reached.
        """
        count, left = range(len(self.uplinks)), MOST_STEPS
        drained = 2 * len(self.at)
        while left > 0:
            ratios = list(map(self._ratio, count))
            worst_ratio = max(ratios)
            if worst_ratio <= bound_ratio * CLOSE_RATIO:
                return
            fullest, emptiest = ratios.index(worst_ratio), ratios.index(min(ratios))
            if drained > 0 and self._drain(fullest, emptiest, bound_ratio):
                drained -= 1
                continue
            left -= 1
            step = self._best_step(fullest, worst_ratio * (1.0 - LEAST_STEP_RATIO))
            if step is None:
                return
            self._make(step, fullest)

    def _drain(self, fullest: int, emptiest: int, bound_ratio: float) -> bool:
        """Move the largest item, where it is not even half of what has to go."""
        direction = 0 if self._bps[0][fullest] >= self._bps[1][fullest] else 1
        entries = self._by_size[direction][fullest]
        if not entries:
            return False
        item = entries[-1]
        size = self._sizes[direction][item]
        surplus_bps = self._bps[direction][fullest] - bound_ratio * self._caps[fullest]
        room_bps = self._wanted_bps(fullest, emptiest, direction)
        if not 0.0 < 2.0 * size < min(surplus_bps, room_bps):
            return False
        if self._after(fullest, emptiest, item) >= self._ratio(fullest):
            return False
        if not self._permits(item, emptiest):
            return False
        self._place(item, emptiest)
        return True

    def _best_step(self, fullest: int, limit_ratio: float) -> _Step | None:
        """A move rather than an exchange, unless that brings twice as much."""
        single = self._best(self._moves_from(fullest), limit_ratio)
        now_ratio = self._ratio(fullest)
        worth = max(0.2 * (now_ratio - self._mean_ratio), GOOD_STEP_RATIO * now_ratio)
        if single and now_ratio - single.ratio >= worth:
            return single
        exchange = self._best(self._exchanges_from(fullest), limit_ratio)
        if single is None or exchange is None:
            return single or exchange
        twice = now_ratio - exchange.ratio > 2.0 * (now_ratio - single.ratio)
        return exchange if twice else single

    @property
    def _mean_ratio(self) -> float:
        return max(map(sum, self._bps)) / sum(self._caps)

    def _best(self, steps: Iterator[_Step], limit_ratio: float) -> _Step | None:
        """The step that leaves the fuller of its two uplinks emptiest."""
        good = [step for step in steps if step.ratio < limit_ratio]
        good.sort(key=lambda s: (s.ratio, s.gone, s.target, -1 if s.back is None else s.back))
        return next((s for s in good if self._is_free(s)), None)

    def _is_free(self, step: _Step) -> bool:
        return self._permits(step.gone, step.target, step.back) and (
            step.back is None or self._permits(step.back, self.at[step.gone], step.gone)
        )

    def _moves_from(self, source: int) -> Iterator[_Step]:
        for target in range(len(self.uplinks)):
            if target == source:
                continue
            for direction in (0, 1):
                wanted = self._wanted_bps(source, target, direction)
                if wanted <= 0.0:
                    continue
                for item in self._near(source, direction, wanted):
                    yield _Step(target, self._after(source, target, item), item)

    def _exchanges_from(self, source: int) -> Iterator[_Step]:
        direction = 0 if self._bps[0][source] >= self._bps[1][source] else 1
        sizes = self._sizes[direction]
        largest = self._by_size[direction][source][-LARGEST:]
        for target in range(len(self.uplinks)):
            if target == source:
                continue
            wanted = self._wanted_bps(source, target, direction)
            tried = largest.copy()
            tried += [i for i in self._near(source, direction, wanted) if i not in tried]
            for item in tried:
                less = sizes[item] - wanted
                for back in self._near(target, direction, less):
                    if sizes[back] < sizes[item]:
                        ratio = self._after(source, target, item, back)
                        yield _Step(target, ratio, item, back)

    def _wanted_bps(self, source: int, target: int, direction: int) -> float:
        """How much has to go for both to be as full in that direction."""
        used, caps = self._bps[direction], self._caps
        surplus = used[source] * caps[target] - used[target] * caps[source]
        return surplus / (caps[source] + caps[target])

    def _near(self, uplink: int, direction: int, size_bps: float) -> list[int]:
        """Items there of about that size."""
        entries = self._by_size[direction][uplink]
        i = bisect_left(entries, size_bps, key=self._sizes[direction].__getitem__)
        return entries[max(0, i - NEIGHBOURS) : i + NEIGHBOURS]

    def _after(self, source: int, target: int, gone: int, back: int | None = None) -> float:
        """How full the fuller of two uplinks is after an item has gone, and one come back."""
        worst = 0.0
        for sizes, used in zip(self._sizes, self._bps, strict=True):
            net = sizes[gone] - (sizes[back] if back is not None else 0.0)
            left, right = used[source] - net, used[target] + net
            worst = max(worst, left / self._caps[source], right / self._caps[target])
        return worst

    def _permits(self, item: int, target: int, along: int | None = None) -> bool:
        """Whether rules and promises let an item go there; `along` leaves for its place."""
        if not self._ruled[item]:
            return True
        moved = self.items[item]
        back = self.items[along] if along is not None else ()
        more_bps = sum(u.rules.reserve_bps for u in moved) - sum(u.rules.reserve_bps for u in back)
        if not can_promise(more_bps, self._reserved_bps[target], self._caps[target]):
            return False
        name, others = self.uplinks[target].name, self._members.values()
        here = self.uplinks[self.at[item]].name
        return all(
            rules.permits(replace(unit, uplink=here), name, others, (*moved, *back))
            for unit in moved
        )

    def _make(self, step: _Step, source: int) -> None:
        self._place(step.gone, step.target)
        if step.back is not None:
            self._place(step.back, source)

    def _place(self, item: int, target: int) -> None:
        source = self.at[item]
        for direction in (0, 1):
            size_of = self._sizes[direction].__getitem__
            size = size_of(item)
            self._bps[direction][source] -= size
            self._bps[direction][target] += size
            entries = self._by_size[direction][source]
            del entries[entries.index(item, bisect_left(entries, size, key=size_of))]
            insort(self._by_size[direction][target], item, key=size_of)
        self.at[item] = target
        if self._ruled[item]:
            name = self.uplinks[target].name
            for unit in self.items[item]:
                self._reserved_bps[source] -= unit.rules.reserve_bps
                self._reserved_bps[target] += unit.rules.reserve_bps
                if unit.name in self._members:
                    self._members[unit.name] = replace(self._members[unit.name], uplink=name)

    # ---- anew ------------------------------------------------------------------------------

    def put(self, at: Sequence[int]) -> None:
        """Have every item where it is said to be."""
        for item, uplink in enumerate(at):
            if self.at[item] != uplink:
                self._place(item, uplink)

    def placed_anew(self, found_ratio: float, bound_ratio: float) -> Iterator[list[int]]:
        """Other placements of the largest items, those that move least first.

        Each is of the units without rules that others' places matter to; those stay.
        """
        start = self._homes.copy()
        fastest = max(self._caps)
        weight = [max(s, r) / fastest for s, r in zip(*self._sizes, strict=True)]
        loose = [i for i in range(len(self.items)) if not self._ruled[i]]
        chosen = sorted(loose, key=lambda i: (-weight[i], i))[:PLACED_ANEW]
        held = self._without(start, chosen)
        for keep in (True, False):
            low, high = bound_ratio, found_ratio
            best: list[int] | None = None
            for _ in range(LEVELS):
                level = (low + high) / 2.0
                at = self._packed(start, chosen, held, level, keep)
                if at is None:
                    low = level
                else:
                    best, high = at, level
            if best is not None:
                yield best
        yield self._levelled(start, chosen, held)
        if len(chosen) <= FEW_UNITS and (at := self._searched(start, chosen, held, found_ratio)):
            yield at

    def _without(self, start: Sequence[int], chosen: Sequence[int]) -> _Used:
        """What uplinks carry besides the items chosen."""
        out = set(chosen)
        used = (self._base[0].copy(), self._base[1].copy())
        for direction in (0, 1):
            sizes = self._sizes[direction]
            for i, uplink in enumerate(start):
                if i not in out:
                    used[direction][uplink] += sizes[i]
        return used

    def _packed(
        self,
        start: Sequence[int],
        chosen: Sequence[int],
        held: _Used,
        level: float,
        keep: bool,
    ) -> list[int] | None:
        """Largest first: where it is, if it fits below the level, else where least is left."""
        used, at = (held[0].copy(), held[1].copy()), list(start)
        uplinks = range(len(self.uplinks))
        for item in chosen:
            tx, rx = self._sizes[0][item], self._sizes[1][item]

            def left(u: int, tx: float = tx, rx: float = rx) -> float:
                return self._caps[u] * level - max(used[0][u] + tx, used[1][u] + rx)

            if not (keep and left(at[item]) >= 0.0):
                fitting = [u for u in uplinks if left(u) >= 0.0]
                if not fitting:
                    return None
                at[item] = min(fitting, key=lambda u: (left(u), u != at[item], u))
            used[0][at[item]] += tx
            used[1][at[item]] += rx
        return at

    def _levelled(self, start: Sequence[int], chosen: Sequence[int], held: _Used) -> list[int]:
        """Largest first, each where the uplink is emptiest with it."""
        used, at = (held[0].copy(), held[1].copy()), list(start)
        for item in chosen:
            tx, rx = self._sizes[0][item], self._sizes[1][item]
            at[item] = min(
                range(len(self.uplinks)),
                key=lambda u: (max(used[0][u] + tx, used[1][u] + rx) / self._caps[u], u),
            )
            used[0][at[item]] += tx
            used[1][at[item]] += rx
        return at

    def _searched(
        self, start: Sequence[int], chosen: Sequence[int], held: _Used, found_ratio: float
    ) -> list[int] | None:
        """The best placement of few items, as far as so many steps go; None: none is better."""
        used, at = (held[0].copy(), held[1].copy()), list(start)
        best: list[int] | None = None
        best_ratio, steps = found_ratio, MOST_PLACEMENTS
        caps, (sent, received) = self._caps, self._sizes

        def look(k: int, worst: float) -> None:
            nonlocal best, best_ratio, steps
            if k == len(chosen):
                best, best_ratio = at.copy(), worst
                return
            item = chosen[k]
            tx, rx = sent[item], received[item]
            ways = sorted(
                (max(used[0][u] + tx, used[1][u] + rx) / caps[u], u) for u in range(len(caps))
            )
            seen: set[tuple[float, float, float]] = set()
            for ratio, u in ways:
                alike = (used[0][u], used[1][u], caps[u])
                if ratio >= best_ratio * (1.0 - LEAST_STEP_RATIO) or steps <= 0:
                    return
                if alike in seen:
                    continue
                seen.add(alike)
                steps -= 1
                at[item] = u
                used[0][u] += tx
                used[1][u] += rx
                look(k + 1, max(worst, ratio))
                used[0][u], used[1][u] = alike[0], alike[1]

        look(0, 0.0)
        return best

    # ---- the outcome -----------------------------------------------------------------------

    def leave_out(self, found_ratio: float, price_ratio: float) -> None:
        """Put back, smallest first, what does not bring its price."""
        moved = [i for i, home in enumerate(self._homes) if self.at[i] != home]
        moved.sort(key=lambda i: (max(self._sizes[0][i], self._sizes[1][i]), i))
        most_ratio = found_ratio * (1.0 + max(LEAST_STEP_RATIO, LEFT_OUT_RATIO * bool(price_ratio)))
        worst_ratio = found_ratio
        for item in moved:
            home = self._homes[item]
            after = self._after(self.at[item], home, item)
            limit_ratio = min(
                most_ratio, worst_ratio + max(price_ratio, LEAST_STEP_RATIO) * found_ratio
            )
            if after <= limit_ratio and self._permits(item, home):
                self._place(item, home)
                worst_ratio = max(worst_ratio, after)

    def moves(self) -> Iterator[Move]:
        for item, home, at in zip(self.items, self._homes, self.at, strict=True):
            if home != at:
                source, target = self.uplinks[home].name, self.uplinks[at].name
                for unit in item:
                    yield Move(unit.name, source, target, Reason.REBALANCE)


def _is_ruled(unit: Unit) -> bool:
    """Whether it matters where it is, or it has been promised something there."""
    return unit.allowed is not None or unit.rules.ruled or unit.rules.reserve_bps > 0.0


def _may_move(unit: Unit) -> bool:
    """What carries nothing relieves nothing, but goes with its set."""
    carries = unit.load.tx_bps > 0.0 or unit.load.rx_bps > 0.0
    return (carries or unit.rules.affinity is not None) and unit.movable
