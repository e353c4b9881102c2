"""Makes plans (the moves that policies would make now), and detects when a plan is outdated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.history import Moved
from controller.bridge.bridge import Bridge
from controller.config.values import BridgeConfig
from controller.decisions.decision_log import Evidence, how, move_lines
from controller.load.team_view import TeamView
from policies import gain
from policies.model import Load, Move, Plan, Reason, Snapshot, Unit, Uplink
from policies.outcome import after, team_after
from policies.presets import PRESETS
from policies.verdicts import Rest, Verdict

# A mean must cover at least this time and this many polls: well over the counter lag of 0.5 s.
LEAST_S = 3.0
LEAST_POLLS = 3
# How long a plan can be applied. After that time, loads have probably changed too much.
KEPT_S = 300.0
# How much the means of two windows differ under a steady load, as a share of capacity.
NOISE_RATIO = 0.02


@dataclass(frozen=True, slots=True)
class Basis:
    """The time over which a policy averages loads for a decision: `covered_s` of its window.

    This is less than the window if less time has passed since the last move (`since_move`)
    or since loads became known. If `covered_s` is less than `needed_s`, the policy does not
    decide. `uncounted_s`: the time for which the switch has not counted the traffic of VM ports, if the policy
    does not decide. `absent`: the uplinks that the switch does not have.
    """

    window_s: float
    covered_s: float
    needed_s: float
    since_move: bool = False
    uncounted_s: float = 0.0
    absent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert 0.0 <= self.covered_s <= self.window_s, "loads cover at most the window"
        assert self.needed_s <= self.window_s, "a full window is enough"

    @property
    def known(self) -> bool:
        return self.covered_s >= self.needed_s

    @property
    def wait_s(self) -> float:
        """The time until the policy can decide, in seconds; zero if it can decide now."""
        return max(0.0, self.needed_s - self.covered_s)


@dataclass(frozen=True, slots=True)
class Opinion:
    """The planned moves of one policy, in order, and why it makes no other moves (`rest`).

    `rest` is None if the policy did not decide because loads are unknown. `verdicts`: by unit name, why
    the units on uplinks that the policy cannot relieve are not moved.
    """

    policy: str
    basis: Basis
    moves: tuple[Move, ...] = ()
    rest: Rest | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The plan for one bridge, with all the data that it is based on.

    `config`: the configuration when the plan was made, at `made_s` of engine time. `uplinks`:
    the uplinks with their loads over `basis_s` (None: the latest loads). `expected`: the uplinks after
    the moves. `units`: all units with their loads, by name. `lines`: the moves, for display.
    `waiting`: the moves back to home uplinks that have not been made yet, and why not.
    """

    config: BridgeConfig
    made_s: float
    connected: bool
    basis_s: float | None
    uplinks: tuple[Uplink, ...]
    expected: tuple[Uplink, ...]
    units: Mapping[str, Unit]
    opinions: tuple[Opinion, ...]
    lines: tuple[Moved, ...]
    waiting: tuple[tuple[Moved, str], ...]

    def __post_init__(self) -> None:
        assert len(self.uplinks) == len(self.expected), "the same uplinks before and after"
        assert all(move.unit in self.units for move in self.moves), "moved units have loads"

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(move for opinion in self.opinions for move in opinion.moves)

    @property
    def plan_id(self) -> str:
        """A short ID of the plan. Plans for one bridge with the same moves have the same ID."""
        moves = sorted((m.unit, m.source, m.target, m.reason, m.shares) for m in self.moves)
        return hashlib.sha256(json.dumps([self.config.name, moves]).encode()).hexdigest()[:8]

    @property
    def evidence(self) -> Evidence:
        """The loads on which the moves are based."""
        loads = {name: unit.load for name, unit in self.units.items()}
        return Evidence(self.uplinks, loads, how(round(self.basis_s, 1) if self.basis_s else None))

    @property
    def concerned(self) -> frozenset[str]:
        """The uplinks that are sources or targets of moves."""
        return frozenset(u for move in self.moves for u in (move.source, move.target))

    def load_of(self, moved: Moved) -> Load:
        """Return the total load of the units that `moved`, an item of `lines`, represents."""
        way = (moved.source, moved.target, moved.reason)
        units = [self.units[m.unit] for m in self.moves if (m.source, m.target, m.reason) == way]
        if moved.buckets:
            loads = [u.load for u in units if u.is_bucket and u.policy == moved.unit]
        else:
            loads = [u.load for u in units if u.name == moved.unit]
        return sum(loads, Load())


def basis(bridge: Bridge, policy: str, now_s: float) -> Basis:
    """Return the basis of a policy's next decision."""
    team_view, moved_s = bridge.placing.team_view(), bridge.scheduler.moved_s[policy]
    window_s = team_view.window_s(policy)
    since_s = now_s - moved_s - (team_view.pause_s(policy) - window_s)
    known_s = team_view.known_s(window_s)
    needed_s = min(window_s, max(LEAST_S, LEAST_POLLS * team_view.config.poll_interval_s))
    is_late = known_s < needed_s and not team_view.on_normal
    return Basis(
        window_s,
        covered_s=max(0.0, min(window_s, known_s, since_s)),
        needed_s=needed_s,
        since_move=since_s < known_s,
        uncounted_s=team_view.loads.lateness.uncounted_s if is_late else 0.0,
        absent=tuple(
            u.name for u in team_view.config.uplinks if u.ofport not in team_view.links.ports
        ),
    )


def bases(bridge: Bridge, now_s: float) -> dict[str, Basis]:
    """Return, by policy, the basis of its next decision."""
    return {policy: basis(bridge, policy, now_s) for policy in bridge.config.policies}


def propose(bridge: Bridge, now_s: float) -> Proposal:
    """Return a plan, made by running all policies in turn until none of them makes a move.

    Each run uses the team after earlier moves. No unit moves twice.
    """
    team_view, by_policy = bridge.placing.team_view(), bases(bridge, now_s)
    promised = {unit.name: unit.rules.reserve_bps for unit in team_view.units()}
    views = {
        policy: _View(snapshot, _loads_in(snapshot, team_view, of.covered_s), promised)
        for policy, of in by_policy.items()
        if of.known and (snapshot := _seen(bridge, team_view, policy, of.covered_s)) is not None
    }
    moves: dict[str, list[Move]] = {policy: [] for policy in views}
    while round_ := _ask(views):
        for policy, move in round_:
            moves[policy].append(move)
    opinions = tuple(_opinion(policy, of, views, moves) for policy, of in sorted(by_policy.items()))
    basis_s = _leading_s(opinions)
    made = [move for opinion in opinions for move in opinion.moves]
    before = team_view.carrying(basis_s)
    units = {u.name: replace(u, load=u.own_load) for u in team_view.loaded(basis_s)}
    return Proposal(
        config=team_view.config,
        made_s=now_s,
        connected=team_view.links.connected,
        basis_s=basis_s,
        uplinks=before,
        expected=after(before, made, {name: unit.load for name, unit in units.items()}),
        units=units,
        opinions=opinions,
        lines=move_lines(team_view, made),
        waiting=_waiting(team_view, bridge.placing.planned.homes, now_s),
    )


def changed(proposal: Proposal, bridge: Bridge, now_s: float) -> str | None:
    """Return why a proposal is outdated; None if its moves still have the expected effect."""
    team_view = bridge.placing.team_view()
    age_s = now_s - proposal.made_s
    if age_s > KEPT_S:
        return f"plan: {age_s:.0f} s old, but plans expire after {KEPT_S:.0f} s"
    return (
        _settings_changed(proposal.config, team_view.config)
        or _team_changed(proposal, team_view, now_s)
        or _units_changed(proposal, team_view)
        or _loads_changed(proposal, team_view, bases(bridge, now_s))
    )


# ---- planning --------------------------------------------------------------------------


@dataclass(slots=True)
class _View:
    """The team as one policy sees it, after the moves planned so far."""

    snapshot: Snapshot
    loads: Mapping[str, Load]
    # The reservation of each unit, in bits per second, by name.
    promised: Mapping[str, float]

    def follow(self, moves: Sequence[Move]) -> None:
        moved = {move.unit for move in moves}
        split = {move.unit for move in moves if move.reason is Reason.SPLIT}

        def done(unit: Unit) -> Unit:
            made = replace(unit, excluded=True, divisible=False, merge_due=False)
            return replace(made, load=Load(rx_bps=unit.load.rx_bps)) if unit.name in split else made

        team = team_after(self.snapshot, moves, self.loads, self.promised)
        units = (done(unit) if unit.name in moved else unit for unit in team.units)
        self.snapshot = replace(team, units=tuple(units))


def _seen(bridge: Bridge, team_view: TeamView, policy: str, window_s: float) -> Snapshot | None:
    """Return the team with mean loads, or peaks if `policy` acts immediately; None if unknown."""
    if not PRESETS[policy].at_once:
        return team_view.snapshot(policy, window_s)
    return team_view.offered(policy, bridge.scheduler.recent_loads)


def _ask(views: Mapping[str, _View]) -> list[tuple[str, Move]]:
    """Return the next moves of each policy, and apply them to all views."""
    found = []
    for policy, view in sorted(views.items()):
        plan: Plan = PRESETS[policy].rebalance(view.snapshot)
        if PRESETS[policy].at_once:
            plan = gain.worthwhile(plan, view.snapshot)
        for other in views.values():
            other.follow(plan.moves)
        found += [(policy, move) for move in plan.moves]
    return found


def _opinion(
    policy: str, of: Basis, views: Mapping[str, _View], moves: Mapping[str, list[Move]]
) -> Opinion:
    preset = PRESETS[policy]
    if policy not in views:
        never = None if preset.rebalances else preset.rest(Snapshot((), ()))
        return Opinion(policy, of, rest=never)
    snapshot = views[policy].snapshot
    rest = preset.rest(snapshot)
    stuck = [unit.name for unit in snapshot.units if unit.uplink in rest.unrelieved]
    verdicts = {name: preset.verdict(snapshot, name) for name in stuck}
    return Opinion(policy, of, tuple(moves[policy]), rest, verdicts)


def _leading_s(opinions: Iterable[Opinion]) -> float | None:
    """Return the time that displayed loads cover: a policy's with moves, if there is one."""
    known = [o for o in opinions if o.basis.known]
    moving = [o for o in known if o.moves] or [o for o in known if PRESETS[o.policy].rebalances]
    return max((o.basis.covered_s for o in moving or known), default=None)


def _loads_in(snapshot: Snapshot, team_view: TeamView, window_s: float) -> Mapping[str, Load]:
    """Return the load of each unit; for units that the policy can move, the load in `snapshot`."""
    carried = {unit.name: unit.own_load for unit in team_view.loaded(window_s)}
    return carried | {unit.name: unit.load for unit in snapshot.units}


def _waiting(
    team_view: TeamView, homes: Mapping[str, str], now_s: float
) -> tuple[tuple[Moved, str], ...]:
    """Return the moves of units that will return to their home uplinks, and why they wait."""
    away = [
        Move(name, bound.uplink, homes[name], Reason.FAILBACK)
        for name, bound in team_view.bound.items()
        if homes.get(name, bound.uplink) != bound.uplink
    ]
    moves = move_lines(team_view, away)
    return tuple((moved, why_away(team_view, moved.target, now_s)) for moved in moves)


def why_away(team_view: TeamView, home: str | None, now_s: float) -> str:
    """Return why a unit has not returned to its home uplink yet."""
    by_name = {uplink.name: uplink for uplink in team_view.config.uplinks}
    if home not in by_name or home in team_view.links.usable():
        return "only a few VM ports return each second"
    return team_view.links.why_unused(by_name[str(home)], now_s)


# ---- what has changed ------------------------------------------------------------------


def _settings_changed(was: BridgeConfig, now: BridgeConfig) -> str | None:
    for name in ("mode", "teaming"):
        if getattr(was, name) != getattr(now, name):
            return _differs(name, getattr(was, name), getattr(now, name))
    thresholds = [f"{100 * config.threshold_ratio:g}%" for config in (was, now)]
    return _differs("threshold", *thresholds) if thresholds[0] != thresholds[1] else None


def _team_changed(proposal: Proposal, team_view: TeamView, now_s: float) -> str | None:
    """Return how uplinks, apart from their loads, have changed since the plan; None: no change."""
    was, now = {u.name: u for u in proposal.uplinks}, {u.name: u for u in team_view.uplinks()}
    if was.keys() != now.keys():
        return _differs("uplinks", ", ".join(was), ", ".join(now))
    configs = {uplink.name: uplink for uplink in team_view.config.uplinks}
    for name, before in was.items():
        uplink = now[name]
        if before.role is not uplink.role:
            return _differs(f"role of {name}", before.role.value, uplink.role.value)
        if before.usable and not uplink.usable:
            return (
                f"uplink {name}: became unusable after the plan was made:"
                f" {team_view.links.why_unused(configs[name], now_s)}"
            )
        if uplink.usable and not before.usable:
            return f"uplink {name}: became usable after the plan was made"
        if before.capacity_bps != uplink.capacity_bps:
            speeds = (f"{u.capacity_bps / 1e6:g} Mbit/s" for u in (before, uplink))
            return _differs(f"capacity of {name}", *speeds)
    return None


def _units_changed(proposal: Proposal, team_view: TeamView) -> str | None:
    """Return how the units to be moved changed, or which other unit moved; None: no change.

    Moves of buckets whose policy has no planned moves are ignored, because such buckets move often.
    """
    now = {unit.name: unit for unit in team_view.loaded()}
    for move in proposal.moves:
        name, was = move.unit, proposal.units[move.unit]
        if name not in now or now[name].uplink is None:
            return f"{name}: was removed, or has no uplink now"
        unit = now[name]
        if unit.policy != was.policy:
            return _differs(f"policy of {name}", was.policy, unit.policy)
        if unit.rules.pin != was.rules.pin:
            return _differs(f"pin of {name}", was.rules.pin or "none", unit.rules.pin or "none")
        if unit.excluded and not was.excluded:
            return f"{name}: excluded from load balancing after the plan was made"
        if unit.allowed is not None and move.target not in unit.allowed:
            return f"{name}: no longer allowed to use {move.target}"
        if _rules_of(unit) != _rules_of(was):
            return f"{name}: rules changed after the plan was made"
    planned = {proposal.units[move.unit].policy for move in proposal.moves}
    moved = [
        name
        for name, was in proposal.units.items()
        if name in now
        and (not was.is_bucket or was.policy in planned)
        and now[name].uplink != was.uplink
        and not {now[name].uplink, was.uplink}.isdisjoint(proposal.concerned)
    ]
    if not moved:
        return None
    first, others = sorted(moved)[0], len(moved) - 1
    way = f"{proposal.units[first].uplink or 'no uplink'} to {now[first].uplink or 'no uplink'}"
    more = f", as did {others} more" if others else ""
    return f"{first}: moved from {way} after the plan was made{more}"


def _rules_of(unit: Unit) -> tuple[object, ...]:
    return unit.rules.prefer, unit.rules.avoid, unit.rules.affinity, unit.rules.anti_affinity


def _loads_changed(
    proposal: Proposal, team_view: TeamView, by_policy: Mapping[str, Basis]
) -> str | None:
    """Return why the moves would have another effect now, beyond noise; None: they would not."""
    if not proposal.moves:
        return None
    moving = [by_policy[o.policy] for o in proposal.opinions if o.moves]
    if not all(of.known for of in moving):
        return "loads: no longer known"
    basis_s = max(of.covered_s for of in moving)
    before = team_view.carrying(basis_s)
    loads = {unit.name: unit.own_load for unit in team_view.loaded(basis_s)}
    carrying = after(before, proposal.moves, loads)
    expected = {uplink.name: uplink.utilization_ratio for uplink in proposal.expected}
    limit_ratio = proposal.config.threshold_ratio
    targets = {m.target for m in proposal.moves if m.reason is Reason.THRESHOLD}
    for uplink in carrying:
        kept = uplink.name in targets and expected[uplink.name] <= limit_ratio
        if kept and uplink.utilization_ratio > limit_ratio + NOISE_RATIO:
            was, now = expected[uplink.name], uplink.utilization_ratio
            return f"loads: {uplink.name} would be at {now:.0%} after the moves, not at {was:.0%}"
    fell = _worst(proposal.uplinks, proposal) - _worst(proposal.expected, proposal)
    falls = _worst(before, proposal) - _worst(carrying, proposal)
    if falls <= 0.0 and fell - falls > NOISE_RATIO:
        was, now = _worst(before, proposal), _worst(carrying, proposal)
        would = f"and would be {now:.0%} after the moves"
        return f"loads: the highest utilization is {was:.0%} now, {would}"
    return None


def _worst(uplinks: Iterable[Uplink], proposal: Proposal) -> float:
    """Return the highest utilization of the uplinks that the moves of `proposal` concern."""
    return max(u.utilization_ratio for u in uplinks if u.name in proposal.concerned)


def _differs(what: str, was: object, now: object) -> str:
    return f"{what}: {was} when the plan was made, {now} now"
