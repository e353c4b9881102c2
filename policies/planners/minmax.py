"""`adaptive`: plans few moves that make the worst utilization of a team as low as possible.

The utilization of an uplink is that of its busier direction, as a share of its own capacity. The
planner works in three stages:

1. It starts from the current placement. It repeatedly makes the best move or exchange between the
   fullest uplink and another one (`descend`). Bisection finds units of the right size.
2. If the result is above the lower bound, it also places the largest units from scratch in a few
   ways (`placed_anew`), and keeps the best result.
3. It drops each move that gains too little (`leave_out`).

A plan lowers the worst utilization by at least `LEAST_GAIN_OF_CAPACITY_RATIO`, or it is empty. It
obeys rules (`policies.rules.permits`), and moves no reservation to an uplink without room for it.
After a plan is applied, the same loads lead to no further moves. Placing whole units is
multiprocessor scheduling, which is NP-hard, so a plan need not be optimal: tests compare it with an
exact solver. O(n log n) for n units on a fixed number of uplinks.

docs/decisions/0013-what-minmax-keeps.md describes the gain from each stage and constant.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace

from policies import failover, rules
from policies.gain import LEAST_GAIN_OF_CAPACITY_RATIO as LEAST_GAIN_OF_CAPACITY_RATIO
from policies.model import IDLE, Load, Move, Plan, Reason, Snapshot, Unit, Uplink, can_promise
from policies.values import value
from policies.verdicts import Rest, Standing, Verdict, WhyAtRest

# The least gain of a step, and the most that is lost if a move is left out, as shares of the worst
# utilization. It only has to be more than rounding errors.
LEAST_STEP_RATIO = 0.001
# The most that is lost in total if moves that gain less than their price are left out, as a share
# of the worst utilization. A decision must gain more than that (`policies.gain`).
LEFT_OUT_RATIO = 0.045
# A move is made without a search for exchanges if it gains at least this share of the worst
# utilization, and this share of the difference between the fullest uplink and the mean.
GOOD_STEP_RATIO = 0.01
GOOD_STEP_OF_SURPLUS_RATIO = 0.2
# A placement this close to the lower bound is good enough.
CLOSE_RATIO = 1.005
# A placement from scratch must be better by this share: it moves more units.
LEAST_BETTER_RATIO = 0.01
# Moves and exchanges are tried with this many units on either side of the size that would fit
# exactly; exchanges also with this many of the largest units of the fullest uplink.
NEIGHBOURS = 3
LARGEST = 8
# The number of largest units that are placed from scratch, and of bisections of the fill level.
PLACED_ANEW = 256
LEVELS = 7
# The most steps of a search, without those of `_drain`. Only adverse loads need nearly as many.
MOST_STEPS = 160
# Up to this many units, the best placement is searched for, in at most this many steps.
FEW_UNITS = 24
MOST_PLACEMENTS = 6000


def plan(snapshot: Snapshot, enough_ratio: float = 0.0, price_ratio: float = 0.0) -> Plan:
    """Return the moves, sorted by unit; an empty plan if they gain too little.

    A placement in which no uplink is fuller than `enough_ratio` is good enough. A move is left out
    if it lowers the worst utilization by less than `price_ratio`, a share of the worst utilization
    after all moves.
    """
    team = _Team(snapshot)
    before_ratio = team.worst_ratio
    if len(team.uplinks) < 2 or not team.items or before_ratio <= enough_ratio:
        return Plan()
    bound_ratio = team.bound_ratio
    if before_ratio - bound_ratio < LEAST_GAIN_OF_CAPACITY_RATIO:
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
    if before_ratio - team.worst_ratio < LEAST_GAIN_OF_CAPACITY_RATIO:
        return Plan()
    return Plan(moves=tuple(team.moves()))


def verdict(snapshot: Snapshot, unit: str, planned: Plan | None = None) -> Verdict:
    """Return why a unit of the snapshot does or does not move. `planned`: the plan, if known."""
    asked = next(u for u in snapshot.units if u.name == unit)
    serving = failover.in_service(snapshot.uplinks)
    uplink = next((u for u in serving if u.name == asked.uplink), None)
    if not asked.movable:
        return Verdict(Standing.HELD)
    if uplink is None:
        return Verdict(Standing.OUT_OF_SERVICE)
    expected_ratio = {
        u.name: (u.load + asked.load).utilization_ratio(u.capacity_bps)
        for u in serving
        if u is not uplink and rules.permits(asked, u.name, snapshot.in_sets)
    }
    moves = (plan(snapshot) if planned is None else planned).moves
    if mine := next((move for move in moves if move.unit == unit), None):
        return Verdict(Standing.MOVES, mine, expected_ratio)
    return Verdict(Standing.NO_USE, None, expected_ratio)


def rest(snapshot: Snapshot) -> Rest:
    """Return the reason why no unit moves. Call this function only if the plan is empty."""
    uplinks = failover.in_service(snapshot.uplinks)
    if len(uplinks) < 2:
        return Rest(WhyAtRest.ALONE)
    by_ratio = sorted(uplinks, key=lambda u: (u.utilization_ratio, u.name))
    emptiest, fullest = by_ratio[0], by_ratio[-1]
    return Rest(WhyAtRest.NO_BETTER, fullest.name, emptiest.name)


# Units that move together: a single one, or all members of an affinity set on one uplink.
_Item = tuple[Unit, ...]
# The traffic that each uplink sends, and the traffic that it receives.
_Used = tuple[list[float], list[float]]


@value(frozen=True, slots=True)
class _Step:
    """A move of the item `gone` to `target`; in an exchange, the item `back` moves the other way.

    `ratio`: the utilization of the fuller of the two uplinks after the step.
    """

    target: int
    ratio: float
    gone: int
    back: int | None = None


class _Team:
    """A placement that is being changed: the uplink of each item, and the resulting loads.

    Direction 0 is sending (towards the network), 1 is receiving. `_homes`: the uplink of each item
    at the start. `at`: its current uplink. `_by_size`: the items of each uplink for each direction,
    smallest first.
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
        # The loads and the sorted lists follow from the placement, and change with it.
        self._bps = self._without(())
        for sizes, lists in zip(self._sizes, self._by_size, strict=True):
            for item in sorted(range(len(sizes)), key=sizes.__getitem__):
                lists[self.at[item]].append(item)

    # ---- items and loads ----------------------------------------------------------------

    def _groups(self, snapshot: Snapshot) -> list[_Item]:
        """Return the items that can move, sorted by name.

        The members of an affinity set on one uplink stay if one of them cannot move.
        """
        # Most buckets are idle.
        units = (u for u in snapshot.units if u.load is not IDLE or u.rules.affinity is not None)
        movable = [u for u in units if _may_move(u) and u.uplink in self._of]
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
        """Return the loads of uplinks without the items; at least 0, despite lagging counters."""
        rest = ([u.load.tx_bps for u in self.uplinks], [u.load.rx_bps for u in self.uplinks])
        for sizes, left in zip(self._sizes, rest, strict=True):
            for size, home in zip(sizes, self._homes, strict=True):
                left[home] -= size
        return [max(0.0, bps) for bps in rest[0]], [max(0.0, bps) for bps in rest[1]]

    def _ratio(self, uplink: int) -> float:
        return max(self._bps[0][uplink], self._bps[1][uplink]) / self._caps[uplink]

    @property
    def worst_ratio(self) -> float:
        return max(map(self._ratio, range(len(self.uplinks))), default=0.0)

    @property
    def bound_ratio(self) -> float:
        """A lower bound on the worst utilization in any placement.

        The largest utilization in three cases: all load is divided like a fluid, the largest item
        is alone on the fastest uplink, or uplinks carry only the load that cannot move.
        """
        largest = max(max(sizes) for sizes in self._sizes) / max(self._caps)
        held = max(
            bps / cap for base in self._base for bps, cap in zip(base, self._caps, strict=True)
        )
        return max(self._mean_ratio, largest, held)

    # ---- from step to step -----------------------------------------------------------------

    def descend(self, bound_ratio: float) -> None:
        """Make the best step from the fullest uplink repeatedly.

        This ends when no step gains enough, or when `bound_ratio` is nearly reached.
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
            self._place(step.gone, step.target)
            if step.back is not None:
                self._place(step.back, fullest)

    def _drain(self, fullest: int, emptiest: int, bound_ratio: float) -> bool:
        """Move the largest item if it is below half of the surplus. Return whether it was moved.

        The surplus is the load that has to leave the uplink. While the surplus is large, no careful
        choice is needed, which saves time with many small units.
        """
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
        """Return the best move, or the best exchange if it gains more than twice as much."""
        single = self._best(self._moves_from(fullest), limit_ratio)
        now_ratio = self._ratio(fullest)
        surplus_ratio = now_ratio - self._mean_ratio
        good_ratio = max(GOOD_STEP_OF_SURPLUS_RATIO * surplus_ratio, GOOD_STEP_RATIO * now_ratio)
        if single and now_ratio - single.ratio >= good_ratio:
            return single
        exchange = self._best(self._exchanges_from(fullest), limit_ratio)
        if single is None or exchange is None:
            return single or exchange
        twice = now_ratio - exchange.ratio > 2.0 * (now_ratio - single.ratio)
        return exchange if twice else single

    @property
    def _mean_ratio(self) -> float:
        """The utilization of every uplink, if all load were spread like a fluid."""
        return max(map(sum, self._bps)) / sum(self._caps)

    def _best(self, steps: Iterator[_Step], limit_ratio: float) -> _Step | None:
        """Return the permitted step after which the fuller of its two uplinks is least full."""
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
        """Return the load to move so that both uplinks are equally full in this `direction`."""
        used, caps = self._bps[direction], self._caps
        surplus = used[source] * caps[target] - used[target] * caps[source]
        return surplus / (caps[source] + caps[target])

    def _near(self, uplink: int, direction: int, size_bps: float) -> list[int]:
        """Return the items on an uplink whose size is about `size_bps`."""
        entries = self._by_size[direction][uplink]
        i = bisect_left(entries, size_bps, key=self._sizes[direction].__getitem__)
        return entries[max(0, i - NEIGHBOURS) : i + NEIGHBOURS]

    def _after(self, source: int, target: int, gone: int, back: int | None = None) -> float:
        """Return the utilization of the fuller of two uplinks after a move or an exchange."""
        worst = 0.0
        for sizes, used in zip(self._sizes, self._bps, strict=True):
            net = sizes[gone] - (sizes[back] if back is not None else 0.0)
            left, right = used[source] - net, used[target] + net
            worst = max(worst, left / self._caps[source], right / self._caps[target])
        return worst

    def _permits(self, item: int, target: int, along: int | None = None) -> bool:
        """Whether rules and reservations permit the move while item `along` moves back."""
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

    # ---- from scratch ------------------------------------------------------------------------------

    def put(self, at: Sequence[int]) -> None:
        """Change the placement to `at`, which contains the uplink of each item."""
        for item, uplink in enumerate(at):
            if self.at[item] != uplink:
                self._place(item, uplink)

    def placed_anew(self, found_ratio: float, bound_ratio: float) -> Iterator[list[int]]:
        """Yield placements of the largest items from scratch, those with fewer moves first.

        Items to which a rule or a reservation applies stay where they are.
        """
        fastest = max(self._caps)
        weight = [max(s, r) / fastest for s, r in zip(*self._sizes, strict=True)]
        loose = [i for i in range(len(self.items)) if not self._ruled[i]]
        chosen = sorted(loose, key=lambda i: (-weight[i], i))[:PLACED_ANEW]
        held = self._without(chosen)
        low, high = bound_ratio, found_ratio
        best: list[int] | None = None
        for _ in range(LEVELS):
            level = (low + high) / 2.0
            if (at := self._packed(chosen, held, level)) is None:
                low = level
            else:
                best, high = at, level
        if best is not None:
            yield best
        if (at := self._packed(chosen, held)) is not None:
            yield at
        if len(chosen) <= FEW_UNITS and (at := self._searched(chosen, held, found_ratio)):
            yield at

    def _without(self, chosen: Sequence[int]) -> _Used:
        """Return the loads of uplinks without the chosen items, with all other items at home."""
        out = set(chosen)
        used = (self._base[0].copy(), self._base[1].copy())
        for sizes, carried in zip(self._sizes, used, strict=True):
            for i, home in enumerate(self._homes):
                if i not in out:
                    carried[home] += sizes[i]
        return used

    def _packed(
        self, chosen: Sequence[int], held: _Used, level: float | None = None
    ) -> list[int] | None:
        """Place items, the largest first, each on the uplink that is emptiest after it is added.

        With a `level`, no uplink is filled above `level`: an item stays if it fits, or moves to the
        uplink that then has the least room left (best fit). None: an item fits on no uplink.
        """
        used, at = (held[0].copy(), held[1].copy()), self._homes.copy()
        caps, uplinks = self._caps, range(len(self.uplinks))
        for item in chosen:
            tx, rx = self._sizes[0][item], self._sizes[1][item]
            then_bps = [max(used[0][u] + tx, used[1][u] + rx) for u in uplinks]
            if level is None:
                at[item] = min(uplinks, key=lambda u: (then_bps[u] / caps[u], u))
            elif caps[at[item]] * level < then_bps[at[item]]:
                left = [(caps[u] * level - then_bps[u], u) for u in uplinks]
                fitting = [way for way in left if way[0] >= 0.0]
                if not fitting:
                    return None
                at[item] = min(fitting)[1]
            used[0][at[item]] += tx
            used[1][at[item]] += rx
        return at

    def _searched(self, chosen: Sequence[int], held: _Used, found_ratio: float) -> list[int] | None:
        """Return the best placement of few items, using branch and bound with limited steps.

        None: no better placement than the one with `found_ratio` was found.
        """
        (tx_used, rx_used), at = (held[0].copy(), held[1].copy()), self._homes.copy()
        best: list[int] | None = None
        limit_ratio, steps = found_ratio * (1.0 - LEAST_STEP_RATIO), MOST_PLACEMENTS
        caps, (sent, received) = self._caps, self._sizes
        uplinks, last = range(len(caps)), len(chosen)

        # The service runs this with each poll while loads are uneven, so the inner loop is inlined.
        def place(k: int, worst: float) -> None:
            nonlocal best, limit_ratio, steps
            if k == last:
                best, limit_ratio = at.copy(), worst * (1.0 - LEAST_STEP_RATIO)
                return
            item = chosen[k]
            tx, rx = sent[item], received[item]
            ways = []
            for u in uplinks:
                sends, receives = tx_used[u] + tx, rx_used[u] + rx
                ratio = (sends if sends >= receives else receives) / caps[u]
                if ratio < limit_ratio:
                    ways.append((ratio, u))
            ways.sort()
            seen: list[tuple[float, float, float]] = []
            for ratio, u in ways:
                # Earlier steps may have found a better placement.
                if ratio >= limit_ratio or steps <= 0:
                    return
                before_tx, before_rx = tx_used[u], rx_used[u]
                alike = (before_tx, before_rx, caps[u])
                if alike in seen:
                    continue
                seen.append(alike)
                steps -= 1
                at[item] = u
                tx_used[u] = before_tx + tx
                rx_used[u] = before_rx + rx
                place(k + 1, ratio if ratio > worst else worst)
                tx_used[u], rx_used[u] = before_tx, before_rx

        place(0, 0.0)
        return best

    # ---- the result -----------------------------------------------------------------------

    def leave_out(self, found_ratio: float, price_ratio: float) -> None:
        """Move items back, smallest first, if moving gains less than `price_ratio`."""
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
    """Whether a rule or a reservation applies to the unit."""
    return unit.allowed is not None or unit.rules.ruled or unit.rules.reserve_bps > 0.0


def _may_move(unit: Unit) -> bool:
    """Whether a unit can move; idle units move only with their set, because they relieve no uplink."""
    carries = unit.load.tx_bps > 0.0 or unit.load.rx_bps > 0.0
    return (carries or unit.rules.affinity is not None) and unit.movable
