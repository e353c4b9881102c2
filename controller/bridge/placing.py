"""Binds the units of a bridge to uplinks: the bindings that policies plan, and those on the switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Never

from controller.api.engine_commands import Command, Report, Setting, Write
from controller.api.history import Happened, Moved
from controller.bridge.phase import Phase
from controller.config.rows import PREFIX
from controller.config.values import BridgeConfig, VmPortConfig
from controller.decisions.decision_log import move_lines
from controller.features.feature import Feature
from controller.load.reused import Reused
from controller.load.team_view import TeamView
from controller.teaming import bindings, buckets, path_plan, splits
from controller.teaming.bindings import Bindings, Bound
from controller.teaming.path_plan import NOTHING, KeptOff
from policies import rules
from policies.model import Move, Reason, Unit, Uplink
from policies.presets import PRESETS
from policies.rules import Rule

# By name of a VM port, or of an address behind a VM port: for each rule, a description of the violation;
# empty if the rule is met.
RuleStates = Mapping[str, Mapping[Rule, str]]


@dataclass(slots=True)
class Counts:
    """The numbers of one bridge's moves planned, applied and refused so far, each by reason."""

    planned: Counter[Reason] = field(default_factory=Counter)
    # Confirmed by the switch.
    applied: Counter[Reason] = field(default_factory=Counter)
    # Refused by the switch, or, for an operator's move, by the service.
    refused: Counter[Reason] = field(default_factory=Counter)


@dataclass(eq=False)
class Placing(Feature[Never]):
    """The bindings of one bridge, which depend on its configuration, its links and its policies."""

    # The bindings that policies see.
    planned: Bindings = field(default_factory=Bindings)
    # The bindings on the switch, if they differ from the planned ones; else None.
    _apart: Bindings | None = None
    # The VM ports that are split on the switch.
    _split_on_switch: frozenset[str] = frozenset()
    # A cache of units that were built before.
    reused: Reused = field(default_factory=Reused)
    # Moves by reason, for metrics.
    counts: Counts = field(default_factory=Counts)

    @property
    def on_switch(self) -> Bindings:
        """The bindings on the switch; while NORMAL forwards, the planned bindings.

        In observe mode on plain uplinks, policies only plan, and the bindings in use are kept. While units
        gather on one member of a bond before NORMAL takes over, all units are bound to that member.
        """
        return self._apart or self.planned

    @property
    def bound(self) -> Mapping[str, Bound]:
        """The binding of each VM port on the switch, by name."""
        bound = self.on_switch.bound
        return {p.name: bound[p.name] for p in self.config.vm_ports if p.name in bound}

    def team_view(self) -> TeamView:
        """Return the team with the bindings that policies see.

        Each call makes a new object, because the object caches loads, and every event changes the data
        from which loads are computed. A caller that needs the view more than once should keep it.
        """
        bridge, scheduler = self.bridge, self.bridge.scheduler
        return TeamView(
            config=self.config,
            links=bridge.links,
            loads=bridge.loads,
            bound=self.planned.bound,
            found=bridge.installation.found_homes,
            on_normal=bridge.on_normal,
            address_units=bridge.address_units,
            in_cooldown=scheduler.in_cooldown,
            merge_due=scheduler.merge_due,
            late_known=scheduler.late_known,
            split=self.split,
            reused=self.reused,
            kept_off=self.kept_off,
        )

    def uplinks(self) -> tuple[Uplink, ...]:
        """Return the uplinks of the team with their latest loads."""
        return self.team_view().uplinks()

    def units(self) -> tuple[Unit, ...]:
        """Return the units: VM ports, the known addresses behind them, and buckets."""
        return self.team_view().units()

    @property
    def split(self) -> frozenset[str]:
        """The VM ports that policies have split."""
        return self._spread(self.bridge.scheduler.splits.names)

    @property
    def split_on_switch(self) -> frozenset[str]:
        """The VM ports that are split on the switch."""
        return self._spread(self._split_on_switch)

    def _spread(self, names: Collection[str]) -> frozenset[str]:
        """Return the VM ports in `names` that can be split, and whose frames no uplink loses."""
        return splits.allowed(self.config, names) - self.kept_off.by_unit.keys()

    @property
    def kept_off(self) -> KeptOff:
        """For each unit, the uplinks that, by path checks, lose long frames or frames in the unit's VLANs."""
        if not self.bridge.paths.since_s:
            return NOTHING
        learned, units = self.bridge.addresses.by_port, self.bridge.address_units.by_name.values()
        return path_plan.kept_off(self.config, self.bridge.paths.since_s, learned, units)

    @property
    def units_on_switch(self) -> tuple[Unit, ...]:
        return replace(self.team_view(), split=self.split_on_switch).units()

    @property
    def hashed(self) -> bool:
        """Whether a policy in use assigns frames to buckets, and moves buckets to balance load."""
        return buckets.are_judged(self.config, self.split)

    def rules(self, bound: Mapping[str, Bound] | None = None) -> RuleStates:
        """Return, by unit and rule, how the rule is violated, in words; empty if the rule is met.

        `bound`: bindings of VM ports and addresses; None: those on the switch.
        """
        team_view, bound = self.team_view(), self.on_switch.bound if bound is None else bound
        ruled = [u for u in team_view.units() if u.rules.unsplittable or u.rules.reserve_bps]
        at = {unit.name: bound[unit.name].uplink for unit in ruled if unit.name in bound}
        there = (replace(unit, uplink=at.get(unit.name)) for unit in ruled)
        return rules.found(there, team_view.uplinks() if ruled else ())

    # ---- another configuration ---------------------------------------------------------

    def place_anew(self, old: BridgeConfig) -> None:
        """Forget units that no longer exist, and home uplinks to be chosen again for a new policy or team.

        If the new policy keeps bindings, VM ports stay on their uplinks. `old`: the old configuration.
        """
        self.keep_units()
        if bindings.places_anew(old.asked, self.config.asked):
            self.bridge.installation.found_homes.clear()
        anew = bindings.ports_placed_anew(old.asked, self.config.asked)
        for name in anew:
            self.planned.place_anew(name)
        for unit in self.bridge.address_units.by_name.values():
            if unit.port in anew:
                self.planned.place_anew(unit.name)
                unit.found = None

    def keep_units(self) -> None:
        """Forget units that no longer exist."""
        names = {unit.name for unit in self.units()}
        for damping in self.bridge.scheduler.dampings:
            damping.keep(names)
        self.reused.keep_units(names)
        if not self.hashed:
            self.bridge.loads.bucket_rates.clear()
        self.bridge.inbound_check.keep_watching(self.config.port_at)
        self.planned.keep_bound(names)
        if self._apart is not None:
            self._apart.keep_bound(unit.name for unit in self.units_on_switch)

    def end_splits(self, config: BridgeConfig) -> None:
        """End the splits that `config` does not allow, unless the bridge has fallen back to one uplink."""
        if config.fallen_back or not self.bridge.scheduler.splits.since_s:
            return
        self.bridge.scheduler.splits.end_disallowed(config, self.planned.bound)
        if self._apart is not None:
            self._split_on_switch = splits.allowed(config, self._split_on_switch)

    # ---- moves -------------------------------------------------------------------------

    def choose_on_switch(self, now_s: float) -> None:
        """Choose the bindings for the switch: the planned bindings, or separate bindings.

        Separate bindings are kept while plain uplinks are observed, and during a handover to NORMAL.
        """
        bridge = self.bridge
        observed = bridge.observing and not self.config.on_bond
        leaving = bridge.on_normal and bridge.installed_anything and self._apart is not None
        if observed or bridge.handover.is_gathering or leaving:
            self._apart = self._apart or self.planned.frozen()
            return
        assert self._apart is None or self._apart.held, "bindings kept apart follow links only"
        if self._apart is not None and not bridge.on_normal:
            self._go_on_from(self._apart, now_s)
        self._apart = None
        self.follow_splits()

    def follow_splits(self) -> None:
        """Apply the splits of policies to the switch, so that the same VM ports are split there."""
        self._split_on_switch = self.bridge.scheduler.splits.names

    def gather_on(self, member: str) -> None:
        """Bind every unit to uplink `member` on the switch, regardless of the planned bindings."""
        self._apart = self.on_switch.frozen()
        for name in self._apart.bound:
            self._apart.place(name, member, Reason.MANUAL)

    def _go_on_from(self, held: Bindings, now_s: float) -> None:
        """Replace the planned bindings with `held`, the bindings on the switch.

        On plain uplinks, homes that policies have planned in observe mode are dropped.
        """
        virtual = not self.config.on_bond
        homes = held.homes if virtual else self.planned.homes
        keeps = {u.name for u in self.units() if PRESETS[u.policy].keeps_bindings}
        homes = {name: home for name, home in homes.items() if name in keeps}
        self.planned = Bindings(homes, dict(held.bound))
        if virtual:
            self.bridge.scheduler.splits.hold_splits(self._split_on_switch, now_s)

    def bind(self, now_s: float) -> list[Command]:
        """Bind units to the best uplinks that they can use. The next bundle makes the resulting moves."""
        bridge, units, uplinks = self.bridge, self.units(), self.uplinks()
        moves = bridge.scheduler.splits.take_unsent()
        moves += self.planned.rebind(units, uplinks, now_s)
        self.counts.planned.update(move.reason for move in moves)
        if moves:
            policies = {unit.name: unit.policy for unit in units}
            bridge.scheduler.note(moves, policies, now_s)
        commands: list[Command] = []
        if bridge.observing:
            commands += bridge.installation.logged(moves, ", not made")
            commands += bridge.decision_log.planned(self.team_view(), moves, now_s)
        else:
            bridge.installation.expect(moves)
        if self._apart is not None:
            bridge.installation.expect(self._apart.rebind(self.units_on_switch, uplinks, now_s))
        return commands

    def carry_out(self, moves: Iterable[Move], now_s: float) -> None:
        """Set home uplinks to the targets of moves; split and merge VM ports. Call `reconcile` afterwards."""
        moves = list(moves)
        for move in moves:
            if not move.is_resplit:
                self.planned.place(move.unit, move.target, move.reason)
        resplit = [move for move in moves if move.is_resplit]
        if not resplit:
            return
        ports = self.config.port_named
        before, in_use = self.units(), self.team_view().in_use
        assert ports.keys() >= {move.unit for move in resplit}, "only VM ports are split"
        for move in resplit:
            policy = ports[move.unit].policy
            if move.reason is Reason.SPLIT and policy not in in_use:
                self.planned.homes |= buckets.by_shares(policy, move.shares)
        self.bridge.scheduler.splits.make(resplit, now_s)
        self.bridge.polls.count_anew(now_s)
        named = {move.unit for move in resplit}
        changed = (unit.name for unit in before if unit.is_bucket or unit.name in named)
        self.bridge.scheduler.recent_loads.drop_peaks(changed)
        self.keep_units()

    def judge_rules(self, now_s: float) -> list[Command]:
        """Record and report rules that are newly broken, or no longer broken."""
        log, name = self.bridge.decision_log, self.config.name
        has_rules = log.broken or any(
            port.rules.unsplittable or port.rules.reserve_bps or any(g.pin for g in port.guests)
            for port in self.config.vm_ports
        )
        if self.bridge.phase is Phase.GATHERING or not has_rules:
            return []
        records = [*log.rules(self.team_view(), rules.broken(self.rules()), now_s)]
        reports = [
            Report("warning", f"{name}: rule broken: {record.entry.why}")
            if record.entry.happened is Happened.RULE_BROKEN
            else Report("info", f"{name}: rule {record.entry.why}")
            for record in records
        ]
        return [*records, *reports]

    @property
    def returns_s(self) -> float:
        """When VM ports next return to a better uplink; infinity if no VM port waits to do so."""
        return min(self.planned.returns_s(), self.on_switch.returns_s())

    def remembered(self, moved: Collection[str] = ()) -> list[Command]:
        """Write bindings and the team to the database, so that they survive a restart of the service.

        For policies with a move budget, also write the times of moves. `moved`: units that have moved.
        """
        if not self.bridge.phase.is_attached or self.config.fallen_back:
            return []
        known = {
            port.name: self.bridge.scheduler.damping.remembered(port.name)
            for port in self.config.vm_ports
            if port.name in moved and PRESETS[port.policy].at_once
        }
        settings = bindings.remembered(self.config, self.bound, known, self.bridge.epoch_s)
        team, name = self.config.team.text, self.config.name
        if self.config.uplinks and team != self.config.team_in_database:
            settings += (Setting("Bridge", name, PREFIX + "team", team),)
        return [Write(settings)] if settings else []

    # ---- for operators' requests -----------------------------------------------------------

    def load_known_s(self, port: VmPortConfig) -> float:
        """Return for how many seconds the load of a VM port on uplinks has been known."""
        counted = self.bridge.loads.at(port.ofport)
        return (counted.rates if self.bridge.on_normal else counted.flows).known_s()

    def following(self, config: BridgeConfig, now_s: float) -> tuple[Moved, ...]:
        """Return the moves that `config` would cause immediately; in observe mode, none."""
        if self.config.observes or config.observes:
            return ()
        config = config.in_force(self.bridge.links.lacp_known(config.uplinks))
        team_view = replace(self.team_view(), config=config, reused=Reused())
        anew, units = bindings.ports_placed_anew(self.config.asked, config.asked), team_view.units()
        gone = {unit.name for unit in units if not anew.isdisjoint((unit.name, unit.behind))}
        homes = {name: home for name, home in self.planned.homes.items() if name not in gone}
        planned = replace(self.planned, homes=homes)
        _, moves = planned.foreseen(units, team_view.uplinks(), now_s)
        return move_lines(team_view, moves)
