"""Schedules the decisions of a bridge's policies, and runs each policy.

A policy with a window uses the mean loads in this window, and each move begins a new one. A policy that
acts immediately (`adaptive`) uses the peaks of the last seconds, and current loads when an uplink
is full. A unit that a policy has moved because of load is in cooldown. After a split, policies wait
until the switch has counted the new buckets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controller.decisions.decision_log import Evidence, how
from controller.load.filling import Filling, lasts
from controller.load.polling import UNITS_INTERVAL_S
from controller.load.recent_loads import PEAK_S, RecentLoads
from controller.load.reused import Reused
from controller.load.team_view import TeamView
from controller.teaming import buckets
from controller.teaming.splits import Splits
from policies import gain
from policies.damping import Damping
from policies.model import IDLE, Load, Move, Plan, Snapshot
from policies.outcome import with_loads
from policies.presets import PRESETS

# Bucket counters are valid once they have been read twice, beginning this long after a split. By
# that time, the switch has revalidated its cached flows, and counts the new flows.
RESPLIT_AFTER_S = 0.6
RESPLIT_READINGS = 2
# The longest cooldown of a bucket.
BUCKET_COOLDOWN_S = 60.0
# The loads on which a decision is based, in words.
AT_PEAKS = f"at its peak in the last {PEAK_S:g} s"
AT_THE_MOMENT = "at that moment"
# While no uplink is full, moves are made only after they have been worthwhile for this long. So the
# service does not react separately to loads that start one after another.
EVEN_AFTER_S = 0.3
# If the load of an uplink rises by this share of its capacity, and no unit accounts for the rise,
# units with late counters have begun to carry more.
UNEXPLAINED_RATIO = 0.1
# Readings of a steady load vary on a busy host. A load has risen if it exceeds the highest reading
# of this much time before it.
RECENT_S = 0.3
ON_TIME_S = 0.001


class Wanted(NamedTuple):
    """The moves that a policy wants, and the loads on which these moves are based."""

    moves: Sequence[Move]
    evidence: Evidence


@dataclass(slots=True)
class Scheduler:
    """Schedules the decisions of one bridge, and keeps the state that the next decision needs.

    `last_s`: the engine time of the last decision, in seconds; None: no decision. `remembered_s`:
    the time when `recent_loads` were last updated. `in_cooldown`, `merge_due`: as in `TeamView`.
    """

    last_s: float | None = None
    remembered_s: float = -math.inf
    splits: Splits = field(default_factory=Splits)
    damping: Damping = field(default_factory=Damping)
    recent_loads: RecentLoads = field(default_factory=RecentLoads)
    filling: Filling = field(default_factory=Filling)
    late_known: bool = True
    _late: frozenset[str] = frozenset()
    in_cooldown: frozenset[str] = frozenset()
    merge_due: frozenset[str] = frozenset()
    # A short cooldown is enough for buckets: upstream switches have no address to learn again, and
    # a move only reorders some packets.
    _bucket_damping: Damping = field(default_factory=lambda: Damping(BUCKET_COOLDOWN_S))
    # When a move last changed the loads that a policy uses, by policy; minus infinity: never.
    moved_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PRESETS, -math.inf))
    # Since when decisions have found moves worth making; None: the last one found none.
    _gain_since_s: float | None = None
    # Whether the last reading found a full uplink and moves that relieve it.
    _found_urgent: bool = False
    # When buckets last began to count other traffic, and the number of readings after that time.
    _recounted_s: float = -math.inf
    _readings: int = 0
    # The latest plans for policies that act immediately. Decisions often need a plan for the same team
    # again: a replay of the example trace takes 6.6 s of CPU time, and 8.7 s without these plans.
    _plans: Reused = field(default_factory=Reused)

    def begin_windows(self, now_s: float) -> None:
        """Begin new windows for all policies now, because bindings have changed."""
        self.moved_s = dict.fromkeys(PRESETS, now_s)

    def note(self, moves: Iterable[Move], policies: Mapping[str, str], now_s: float) -> None:
        """Record moves, and begin new windows for the policies that use the changed loads.

        A mean must not mix loads from before a move with loads from after it. A move because of
        load changes only the loads that the unit's own policy uses. Any other move changes the
        loads that all policies use. `policies`: the policy of each unit, by unit name.
        """
        for move in moves:
            if buckets.is_bucket(move.unit):
                self._bucket_damping.note(move.unit, now_s)
            elif move.source and not move.is_resplit:
                self.damping.note(
                    move.unit, now_s, move.reason.by_load, self.filling.changes(now_s)
                )
            for policy in [policies[move.unit]] if move.reason.by_load else PRESETS:
                self.moved_s[policy] = now_s

    # ---- a decision --------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Compute inputs of the next `TeamView`. The caller then builds this view, and calls `decide`."""
        self.in_cooldown = frozenset().union(*(d.in_cooldown(now_s) for d in self.dampings))
        self.merge_due = self.splits.due(now_s)

    def decide(self, team_view: TeamView, now_s: float, between: bool = False) -> list[Wanted]:
        """Store the loads of a poll, and return the moves that each policy wants to make now.

        `between`: the loads are from a reading of ports only, between two polls, so policies with
        buckets in use do not decide.
        """
        self.last_s = now_s
        rebalancing, in_use = team_view.config.rebalancing, team_view.in_use if between else ()
        policies = [policy for policy in rebalancing if policy not in in_use]
        present = {
            p: self._at_this_moment(p, team_view, now_s) for p in policies if PRESETS[p].at_once
        }
        # The first reading after everything was counted mixes loads from before and after the
        # change, so wait for the next one.
        known = team_view.late_known and self.late_known
        if known and any(PRESETS[policy].at_once for policy in rebalancing):
            least_bps = min([uplink.capacity_bps for uplink in team_view.uplinks()], default=0.0)
            self.recent_loads.note_loads(team_view.loaded(), least_bps, self.remembered_s, now_s)
            self.remembered_s = now_s
        return [w for p in policies if (w := self._wanted(p, team_view, present.get(p), now_s))]

    def _wanted(
        self, policy: str, team_view: TeamView, present: Snapshot | None, now_s: float
    ) -> Wanted | None:
        """Return the moves of a policy; None: the policy makes no moves, or must not be asked now.

        A policy with a window is asked at most once in each window. `present`: the team with its
        current loads, for a policy that acts immediately; None: they are unknown.
        """
        if present is not None and (wanted := self._urgent(policy, team_view, present, now_s)):
            return wanted
        if self.pauses(policy, team_view, now_s) or team_view.is_calm(policy):
            return None
        if PRESETS[policy].at_once:
            return self._wanted_at_once(policy, team_view, present, now_s)
        window_s = team_view.window_s(policy)
        if (snapshot := team_view.snapshot(policy, window_s)) is None:
            return None
        moves = PRESETS[policy].rebalance(snapshot).moves
        return Wanted(moves, Evidence.evidence_of(snapshot, how(window_s))) if moves else None

    def _at_this_moment(self, policy: str, team_view: TeamView, now_s: float) -> Snapshot | None:
        """Return the team with its current loads, and record how the loads change.

        None: the current loads are unknown.
        """
        unexplained = team_view.unexplained()
        if not self._paused(policy, team_view, now_s):
            self.filling.note_unexplained(unexplained, now_s)
        snapshot = team_view.offered(
            policy, unexplained=self.filling.least_unexplained(unexplained)
        )
        if snapshot is None or self._counts_lag(policy, team_view, now_s):
            return None
        late = team_view.late_ports
        ports = [port.ofport for port in team_view.config.vm_ports if port.ofport not in late]
        rise, late_rise = team_view.loads.rise(ports), IDLE
        if late:
            of_uplinks = team_view.loads.rise(team_view.config.uplink_at, RECENT_S)
            late_rise = IDLE.larger(of_uplinks - rise)
        self.filling.see(snapshot, rise, late_rise, now_s)
        self._judge_late_counters(team_view, unexplained, now_s)
        return snapshot

    def _urgent(
        self, policy: str, team_view: TeamView, snapshot: Snapshot, now_s: float
    ) -> Wanted | None:
        """Return moves that relieve a full uplink, based on the current loads of units.

        While loads still change, moves must be found in two readings in a row, because the first
        reading after a change mixes loads from before and after it.
        """
        if not self.late_known or not self.filling.is_urgent(now_s):
            self._found_urgent = False
            return None
        moves, evidence = self._relief(policy, team_view, snapshot, now_s)
        confirmed = self._found_urgent or self.filling.steady
        self._found_urgent = bool(moves) and not confirmed
        if not moves or not confirmed:
            return None
        self._gain_since_s = None
        return Wanted(moves, evidence)

    def _judge_late_counters(
        self, team_view: TeamView, unexplained: Mapping[str, Load], now_s: float
    ) -> None:
        """Set `late_known`: whether all late counters cover only time since the last load change.

        Late counters are described in `controller.load.rates`.
        """
        age_s = team_view.loads.counted_age_s(team_view.late_ports)
        late = team_view.late_units(team_view.loaded())
        # Until a counter is known to be late, its steps look like bursts, so forget such peaks.
        self.recent_loads.drop_peaks(late - self._late)
        self._late = frozenset(late)
        slack_s = team_view.config.poll_interval_s / 2
        counted = not age_s or self.filling.is_counted(now_s - age_s + slack_s)
        if divided := team_view.divided_ports:
            # If the counters of all these ports are late, their readings also cover the addresses
            # behind these ports.
            lag_s = UNITS_INTERVAL_S - slack_s
            ports_suffice = divided <= team_view.loads.late_ports()
            counted = counted and self.filling.addresses_known(None if ports_suffice else lag_s)
        self.late_known = counted and not (
            late and self._is_unexplained(team_view, unexplained, late)
        )

    def _is_unexplained(
        self, team_view: TeamView, unexplained: Mapping[str, Load], late: Collection[str]
    ) -> bool:
        """Whether traffic that no unit accounts for has risen on an uplink of late units.

        If so, these units have begun to carry more, and most of the increase has not been counted
        yet. Slowly rising loads cannot be detected in another way.
        """
        at = {unit.uplink for unit in team_view.loaded() if unit.name in late}
        least = self.filling.least_unexplained(unexplained)
        for uplink in team_view.config.uplinks:
            if uplink.name in at:
                new = unexplained[uplink.name] - least[uplink.name]
                if max(new.tx_bps, new.rx_bps) > UNEXPLAINED_RATIO * team_view.capacity_bps(uplink):
                    return True
        return False

    def _relief(
        self, policy: str, team_view: TeamView, snapshot: Snapshot, now_s: float
    ) -> tuple[Sequence[Move], Evidence]:
        """Return moves that relieve a full uplink, and the loads on which they are based.

        Moves that also help at the peaks are preferred. If there are none, and the uplink stays
        full, the result is moves that help only now.
        """
        unexplained = self.filling.least_unexplained(team_view.unexplained())
        if peaks := team_view.offered(policy, self.recent_loads, unexplained):
            plan = gain.worthwhile(self._plan_at(AT_PEAKS, policy, peaks), peaks)
            plan = gain.worthwhile(plan, snapshot)
            if _is_whole(plan):
                return plan.moves, Evidence.evidence_of(peaks, AT_PEAKS)
            if moves := self._for_the_moment(policy, snapshot, peaks, now_s):
                return moves, Evidence.evidence_of(snapshot, AT_THE_MOMENT)
            if plan.moves or not lasts(self.filling.full_s, now_s):
                return plan.moves, Evidence.evidence_of(peaks, AT_PEAKS)
        plan = gain.worthwhile(self._plan_at(AT_THE_MOMENT, policy, snapshot), snapshot)
        return plan.moves, Evidence.evidence_of(snapshot, AT_THE_MOMENT)

    def _plan_at(self, at: str, policy: str, snapshot: Snapshot) -> Plan:
        """Return the plan that relieves a full uplink. `at`: what the loads in `snapshot` are."""
        return self._plans.reuse(policy, at, PRESETS[policy].relieve, (snapshot,))

    def _wanted_at_once(
        self, policy: str, team_view: TeamView, present: Snapshot | None, now_s: float
    ) -> Wanted | None:
        """Return moves that have been worthwhile at the peaks of loads for `EVEN_AFTER_S`.

        Related loads start within about that time, so one decision takes all of them into account.
        If loads do not change, two readings are enough: the first reading after a change mixes
        loads from before and after the change.
        """
        unexplained, peaks = team_view.unexplained(), team_view.offered(policy, self.recent_loads)
        latest = present
        if self.filling.least_unexplained(unexplained) != unexplained:
            latest = team_view.offered(policy)
        if not self.late_known or latest is None or peaks is None:
            return None
        plan, judged, at = Plan(), peaks, AT_PEAKS
        if gain.may_help_now(latest, peaks):
            plan, judged, at = self._at_peaks(policy, latest, peaks, now_s)
        ports = (unit.name for unit in judged.units if not unit.is_bucket)
        self.splits.judge(ports, plan.mergeable, now_s)
        if not plan.moves:
            self._gain_since_s = None
            return None
        if self._gain_since_s is None:
            self._gain_since_s = now_s
            return None
        waits = now_s - self._gain_since_s < EVEN_AFTER_S - ON_TIME_S
        if waits and self.filling.changes(now_s):
            return None
        return Wanted(plan.moves, Evidence.evidence_of(judged, at))

    def _at_peaks(
        self, policy: str, latest: Snapshot, peaks: Snapshot, now_s: float
    ) -> tuple[Plan, Snapshot, str]:
        """Return moves that are worthwhile at the peaks and now, and the loads that they use."""
        plan = Plan()
        if gain.is_possible(peaks):
            plan = self._plans.reuse(policy, "rebalance", PRESETS[policy].rebalance, (peaks,))
            plan = gain.worthwhile(plan, peaks)
        # The least gain of each address was checked at the peaks already.
        plan = gain.worthwhile(plan, latest, each_ratio=0.0)
        if not _is_whole(plan) and (moves := self._for_the_moment(policy, latest, peaks, now_s)):
            return replace(plan, moves=tuple(moves)), latest, AT_THE_MOMENT
        return plan, peaks, AT_PEAKS

    def _for_the_moment(
        self, policy: str, latest: Snapshot, peaks: Snapshot, now_s: float
    ) -> Sequence[Move]:
        """Return moves that relieve an uplink now and do no harm in recent load phases.

        Sums of peaks may include loads that are never high at the same time. So callers use this
        method if no move helps at the peaks, and before they split a VM port because of peaks.
        Moves based on current loads may do harm in another phase. Moves based on the means of
        current loads and peaks often do not, so these moves are tried second. Moves must not
        raise the highest sum of peaks, unless an uplink has been nearly full for longer than a
        burst lasts. Empty: there are no such moves.
        """
        high = gain.worst_ratio(latest.uplinks) > gain.NEARLY_FULL_RATIO
        phases = self.recent_loads.phases()
        if not high or not phases or not gain.is_possible(latest):
            return ()
        for at, snapshot in ((AT_THE_MOMENT, latest), ("between", _between(latest, peaks))):
            plan = gain.worthwhile(self._plan_at(at, policy, snapshot), latest)
            if not _is_whole(plan):
                continue
            spares_peaks = lasts(self.filling.high_s, now_s) or gain.keeps_worst(plan.moves, peaks)
            if spares_peaks and gain.harms_no_phase(plan.moves, latest, phases):
                return plan.moves
        return ()

    def pauses(self, policy: str, team_view: TeamView, now_s: float) -> bool:
        """Whether a policy must wait for the end of its window, or for valid bucket counters."""
        return self._paused(policy, team_view, now_s) or self._counts_lag(policy, team_view, now_s)

    def _paused(self, policy: str, team_view: TeamView, now_s: float) -> bool:
        return now_s - self.moved_s[policy] < team_view.pause_s(policy)

    def knows(self, team_view: TeamView, now_s: float) -> bool:
        """Whether the loads of the current bindings are known over the windows of all policies."""
        pauses = any(self.pauses(policy, team_view, now_s) for policy in team_view.config.policies)
        return not pauses and team_view.covers(team_view.longest_window_s)

    def forget_loads(self) -> None:
        """Forget all loads, because the switch was disconnected or replaced."""
        self.recent_loads, self.filling = RecentLoads(), Filling()

    @property
    def awaits_confirmation(self) -> bool:
        """Whether worthwhile moves were found that the next reading must confirm."""
        return self._gain_since_s is not None or self._found_urgent

    # ---- the counters of buckets -------------------------------------------------------

    def count_anew(self, now_s: float) -> float:
        """Discard the counters of buckets, because buckets count other traffic from now on.

        Return the time of the next reading of these counters, in seconds of engine time.
        """
        self._recounted_s, self._readings = now_s, 0
        return now_s + RESPLIT_AFTER_S

    def read_buckets(self, now_s: float) -> None:
        """Record that the counters of buckets have been read."""
        self._readings += now_s >= self._recounted_s + RESPLIT_AFTER_S

    def _counts_lag(self, policy: str, team_view: TeamView, now_s: float) -> bool:
        """Whether bucket counters are not valid yet after a split or a new connection."""
        config = team_view.config
        if PRESETS[policy].splits_by is None or policy not in team_view.in_use:
            return False
        if now_s < self._recounted_s + RESPLIT_AFTER_S:
            return True
        return not config.observes and self._readings < RESPLIT_READINGS

    # ---- cooldowns ---------------------------------------------------------------------

    def cooldowns(self, team_view: TeamView, now_s: float) -> Mapping[str, tuple[float, bool]]:
        """Return the units that are in cooldown or have used up their budget of moves, by name.

        Each value is the engine time, in seconds, from which a policy can move the unit again, and
        whether the unit has used up its budget.
        """
        spent = self.damping.spent(now_s)
        in_cooldown = self.damping.in_cooldown(now_s) | spent
        units = team_view.units() if in_cooldown else ()
        damped = in_cooldown & {unit.name for unit in units if PRESETS[unit.policy].at_once}
        return {n: (self.damping.until_s(n, now_s), n in spent) for n in damped}

    @property
    def dampings(self) -> tuple[Damping, Damping]:
        """The records that limit how often units move: of VM ports and address units, and of buckets."""
        return self.damping, self._bucket_damping


def _is_whole(plan: Plan) -> bool:
    """Whether a plan has moves, and neither splits nor merges a VM port."""
    return bool(plan.moves) and not any(move.is_resplit for move in plan.moves)


def _between(latest: Snapshot, peaks: Snapshot) -> Snapshot:
    """Return the team with the mean of the current load and the peak of each unit."""
    known, loads = {unit.name: unit.load for unit in peaks.units}, {}
    for unit in latest.units:
        one, other = unit.load, known.get(unit.name, unit.load)
        mean = (one.tx_bps + other.tx_bps) / 2, (one.rx_bps + other.rx_bps) / 2
        loads[unit.name] = one if other is one else Load(*mean)
    # Most buckets are idle.
    units = tuple(
        u if (load := loads[u.name]) == u.load else u.as_judged(load, u.spread_bps, u.excluded)
        for u in latest.units
    )
    return replace(latest, uplinks=with_loads(latest.uplinks, latest.units, loads), units=units)
