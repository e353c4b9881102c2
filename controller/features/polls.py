"""Polls: reads the counters of the switch, converts them to loads, and lets policies decide."""

from __future__ import annotations

from collections.abc import Iterable

from controller.api.engine_commands import Command, Observe
from controller.api.events import UNSUPPORTED, PortStatsRead, UnitCountersRead
from controller.features.feature import Feature, Timer
from controller.load.filling import MOST_UNITS, READ_EVERY_S
from controller.load.headers import with_headers
from controller.load.polling import ADDRESSES_SOON_S
from controller.load.team_view import TeamView


class Polls(Feature[PortStatsRead | UnitCountersRead]):
    """The polls of one bridge."""

    hears = (PortStatsRead, UnitCountersRead)

    def forget_switch(self) -> None:
        self.bridge.loads.forget_rates()
        self.bridge.flooded.forget_rates()
        self.bridge.scheduler.forget_loads()
        self.bridge.polling.forget_poll()

    def timers(self) -> Iterable[Timer]:
        return ((self.bridge.polling.due_s, self._poll),) if self.bridge.phase.is_attached else ()

    def heard(self, event: PortStatsRead | UnitCountersRead, now_s: float) -> list[Command]:
        self.bridge.scheduler.begin(now_s)
        team_view = self.bridge.placing.team_view
        if isinstance(event, PortStatsRead):
            return self._take_ports(event, team_view, now_s)
        return self._take_units(event, team_view, now_s)

    def _poll(self, now_s: float) -> list[Command]:
        bridge, config = self.bridge, self.config
        behind = bool(bridge.address_units.by_name)
        poll = bridge.polling.poll(
            config.name, config.poll_interval_s, bridge.placing.hashed, behind, now_s
        )
        return [poll] if poll else []

    def count_anew(self, now_s: float) -> None:
        """Ignore the current counters of buckets, which may include traffic of other VM ports."""
        self.bridge.polling.read_buckets_at(self.bridge.scheduler.count_anew(now_s))

    def _take_ports(self, read: PortStatsRead, team_view: TeamView, now_s: float) -> list[Command]:
        """Store the counters of ports. If the poll does not read other counters, decide."""
        uplinks, keep_s = self.config.uplink_at, team_view.keep_s
        for port in read.ports:
            self.bridge.loads.take_port(port, port.ofport in uplinks, keep_s)
        self.bridge.flooded.take_counters(read.ports, self.config.vm_ports)
        self._note_received()
        if team_view.just_updated and not self.bridge.polling.with_behind:
            # The same update of counters includes the addresses behind VM ports.
            self.bridge.polling.read_all(now_s)
        return [] if self.bridge.polling.with_units else self._polled_all(team_view, now_s)

    def _note_received(self) -> None:
        """Note whether uplinks receive frames, except on a LAG, where the upstream switch may not use a member."""
        if self.config.on_a_lag:
            self.bridge.links.forget_received()
            return
        counters = ((u.name, self.bridge.loads.counters.get(u.ofport)) for u in self.config.uplinks)
        found = {name: port.rx_packets for name, port in counters if port is not None}
        received = {name: count for name, count in found.items() if count != UNSUPPORTED}
        self.bridge.links.receive(received, probed=self.bridge.checks_paths)

    def _take_units(
        self, read: UnitCountersRead, team_view: TeamView, now_s: float
    ) -> list[Command]:
        """Store the counters of units, which complete a poll, and decide."""
        self.bridge.installation.poll_counted(bool(read.units), now_s)
        if self.config.offload.by_tc:
            read = with_headers(read)
        behind = self.bridge.address_units.by_slot(self.config) if read.address_units else {}
        self.bridge.loads.take_units(read, behind, team_view.keep_s)
        if read.buckets:
            self.bridge.scheduler.read_buckets(now_s)
        if read.address_units:
            self.bridge.scheduler.filling.read_addresses(now_s)
        return self._polled_all(team_view, now_s)

    def _polled_all(self, team_view: TeamView, now_s: float) -> list[Command]:
        bridge = self.bridge
        bridge.polling.forget_poll()
        bridge.loads.steady_s = bridge.scheduler.filling.late_steady_s(now_s)
        bridge.loads.addresses_steady = bridge.scheduler.filling.addresses_steady
        commands = self._decide(team_view, now_s)
        if bridge.installation.settled and not bridge.scheduler.convergence.at_rest:
            took_s = bridge.scheduler.converged(bridge.placing.team_view, now_s)
            if took_s is not None:
                commands.append(Observe(bridge.config.name, "settling", took_s))
        if bridge.scheduler.filling.reads_fast(now_s):
            bridge.polling.hasten(now_s + READ_EVERY_S)
        else:
            unsure = bridge.loads.unsure(port.ofport for port in bridge.config.vm_ports)
            bridge.polling.read_often(unsure, bridge.config.poll_interval_s, now_s)
        if self._awaits_addresses:
            bridge.polling.hasten_flows(now_s + ADDRESSES_SOON_S)
        return commands

    def _decide(self, team_view: TeamView, now_s: float) -> list[Command]:
        """Let each policy decide, and carry out its moves."""
        bridge, relieved = self.bridge, set[str]()
        decision = bridge.scheduler.decide(team_view, now_s, bridge.polling.is_extra)
        for policy in decision.policies:
            if (wanted := bridge.scheduler.wanted(policy, decision, now_s)) is None:
                continue
            bridge.scheduler.convergence.start(now_s)
            bridge.decision_log.evidence = wanted.evidence
            bridge.placing.carry_out(wanted.moves, now_s)
            relieved |= {move.source for move in wanted.moves}
        bridge.scheduler.finish(decision, moved=bool(relieved))
        commands: list[Command] = []
        if relieved:
            team_view = bridge.placing.team_view
        if bridge.scheduler.knows(team_view, now_s):
            commands += bridge.decision_log.saturation(
                team_view, team_view.longest_window_s, relieved, now_s
            )
        return [*commands, *bridge.reconcile(now_s)] if relieved else commands

    @property
    def _awaits_addresses(self) -> bool:
        """Whether a decision waits for loads of addresses behind a port whose counters are not delayed."""
        if self.bridge.scheduler.late_known or len(self.bridge.address_units.by_name) > MOST_UNITS:
            return False
        return any(not self.bridge.loads.is_late(port.ofport) for port in self.config.per_address)
