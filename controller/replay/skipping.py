"""Which polls a replay may skip: until when a bridge decides nothing, if loads stay as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from controller.bridge.bridge import Bridge
from controller.load.filling import BESIDE_S
from controller.load.peaks import PEAK_S
from controller.load.polling import round_polls
from controller.load.team_view import UPLINK_LAG_S, TeamView
from policies.model import Load
from policies.presets import PRESETS


def quiet_until_s(bridge: Bridge, steady_s: float, now_s: float) -> float:
    """Until when no decision will differ from the last one, if loads do not change.

    Loads have been the same since `steady_s`. `now_s`: the next decision may differ; infinity: none
    will. Until a decision has seen only loads since then, and no policy pauses, the answer is
    `now_s`.
    """
    scheduler, team_view = bridge.scheduler, bridge.team_view
    last_s = scheduler.last_s
    if not bridge.settled or last_s is None or scheduler.awaits_confirmation:
        return now_s
    filling = scheduler.filling
    if filling.reads_fast(last_s) or (filling.full_s is not None and not filling.lasts(last_s)):
        return now_s
    for policy in team_view.rebalancing:
        if scheduler.pauses(policy, team_view, last_s):
            return now_s
        since_s = max(steady_s, scheduler.last_moved_s(policy))
        seen_s = _remembered_s(team_view, policy)
        if PRESETS[policy].at_once:
            seen_s += team_view.ports_follow_s + BESIDE_S
        if last_s < since_s + seen_s:
            return now_s
    free_s = (d.until_s(unit, now_s) for unit in scheduler.in_cooldown for d in scheduler.dampings)
    later_s = [at_s for at_s in free_s if at_s > now_s]
    merge_s, phase_s = scheduler.splits.deadline_s(now_s), _phase_ends_s(bridge)
    return max(now_s, min(_peaks_fall_s(bridge), merge_s, phase_s, *later_s))


def _peaks_fall_s(bridge: Bridge) -> float:
    """When the peak of a unit may fall next, if loads do not change; infinity: none will."""
    windows = bridge.scheduler.peaks.windows()
    return min((rates[0][0] + PEAK_S for rates in windows if len(rates) > 1), default=math.inf)


def _phase_ends_s(bridge: Bridge) -> float:
    """When the phase that keeps units from being moved is forgotten; infinity if there is none."""
    past = bridge.scheduler.load_phases.past
    return past[0].last_s + PEAK_S if bridge.scheduler.is_torn and past else math.inf


def is_calm(bridge: Bridge, loads: Mapping[str, Load]) -> bool:
    """Whether nothing is moved while uplinks carry these loads, or a mean of several such loads.

    That holds for every division of the loads among the units.
    """
    team_view = bridge.team_view
    uplinks = tuple(replace(uplink, load=loads[uplink.name]) for uplink in team_view.uplinks())
    return all(team_view.is_calm(policy, uplinks) for policy in team_view.rebalancing)


def polled_s(bridge: Bridge) -> float:
    """When the last poll was due, whatever was read between polls."""
    return bridge.polling.poll_due_s - bridge.config.poll_interval_s


def reading_s(bridge: Bridge) -> float:
    """From when on a poll reads more than the counters of ports."""
    buckets_too = bridge.hashed or bool(bridge.address_units.by_name)
    return bridge.polling.reading_s(bridge.config.poll_interval_s, buckets_too)


def round_s(team_view: TeamView) -> float:
    """How long it takes to read all counters: not every poll reads those of flows."""
    poll_s = team_view.config.poll_interval_s
    return poll_s * round_polls(poll_s, team_view.hashed)


def remembered_s(team_view: TeamView) -> float:
    """For how long a change of loads affects decisions, up to the poll after that."""
    longest_s = max((_remembered_s(team_view, p) for p in team_view.rebalancing), default=0.0)
    return longest_s + round_s(team_view)


def _remembered_s(team_view: TeamView, policy: str) -> float:
    """For how long a change of loads affects what a policy judges, if polls are on time."""
    after_s = round_s(team_view)
    if PRESETS[policy].at_once:
        return 2 * after_s
    # Counters that not every poll reads were read up to a round ago.
    rounds = math.ceil(team_view.window_s(policy) / after_s) + math.ceil(UPLINK_LAG_S / after_s) + 1
    return after_s * rounds
