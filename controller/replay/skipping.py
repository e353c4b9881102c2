"""Which polls a replay may skip: until when a bridge decides nothing, if loads stay as they are."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from controller.bridge.bridge import Bridge
from controller.load.beats import LONGEST_BEAT_S
from controller.load.filling import FULL_RATIO
from controller.load.loads import Loads
from controller.load.peaks import PEAK_S
from controller.load.polling import (
    BUCKETS_INTERVAL_S,
    ON_TIME_S,
    ROUNDING_S,
    UNITS_INTERVAL_S,
)
from controller.load.rates import LATEST_S, Rates
from controller.load.team_view import UPLINK_LAG_S, TeamView
from policies import gain
from policies.model import IDLE, Load, Snapshot
from policies.outcome import with_loads
from policies.presets import PRESETS

# The tolerance of times, as a share of a poll interval: multiples of some are not exact in binary.
ON_TIME_RATIO = 1e-6
# A rate is made of so many readings.
READINGS = 2
# For how long a policy that acts at once remembers loads: peaks and phases, and some polls.
REMEMBERED_S = PEAK_S + 5.0


@dataclass(slots=True)
class Readings:
    """When counters were read: the last times, in seconds of engine time."""

    ports_s: deque[float] = field(default_factory=lambda: deque(maxlen=READINGS))
    buckets_s: deque[float] = field(default_factory=lambda: deque(maxlen=READINGS))
    # Whether the buckets that were read last repeat; None: not asked since.
    _buckets_repeat: bool | None = None

    def note(self, buckets: bool, now_s: float) -> None:
        """Counters are read now. `buckets`: also those of buckets."""
        self.ports_s.append(now_s)
        if buckets:
            self.buckets_s.append(now_s)
            self._buckets_repeat = None

    def show_ports(self, steady_s: float, now_s: float = math.inf) -> bool:
        """Whether loads of ports are only of the time since then, also if they are read now."""
        if len(self.ports_s) < READINGS or self.ports_s[0] < steady_s:
            return False
        return all(b - a >= LATEST_S for a, b in pairwise((*self.ports_s, now_s)))

    def show_buckets(self, steady_s: float) -> bool:
        """The same of buckets."""
        return len(self.buckets_s) == READINGS and self.buckets_s[0] >= steady_s

    def buckets_repeat(self, loads: Loads) -> bool:
        """Whether the same loads of the buckets that were read last make the same rates again."""
        if self._buckets_repeat is None:
            known = [rates for rates in loads.bucket_rates.values() if rates.total]
            last_s = max((rates.clock_s for rates in known), default=0.0)
            self._buckets_repeat = all(_repeats(of) for of in known if of.clock_s == last_s)
        return self._buckets_repeat


def _repeats(rates: Rates) -> bool:
    """Whether the same load makes the same rate again, because it is known how the counter counts.

    That is so if it is live, or if it carries nothing, so that no update of it may still be spread
    over a standstill, and the next one is spread over the longest possible one.
    """
    if rates.beats.late is not None:
        return is_live(rates)
    counted_s = rates.beats.counted_s
    if rates.total is None or counted_s is None:
        return rates.total is None
    return rates.clock_s - counted_s > LONGEST_BEAT_S


def is_live(rates: Rates | None) -> bool:
    """Whether a counter is known not to be late, also if it has stood still lately."""
    return rates is not None and rates.beats.late is False and not rates.beats.updates


def hold(bridge: Bridge, until_s: float) -> None:
    """Assume that the loads of the last reading were carried until then. No decision differs until then."""
    scheduler = bridge.scheduler
    assert until_s < scheduler.same_until_s, "the decision is the same"
    scheduler.last_s = scheduler.remembered_s = scheduler.filling.taken_s = until_s


def quiet_until_s(
    bridge: Bridge, at_once: bool, steady_s: float, readings: Readings, now_s: float
) -> float:
    """Until when no decision will differ from the last one, if loads do not change.

    `at_once`: the policy of all VM ports acts at once. Loads have been the same since `steady_s`.
    `now_s`: the next decision may differ; infinity: none will. Until a decision has seen only loads
    since then, and no policy pauses, the answer is `now_s`.
    """
    scheduler = bridge.scheduler
    last_s = scheduler.last_s
    if not bridge.settled or last_s is None:
        return now_s
    if at_once:
        if not readings.show_ports(steady_s) or bridge.polling.due_s < bridge.polling.poll_due_s:
            return now_s
        change_s = scheduler.same_until_s
        if change_s <= now_s or not all(map(_repeats, bridge.loads.port_rates.values())):
            return now_s
        if bridge.placing.hashed and not (
            readings.show_buckets(steady_s) and readings.buckets_repeat(bridge.loads)
        ):
            # The next reading of buckets may show other loads, and polls before it do not.
            change_s = min(change_s, bridge.polling.buckets_s)
        return max(now_s, change_s)
    team_view = bridge.placing.team_view
    if scheduler.awaits_confirmation:
        return now_s
    for policy in team_view.config.rebalancing:
        if scheduler.pauses(policy, team_view, last_s):
            return now_s
        since_s = max(steady_s, scheduler.last_moved_s(policy))
        if last_s < since_s + _remembered_s(team_view, policy):
            return now_s
    return math.inf


def is_calm(bridge: Bridge, loads: Mapping[str, Load]) -> bool:
    """Whether nothing is moved while uplinks carry these loads, or a mean of several such loads.

    That holds for every division of the loads among the units.
    """
    team_view = bridge.placing.team_view
    uplinks = tuple(replace(uplink, load=loads[uplink.name]) for uplink in team_view.uplinks())
    team = Snapshot(uplinks, (), team_view.config.threshold_ratio)
    judges = [PRESETS[policy].is_calm for policy in team_view.config.rebalancing]
    return all(judge is not None and judge(team) for judge in judges)


def at_rest(bridge: Bridge) -> Snapshot:
    """Return the team of a bridge without loads."""
    team_view = bridge.placing.team_view
    uplinks = tuple(uplink.carrying(IDLE) for uplink in team_view.uplinks())
    units = tuple(unit.as_judged(IDLE, 0.0, unit.excluded) for unit in team_view.loaded())
    return Snapshot(uplinks, units)


def stays_calm(team: Snapshot, loads: Mapping[str, Load], before: Mapping[str, Load]) -> bool:
    """Whether a policy that acts at once moves nothing in a team whose units begin to carry loads.

    `team`: without loads. `loads`: by name of the unit. `before`: the loads that they carried until
    then, and for so long that no others are remembered. Both are values of counters.
    """
    now = _carrying(team, loads)
    if gain.worst_ratio(now.uplinks) >= FULL_RATIO:
        return False
    peaks = {name: load.larger(before.get(name, IDLE)) for name, load in loads.items()}
    highest = _carrying(team, {**before, **peaks})
    if not gain.may_help_now(now, highest):
        return True
    return not (gain.is_possible(now) or gain.is_possible(highest))


def _carrying(team: Snapshot, loads: Mapping[str, Load]) -> Snapshot:
    """Return the team if its units carried these loads, by name, and uplinks nothing else."""
    units = tuple(u.as_judged(loads.get(u.name, IDLE), 0.0, u.excluded) for u in team.units)
    return Snapshot(with_loads(team.uplinks, team.units, loads), units)


def polled_s(bridge: Bridge) -> float:
    """When the last poll was due, whatever was read between polls."""
    return bridge.polling.poll_due_s - bridge.config.poll_interval_s


def reading_s(bridge: Bridge) -> float:
    """From when on a poll reads more than the counters of ports."""
    buckets_too = bridge.placing.hashed or bool(bridge.address_units.by_name)
    return bridge.polling.reading_s(bridge.config.poll_interval_s, buckets_too)


def polls_before(at_s: float, polled_s: float, interval_s: float) -> int:
    """How many polls are due before a time, after the last one at `polled_s`."""
    return math.ceil((at_s - polled_s) / interval_s - ON_TIME_RATIO) - 1


def round_polls(interval_s: float, buckets: bool) -> int:
    """Return how many polls it takes until everything was read. `buckets`: including buckets."""
    after_s = BUCKETS_INTERVAL_S - ON_TIME_S if buckets else UNITS_INTERVAL_S - interval_s / 2
    return max(1, math.ceil(after_s / interval_s - ROUNDING_S))


def round_s(team_view: TeamView) -> float:
    """How long it takes to read all counters: not every poll reads those of flows."""
    poll_s = team_view.config.poll_interval_s
    return poll_s * round_polls(poll_s, team_view.hashed)


def remembered_s(team_view: TeamView) -> float:
    """For how long a change of loads affects decisions, up to the poll after that."""
    longest_s = max(
        (_remembered_s(team_view, p) for p in team_view.config.rebalancing), default=0.0
    )
    return longest_s + round_s(team_view)


def _remembered_s(team_view: TeamView, policy: str) -> float:
    """For how long a change of loads affects what a policy judges, if polls are on time."""
    after_s = round_s(team_view)
    if PRESETS[policy].at_once:
        return 2 * after_s
    # Counters that not every poll reads were read up to a round ago.
    rounds = math.ceil(team_view.window_s(policy) / after_s) + math.ceil(UPLINK_LAG_S / after_s) + 1
    return after_s * rounds
