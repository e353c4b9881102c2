"""Polls: reads the counters of the switch, converts them to loads, and lets policies decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import Command, Observe
from controller.api.events import UNSUPPORTED, PortStatsRead, Sample, UnitCountersRead
from controller.features.feature import Feature, Timer
from controller.features.flooded import Flooded
from controller.load.filling import MOST_UNITS, READ_EVERY_S
from controller.load.polling import ADDRESSES_SOON_S
from controller.load.team_view import TeamView
from policies.presets import PRESETS

# Two addresses and the type. tc may also leave out a frame's VLAN tag, which is not documented.
HEADER_BYTES = 14


@dataclass(slots=True)
class ConvergenceTimer:
    """Measures the time until policies have nothing more to move on one bridge.

    The time begins with the first move that a policy makes to balance load. It ends when the switch
    confirms the last move, if all policies then evaluate the resulting loads and move nothing.
    """

    # When the first move was decided, in seconds of engine time; None: the timer does not run.
    _since_s: float | None = None
    # When the switch last confirmed moves.
    _made_s: float | None = None

    @property
    def at_rest(self) -> bool:
        return self._since_s is None

    def start(self, now_s: float) -> None:
        """Start the timer unless it is running. Call this when a policy moves a unit to balance load."""
        if self._since_s is None:
            self._since_s = now_s

    def confirm_moves(self, now_s: float) -> None:
        """Record that the switch has confirmed moves. Do nothing if the timer is not running."""
        if not self.at_rest:
            self._made_s = now_s

    def stop(self) -> float | None:
        """Stop the timer, because no policy moves units. Return the measured time in seconds.

        Return None if the timer did not run, or the switch refused all moves.
        """
        since_s, made_s = self._since_s, self._made_s
        self._since_s = self._made_s = None
        return made_s - since_s if since_s is not None and made_s is not None else None


@dataclass(eq=False)
class Polls(Feature[PortStatsRead | UnitCountersRead]):
    """Reads the counters of one bridge at intervals, and then lets policies decide."""

    # Measures how long the bridge takes to converge.
    convergence: ConvergenceTimer = field(default_factory=ConvergenceTimer)

    def forget_switch(self) -> None:
        self.bridge.loads = self.bridge.loads.without_rates()
        self.bridge.flooded = Flooded()
        self.bridge.scheduler.forget_loads()
        self.bridge.polling.forget_poll()

    def timers(self) -> Iterable[Timer]:
        return ((self.bridge.polling.due_s, self._poll),) if self.bridge.phase.is_attached else ()

    def heard(self, event: PortStatsRead | UnitCountersRead, now_s: float) -> list[Command]:
        self.bridge.scheduler.begin(now_s)
        team_view = self.bridge.placing.team_view()
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
        self.bridge.polling.buckets_due_s = self.bridge.scheduler.count_anew(now_s)

    def _take_ports(self, read: PortStatsRead, team_view: TeamView, now_s: float) -> list[Command]:
        """Store the counters of ports. If the poll reads no other counters, let policies decide."""
        uplinks, keep_s = self.config.uplink_at, team_view.keep_s
        for port in read.ports:
            self.bridge.loads.take_port(port, port.ofport in uplinks, keep_s)
        self.bridge.flooded.take_counters(read.ports, self.config.vm_ports)
        self._note_received()
        if self._just_updated and not self.bridge.polling.with_behind:
            # The switch has just updated its counters, including those of addresses behind VM ports.
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
        """Store the counters of units, which complete a poll, and let policies decide."""
        self.bridge.installation.poll_counted(bool(read.units), now_s)
        if self.config.offload.by_tc:
            read = with_headers(read)
        behind = self.bridge.address_units.by_slot(self.config) if read.address_units else {}
        self.bridge.loads.take_units(read, behind, self.config.uplink_at, team_view.keep_s)
        if read.buckets:
            self.bridge.scheduler.read_buckets(now_s)
        if read.address_units:
            self.bridge.scheduler.filling.read_addresses(now_s)
        return self._polled_all(team_view, now_s)

    def _polled_all(self, team_view: TeamView, now_s: float) -> list[Command]:
        bridge = self.bridge
        bridge.polling.forget_poll()
        bridge.loads.steady_s = now_s - bridge.scheduler.filling.late_changed_s
        commands = self._decide(team_view, now_s)
        if bridge.installation.settled and self._has_converged(now_s):
            took_s = self.convergence.stop()
            if took_s is not None:
                commands.append(Observe(bridge.config.name, "settling", took_s))
        if bridge.scheduler.filling.reads_fast(now_s):
            bridge.polling.hasten(now_s + READ_EVERY_S)
        else:
            unsure = bridge.loads.unsure(port.ofport for port in bridge.config.vm_ports)
            bridge.polling.read_often(unsure, bridge.config.poll_interval_s, now_s)
        if self._awaits_addresses:
            soon_s = now_s + ADDRESSES_SOON_S
            bridge.polling.buckets_due_s = min(bridge.polling.buckets_due_s, soon_s)
        return commands

    def _has_converged(self, now_s: float) -> bool:
        """Whether all policies have evaluated the loads after the last move, and moved nothing."""
        scheduler, policies = self.bridge.scheduler, self.config.rebalancing
        if self.convergence.at_rest or scheduler.awaits_confirmation:
            return False
        team_view = self.bridge.placing.team_view()
        window_s = max(map(team_view.window_s, policies), default=0.0)
        paused = any(scheduler.pauses(policy, team_view, now_s) for policy in policies)
        return not paused and team_view.covers(window_s)

    def _decide(self, team_view: TeamView, now_s: float) -> list[Command]:
        """Let each policy decide, and then carry out the moves of all."""
        bridge = self.bridge
        wanted = bridge.scheduler.decide(team_view, now_s, bridge.polling.is_extra)
        for moves, evidence in wanted:
            self.convergence.start(now_s)
            bridge.decision_log.evidence = evidence
            bridge.placing.carry_out(moves, now_s)
        relieved = {move.source for moves, _ in wanted for move in moves}
        commands: list[Command] = []
        if relieved:
            team_view = bridge.placing.team_view()
        if bridge.scheduler.knows(team_view, now_s):
            commands += bridge.decision_log.saturation(
                team_view, team_view.longest_window_s, relieved, now_s
            )
        return [*commands, *bridge.reconcile(now_s)] if relieved else commands

    @property
    def _just_updated(self) -> bool:
        """Whether a late counter of a port with address units just grew, and a policy uses it."""
        if not any(PRESETS[policy].at_once for policy in self.config.policies):
            return False
        at = self.bridge.loads.at
        return any(at(port.ofport).rates.just_updated for port in self.config.per_address)

    @property
    def _awaits_addresses(self) -> bool:
        """Whether a decision waits for loads of addresses behind a port whose counters are not delayed."""
        if self.bridge.scheduler.late_known or len(self.bridge.address_units.by_name) > MOST_UNITS:
            return False
        late = self.bridge.loads.late_ports()
        return any(port.ofport not in late for port in self.config.per_address)


def with_headers(read: UnitCountersRead) -> UnitCountersRead:
    """Add the Ethernet headers that tc leaves out of the counters of offloaded flows.

    With `hw-offload`, Open vSwitch offloads cached flows to tc, which counts a packet without its
    Ethernet header (Open vSwitch, "Flow Hardware offload with Linux TC flower", "Flow bytes count").
    Counters of ports include the header. Without this correction, the load of a VM port that sends
    64-byte frames would seem to be less than four fifths of its uplink's load.
    """
    return replace(
        read,
        units=tuple((ofport, _whole(sample)) for ofport, sample in read.units),
        buckets=tuple((bucket, _whole(sample)) for bucket, sample in read.buckets),
        address_units=tuple((slot, _whole(sample)) for slot, sample in read.address_units),
    )


def _whole(sample: Sample) -> Sample:
    return sample._replace(
        tx_bytes=_with(sample.tx_bytes, sample.tx_packets),
        rx_bytes=_with(sample.rx_bytes, sample.rx_packets),
    )


def _with(counted: float | None, packets: int) -> float | None:
    if counted is None or UNSUPPORTED in (counted, packets):
        return counted
    return counted + HEADER_BYTES * packets
