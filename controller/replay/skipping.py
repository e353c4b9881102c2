"""Determines the polls that a replay can skip, because no decision changes while loads are constant."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from controller.bridge.bridge import Bridge
from controller.load.filling import FULL_RATIO
from controller.load.loads import UPLINK_LAG_S, Loads
from controller.load.polling import BUCKETS_INTERVAL_S, ON_TIME_S, ROUNDING_S, UNITS_INTERVAL_S
from controller.load.rates import LATEST_S, LONGEST_BEAT_S, Rates
from controller.load.recent_loads import PEAK_S
from controller.load.team_view import TeamView
from controller.teaming import buckets
from policies import gain
from policies.model import IDLE, Load, Snapshot
from policies.outcome import with_loads
from policies.presets import PRESETS

# The tolerance of times, as a share of a poll interval: multiples of some are not exact in binary.
ON_TIME_RATIO = 1e-6
# A rate is computed from this many readings.
READINGS = 2
# How long loads affect a policy that acts immediately: while they count as peaks, and some polls.
REMEMBERED_S = PEAK_S + 5.0


@dataclass(slots=True)
class Readings:
    """The times of the last readings of counters, in seconds of engine time."""

    ports_s: deque[float] = field(default_factory=lambda: deque(maxlen=READINGS))
    buckets_s: deque[float] = field(default_factory=lambda: deque(maxlen=READINGS))
    # The result of `buckets_repeat` for the last reading of buckets; None: not computed yet.
    _buckets_repeat: bool | None = None

    def note(self, buckets: bool, now_s: float) -> None:
        """Record that port counters, and bucket counters if `buckets`, are read at `now_s`."""
        self.ports_s.append(now_s)
        if buckets:
            self.buckets_s.append(now_s)
            self._buckets_repeat = None

    def show_ports(self, steady_s: float) -> bool:
        """Whether measured port loads cover only the time since `steady_s`."""
        if len(self.ports_s) < READINGS or self.ports_s[0] < steady_s:
            return False
        return all(b - a >= LATEST_S for a, b in pairwise(self.ports_s))

    def show_buckets(self, steady_s: float) -> bool:
        """Whether measured bucket loads cover only the time since `steady_s`."""
        return len(self.buckets_s) == READINGS and self.buckets_s[0] >= steady_s

    def buckets_repeat(self, loads: Loads) -> bool:
        """Whether the next bucket rates will equal the latest ones if bucket loads stay the same."""
        if self._buckets_repeat is None:
            known = [rates for rates in loads.bucket_rates.values() if rates.total]
            last_s = max((rates.clock_s for rates in known), default=0.0)
            self._buckets_repeat = all(_repeats(of) for of in known if of.clock_s == last_s)
        return self._buckets_repeat


def _repeats(rates: Rates) -> bool:
    """Whether the same rate would be measured again if the load stays the same.

    This holds if the counter is known to be updated without delay, or if it has not grown for longer
    than the longest update interval.
    """
    if rates.late is not None:
        return is_live(rates)
    counted_s = rates.counted_s
    if rates.total is None or counted_s is None:
        return rates.total is None
    return rates.clock_s - counted_s > LONGEST_BEAT_S


def is_live(rates: Rates) -> bool:
    """Whether a counter is known to be updated without delay, and no late update was recorded."""
    return rates.late is False and not rates.updates


def hold(bridge: Bridge, until_s: float) -> None:
    """Treat the last measured loads as current until `until_s`: no decision differs before then."""
    scheduler = bridge.scheduler
    scheduler.last_s = scheduler.remembered_s = scheduler.filling.taken_s = until_s


def quiet_until_s(
    bridge: Bridge, at_once: bool, steady_s: float, readings: Readings, now_s: float
) -> float:
    """Return the time until which no decision differs from the last one, if loads do not change.

    `at_once`: all VM ports use a policy that acts immediately. `steady_s`: when the current loads
    began. Returns `now_s` if the next decision may differ, for example while a policy pauses or
    loads from before `steady_s` still count; infinity if no decision will differ.
    """
    scheduler = bridge.scheduler
    last_s = scheduler.last_s
    if not bridge.settled or last_s is None or scheduler.awaits_confirmation:
        return now_s
    team_view = bridge.placing.team_view()
    if at_once:
        polling = bridge.polling
        if polling.is_extra or polling.due_s < polling.poll_due_s:
            return now_s
        if not readings.show_ports(steady_s) or not all(
            _repeats(port.rates) for port in bridge.loads.ports.values()
        ):
            return now_s
        change_s = _changes_s(bridge, team_view, last_s)
        if bridge.placing.hashed and not (
            readings.show_buckets(steady_s) and readings.buckets_repeat(bridge.loads)
        ):
            # The next reading of buckets may show other loads; earlier polls cannot.
            change_s = min(change_s, bridge.polling.buckets_s)
        return max(now_s, change_s)
    for policy in team_view.config.rebalancing:
        if scheduler.pauses(policy, team_view, last_s):
            return now_s
        since_s = max(steady_s, scheduler.moved_s[policy])
        if last_s < since_s + _remembered_s(team_view, policy):
            return now_s
    return math.inf


def _changes_s(bridge: Bridge, team_view: TeamView, last_s: float) -> float:
    """Return when a decision may differ from the one at `last_s` if readings stay the same.

    Infinity: decisions do not change until readings do. `last_s`: even the next decision may
    differ, for example because a condition has then lasted long enough.
    """
    scheduler, policies = bridge.scheduler, team_view.config.rebalancing
    if any(scheduler.pauses(policy, team_view, last_s) for policy in policies):
        return last_s
    return min(
        scheduler.filling.next_change_s(last_s),
        scheduler.splits.next_split_s(last_s),
        scheduler.recent_loads.next_change_s,
        *(damping.next_change_s(last_s) for damping in scheduler.dampings),
    )


def at_rest(bridge: Bridge) -> Snapshot:
    """Return a bridge's team with all loads set to zero."""
    team_view = bridge.placing.team_view()
    uplinks = tuple(uplink.carrying(IDLE) for uplink in team_view.uplinks())
    units = tuple(unit.as_judged(IDLE, 0.0, unit.excluded) for unit in team_view.loaded())
    return Snapshot(uplinks, units)


def stays_calm(team: Snapshot, loads: Mapping[str, Load], before: Mapping[str, Load]) -> bool:
    """Whether a policy that acts immediately moves nothing when units begin to carry `loads`.

    `team`: the team without loads. `loads`: measured loads, by unit name. `before`: the previous
    loads, which lasted so long that earlier loads do not count.
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
    """Return `team` with `loads` (by unit name); uplinks carry only the loads of their units."""
    units = tuple(u.as_judged(loads.get(u.name, IDLE), 0.0, u.excluded) for u in team.units)
    return Snapshot(with_loads(team.uplinks, team.units, loads), units)


def polled_s(bridge: Bridge) -> float:
    """Return the time when the last poll was due. Readings between polls do not count."""
    return bridge.polling.poll_due_s - bridge.config.poll_interval_s


def reading_s(bridge: Bridge) -> float:
    """Return the time from which a poll reads counters of flows, not only those of ports."""
    buckets_too = bridge.placing.hashed or bool(bridge.address_units.by_name)
    return bridge.polling.reading_s(bridge.config.poll_interval_s, buckets_too)


def polls_before(at_s: float, polled_s: float, interval_s: float) -> int:
    """Return the number of polls due after the last poll at `polled_s` and before `at_s`."""
    return math.ceil((at_s - polled_s) / interval_s - ON_TIME_RATIO) - 1


def round_polls(interval_s: float, buckets: bool) -> int:
    """Return the number of polls in a round (see `round_s`). `buckets`: whether policies use buckets."""
    after_s = BUCKETS_INTERVAL_S - ON_TIME_S if buckets else UNITS_INTERVAL_S - interval_s / 2
    return max(1, math.ceil(after_s / interval_s - ROUNDING_S))


def round_s(team_view: TeamView) -> float:
    """Return the duration of a round of polls, which reads each flow's counters once."""
    poll_s = team_view.config.poll_interval_s
    hashed = buckets.are_judged(team_view.config, team_view.split)
    return poll_s * round_polls(poll_s, hashed)


def remembered_s(team_view: TeamView) -> float:
    """Return how long a load change can affect decisions, in seconds, plus one round of polls."""
    longest_s = max(
        (_remembered_s(team_view, p) for p in team_view.config.rebalancing), default=0.0
    )
    return longest_s + round_s(team_view)


def _remembered_s(team_view: TeamView, policy: str) -> float:
    """Return for how many seconds a load change affects a policy if polls are on time."""
    after_s = round_s(team_view)
    if PRESETS[policy].at_once:
        return 2 * after_s
    # The last reading of a flow counter may be one round old.
    rounds = math.ceil(team_view.window_s(policy) / after_s) + math.ceil(UPLINK_LAG_S / after_s) + 1
    return after_s * rounds
