"""When the policies of a bridge decide, and what they want moved.

Windows begin anew after moves, policies that act at once judge peaks, what has moved rests, and
what is split is counted before it is judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.decisions.evidence import Evidence, how
from controller.load.filling import BESIDE_S, Filling
from controller.load.judging import Judged
from controller.load.peaks import PEAK_S, Peaks
from controller.load.phases import Phases
from controller.teaming import buckets
from controller.teaming.splits import Splits
from policies import worth
from policies.damping import Damping
from policies.model import IDLE, Load, Move, Plan, Snapshot
from policies.outcome import with_loads
from policies.presets import PRESETS

# When a split has changed what buckets count, twice read since then they tell how much is in each:
# by that time the switch has changed its cached flows, and counted.
RESPLIT_AFTER_S = 0.6
RESPLIT_READINGS = 2
# The longest rest of a bucket that has moved.
BUCKET_REST_S = 60.0
# How loads were looked at, in words.
AT_PEAKS = f"at its peak within {PEAK_S:g} s"
AT_THE_MOMENT = "at that moment"
# Uplinks that are not full are evened out when that has been worth it for so long: loads that
# start one after another are not chased.
EVEN_AFTER_S = 0.3
# Of capacity: what an uplink carries, and nobody known sends.
UNEXPLAINED_RATIO = 0.1
ON_TIME_S = 0.001


@dataclass(frozen=True, slots=True)
class Wanted:
    """The moves that a policy wants, and the figures that it wants them by."""

    moves: Sequence[Move]
    evidence: Evidence


@dataclass(slots=True)
class Deciding:
    """What is remembered from one decision of a bridge to the next.

    `last_s`: when the last one was. `resting`: the units that are not moved by load now; `ripe`:
    the VM ports that need no longer be split.
    """

    last_s: float | None = None
    splits: Splits = field(default_factory=Splits)
    damping: Damping = field(default_factory=Damping)
    peaks: Peaks = field(default_factory=Peaks)
    phases: Phases = field(default_factory=Phases)
    filling: Filling = field(default_factory=Filling)
    late_known: bool = True
    # Whether something would help now, but not in a phase that is still remembered.
    _is_torn: bool = False
    _late: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()
    ripe: frozenset[str] = frozenset()
    # No switch upstream sees that a bucket moves: it is but for the order of packets.
    _bucket_damping: Damping = field(default_factory=lambda: Damping(BUCKET_REST_S))
    # When a move last changed the loads that a policy judges.
    _moved_s: dict[str, float] = field(default_factory=dict)
    # How many decisions in a row found moves worth making, by policy.
    _found_worth: Counter[str] = field(default_factory=Counter)
    # Since when they did.
    _worth_s: dict[str, float] = field(default_factory=dict)
    # How many readings in a row found an uplink full and moves that help.
    _found_urgent: int = 0
    # When buckets last began to count something else, and how often they were read since.
    _recounted_s: float = -math.inf
    _readings: int = 0

    def keep(self, units: Collection[str]) -> None:
        """Forget units that are gone."""
        for damping in self._dampings:
            damping.keep(units)

    def begin_windows(self, now_s: float) -> None:
        """Loads from before are not those of the bindings that are judged from here on."""
        self._moved_s = dict.fromkeys(PRESETS, now_s)

    def note(self, moves: Iterable[Move], policies: Mapping[str, str], now_s: float) -> None:
        """No mean may mix before and after: what a policy chose concerns its own windows only.

        `policies`: those of units, by name.
        """
        for move in moves:
            if buckets.is_bucket(move.unit):
                self._bucket_damping.note(move.unit, now_s)
            elif move.source and not move.is_resplit:
                self.damping.note(
                    move.unit, now_s, move.reason.by_load, self.filling.changes(now_s)
                )
            for policy in [policies[move.unit]] if move.reason.by_load else PRESETS:
                self._moved_s[policy] = now_s

    def last_moved_s(self, policy: str) -> float:
        """When a move last changed the loads that a policy judges; minus infinity if none did."""
        return self._moved_s.get(policy, -math.inf)

    # ---- a decision --------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """A poll has told everything; `wanted` follows, of what is judged from here on."""
        self.last_s = now_s
        self.resting = frozenset().union(*(d.resting(now_s) for d in self._dampings))
        self.ripe = self.splits.ripe(now_s)

    def wanted(self, judged: Judged, now_s: float, between: bool = False) -> Iterator[Wanted]:
        """What each policy wants moved, at most once a window of its own.

        `between` two polls ports are read alone, and nobody knows what is in buckets.
        """
        if self.late_known and any(PRESETS[p].at_once for p in judged.rebalancing):
            carried = judged.carried()
            self.peaks.take(carried, now_s)
            self.phases.take(carried, _least_capacity_bps(judged), now_s)
        in_use = buckets.in_use(judged.config) if between else ()
        for policy in judged.rebalancing:
            if policy in in_use:
                continue
            if PRESETS[policy].at_once and (wanted := self._urgent(policy, judged, now_s)):
                yield wanted
                continue
            if self.pauses(policy, judged, now_s) or judged.is_calm(policy):
                continue
            if PRESETS[policy].at_once:
                wanted = self._wanted_at_once(policy, judged, now_s)
            elif snapshot := judged.snapshot(policy, window_s := judged.window_s(policy)):
                moves = PRESETS[policy].rebalance(snapshot).moves
                wanted = Wanted(moves, Evidence.of(snapshot, how(window_s)))
            else:
                wanted = None
            if wanted is not None:
                yield wanted

    def _urgent(self, policy: str, judged: Judged, now_s: float) -> Wanted | None:
        """What relieves an uplink that is full, by what units carry at this moment.

        Where loads still change, found twice in a row: the first reading after a change is of
        before and after.
        """
        if not self._paused(policy, judged, now_s):
            self.filling.take_beside(judged.beside(), now_s)
        snapshot = judged.offered(policy, self.filling.beside)
        if snapshot is None or self._counts_lag(policy, judged, now_s):
            return None
        ports = [port.ofport for port in judged.config.vm_ports]
        rise = judged.loads.rise(ports)
        self.filling.see(snapshot, rise, _late_rise(judged, ports, rise), now_s)
        self._judge_looks(judged, now_s)
        if not self.late_known or not self.filling.is_urgent(now_s):
            self._found_urgent = 0
            return None
        moves, evidence = self._relief(policy, judged, snapshot, now_s)
        self._found_urgent = self._found_urgent + 1 if moves else 0
        if self._found_urgent < (1 if self.filling.steady else 2):
            return None
        self._found_urgent = self._found_worth[policy] = 0
        return Wanted(moves, evidence)

    def _judge_looks(self, judged: Judged, now_s: float) -> None:
        """Whether all that is late has been counted as a whole since loads last changed."""
        age_s = judged.loads.looked_at_s(port.ofport for port in judged.config.vm_ports)
        late = judged.late_units()
        # What was read before that was known is no rate of theirs.
        self.peaks.drop(late - self._late)
        self._late = late
        slack_s = judged.config.poll_interval_s / 2
        counted = not age_s or self.filling.is_counted(now_s - age_s + slack_s)
        self.late_known = counted and not (late and self._is_unexplained(judged, late))

    def _is_unexplained(self, judged: Judged, late: Collection[str]) -> bool:
        """Whether uplinks carry more beside units that are counted late than a moment ago.

        Then these have begun to carry more, and little of it has been counted. Loads that
        rise slowly show only that.
        """
        at = {unit.uplink for unit in judged.loaded() if unit.name in late}
        beside = judged.beside()
        for uplink in judged.config.uplinks:
            if uplink.name in at:
                new = beside[uplink.name] - self.filling.beside(uplink.name)
                if max(new.tx_bps, new.rx_bps) > UNEXPLAINED_RATIO * judged.capacity_bps(uplink):
                    return True
        return False

    def _relief(
        self, policy: str, judged: Judged, snapshot: Snapshot, now_s: float
    ) -> tuple[Sequence[Move], Evidence]:
        """What is good at the peaks, too; for this moment alone where nothing is, and it lasts."""
        relieve = PRESETS[policy].relieve
        if peaks := judged.offered(policy, self.filling.beside, self.peaks):
            plan = worth.chosen(worth.chosen(relieve(peaks), peaks), snapshot)
            if _is_whole(plan):
                return plan.moves, Evidence.of(peaks, AT_PEAKS)
            if moves := self._for_the_moment(policy, snapshot, peaks):
                return moves, Evidence.of(snapshot, AT_THE_MOMENT)
            if plan.moves or not self.filling.lasts(now_s):
                return plan.moves, Evidence.of(peaks, AT_PEAKS)
        return worth.chosen(relieve(snapshot), snapshot).moves, Evidence.of(snapshot, AT_THE_MOMENT)

    def _wanted_at_once(self, policy: str, judged: Judged, now_s: float) -> Wanted | None:
        """What is found worth it for some time: who starts together is to be seen together.

        The first reading after a change is of before and after, the second tells how large it is.
        """
        if not self.late_known or (peaks := judged.live(policy, self.peaks)) is None:
            return None
        plan = Plan()
        if worth.may_be(peaks):
            plan = worth.chosen(PRESETS[policy].rebalance(peaks), peaks)
        evidence = Evidence.of(peaks, AT_PEAKS)
        if latest := judged.live(policy):
            # What a move is worth, peaks have told.
            plan = worth.chosen(plan, latest, price_ratio=0.0)
            if not _is_whole(plan) and (moves := self._for_the_moment(policy, latest, peaks)):
                plan = replace(plan, moves=tuple(moves))
                evidence = Evidence.of(latest, AT_THE_MOMENT)
        ports = (unit.name for unit in peaks.units if not unit.is_bucket)
        self.splits.judge(ports, plan.cool, now_s)
        if not plan.moves:
            self._found_worth[policy] = 0
            return None
        self._found_worth[policy] += 1
        if self._found_worth[policy] == 1:
            self._worth_s[policy] = now_s
        waits = now_s - self._worth_s[policy] < EVEN_AFTER_S - ON_TIME_S
        if self._found_worth[policy] < 2 or (waits and self.filling.changes(now_s)):
            return None
        return Wanted(plan.moves, evidence)

    def _for_the_moment(self, policy: str, latest: Snapshot, peaks: Snapshot) -> Sequence[Move]:
        """Moves that relieve an uplink now and harm no phase of the last seconds, if any do.

        Peaks add up what is never busy at one time. So this is asked where nothing helps at the
        peaks, and before anything is divided because of them. What is good for this moment alone
        may harm other phases; what is good half-way between it and the peaks often does not.
        """
        self._is_torn = False
        high = worth.worst_ratio(latest.uplinks) > worth.NEARLY_FULL_RATIO
        if not high or not self.phases.is_known or not worth.may_be(latest):
            return ()
        for snapshot in (latest, _between(latest, peaks)):
            plan = worth.chosen(PRESETS[policy].relieve(snapshot), latest)
            if not _is_whole(plan):
                continue
            if worth.harms_no_phase(plan.moves, latest, self.phases) and worth.stays(
                plan.moves, peaks
            ):
                return plan.moves
            self._is_torn = True
        return ()

    def pauses(self, policy: str, judged: Judged, now_s: float) -> bool:
        """Whether a window of this policy's is not yet over since a move."""
        return self._paused(policy, judged, now_s) or self._counts_lag(policy, judged, now_s)

    def _paused(self, policy: str, judged: Judged, now_s: float) -> bool:
        return now_s - self.last_moved_s(policy) < judged.pause_s(policy)

    @property
    def looks_again(self) -> bool:
        """Whether moves were found worth it once."""
        return any(self._found_worth.values()) or self._found_urgent > 0

    # ---- what buckets count ------------------------------------------------------------

    def count_anew(self, now_s: float) -> float:
        """What buckets have counted so far was of others' frames, or is not known.

        When they should be read next.
        """
        self._recounted_s, self._readings = now_s, 0
        return now_s + RESPLIT_AFTER_S

    def read_buckets(self, now_s: float) -> None:
        """They have been read."""
        self._readings += now_s >= self._recounted_s + RESPLIT_AFTER_S

    def _counts_lag(self, policy: str, judged: Judged, now_s: float) -> bool:
        """Whether buckets do not tell yet what is in them, since a split or a connection."""
        config = judged.config
        if PRESETS[policy].splits_by is None or policy not in buckets.in_use(config):
            return False
        if now_s < self._recounted_s + RESPLIT_AFTER_S:
            return True
        return config.mode != "observe" and self._readings < RESPLIT_READINGS

    # ---- what is to come ---------------------------------------------------------------

    def rests(self, judged: Judged, now_s: float) -> Mapping[str, tuple[float, bool]]:
        """Until when units are not moved because of load, by name, and whether for their budget."""
        spent = self.damping.spent(now_s)
        resting = self.damping.resting(now_s) | spent
        units = judged.units() if resting else ()
        damped = resting & {unit.name for unit in units if PRESETS[unit.policy].at_once}
        return {n: (self.damping.until_s(n, now_s), n in spent) for n in damped}

    def quiet_until_s(self, judged: Judged, steady_s: float, now_s: float) -> float:
        """Until when no decision differs from the last one, if loads are what they have been
        since `steady_s`; `now_s`: the next one may, infinity: none will.

        The last one saw nothing from before that, and what has moved rests.
        """
        last_s = self.last_s
        if last_s is None or self.looks_again or self.filling.waits(last_s):
            return now_s
        for policy in judged.rebalancing:
            if self.pauses(policy, judged, last_s):
                return now_s
            since_s = max(steady_s, self.last_moved_s(policy))
            remembered_s = judged.remembered_s(policy)
            if PRESETS[policy].at_once:
                remembered_s += judged.ports_follow_s + BESIDE_S
            if last_s < since_s + remembered_s:
                return now_s
        free_s = (d.until_s(unit, now_s) for unit in self.resting for d in self._dampings)
        later_s = [at_s for at_s in free_s if at_s > now_s]
        fall_s, merge_s = self.peaks.falls_s, self.splits.deadline_s(now_s)
        phase_s = self.phases.ends_s if self._is_torn else math.inf
        return max(now_s, min(fall_s, merge_s, phase_s, *later_s))

    @property
    def _dampings(self) -> tuple[Damping, Damping]:
        return self.damping, self._bucket_damping


def _least_capacity_bps(judged: Judged) -> float:
    return min(map(judged.capacity_bps, judged.config.uplinks), default=0.0)


def _is_whole(plan: Plan) -> bool:
    """Whether it moves something, and neither divides nor merges."""
    return bool(plan.moves) and not any(move.is_resplit for move in plan.moves)


def _between(latest: Snapshot, peaks: Snapshot) -> Snapshot:
    """The team with the means of what it carries now and at its peaks."""
    known = {unit.name: unit.load for unit in peaks.units}
    loads = {u.name: _mean(u.load, known.get(u.name, u.load)) for u in latest.units}
    units = tuple(replace(u, load=loads[u.name]) for u in latest.units)
    return replace(latest, uplinks=with_loads(latest.uplinks, latest.units, loads), units=units)


def _mean(one: Load, other: Load) -> Load:
    return Load((one.tx_bps + other.tx_bps) / 2, (one.rx_bps + other.rx_bps) / 2)


def _late_rise(judged: Judged, ports: Collection[int], rise: Load) -> Load:
    """By how much more uplinks carry than VM ports that are counted at once account for."""
    if not any(map(judged.loads.is_late, ports)):
        return IDLE
    uplinks = judged.loads.rise(uplink.ofport for uplink in judged.config.uplinks)
    return Load(max(0.0, uplinks.tx_bps - rise.tx_bps), max(0.0, uplinks.rx_bps - rise.rx_bps))
