"""One attached bridge: its state, the events that it handles, and the steps that update its switch.

This module has only state and pure functions of this state: no I/O, no clock. Methods that take an event or
`now_s` return the commands to carry out, and call `reconcile` at the end. Each task of a bridge is a
feature (`controller/features`); this module combines the features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from controller.api import engine_commands, events
from controller.api.events import ForeignFlow, InstalledRead
from controller.api.history import Moved
from controller.bridge import inspection
from controller.bridge.handover import Handover
from controller.bridge.installation import Installation
from controller.bridge.phase import Phase, Turn, after
from controller.bridge.placing import Placing
from controller.config.values import BridgeConfig
from controller.dataplane import specs
from controller.decisions.decision_log import DecisionLog, Evidence
from controller.decisions.scheduler import Scheduler
from controller.features.announcer import Announcer
from controller.features.connection_hash import ConnectionHash
from controller.features.dropped import DroppedFrames
from controller.features.feature import Feature
from controller.features.flooded import Flooded, Repeated
from controller.features.inbound_check import InboundCheck
from controller.features.learned_addresses import Addresses
from controller.features.no_flood import NoFlood
from controller.features.off_home import OffHomeAddresses
from controller.features.path_checks import Probing
from controller.features.polls import Polls
from controller.features.port_changes import PortChanges
from controller.features.shaping import Shaping
from controller.load.loads import Loads
from controller.load.polling import Polling
from controller.teaming.address_units import AddressUnits
from controller.teaming.links import Links
from controller.teaming.paths import PathChecks
from controller.text.wording import UNREACHED
from policies.model import Move, Reason, Role

Commands = list[engine_commands.Command]
# The addresses of a new VM port are read after this time, in case ovs-vswitchd restarts and forgets
# them. The VM has usually sent a frame by that time.
NEW_VM_AUDIT_S = 2.0


class Bridge:
    """The state of one bridge. Its methods handle events, and return the commands to carry out.

    `epoch_s`: the wall-clock time at which engine time was zero. `probe_key`: the key that signs
    path-check probes, so that no other host can forge them.
    """

    def __init__(
        self,
        config: BridgeConfig,
        epoch_s: float = 0.0,
        phase: Phase = Phase.SERVING,
        probe_key: bytes = b"",
    ) -> None:
        # The configuration in force.
        self.config = config
        self.epoch_s = epoch_s
        # The current phase: inspected, served, gathering, on NORMAL or leaving.
        self.phase = phase
        # Whether an internal error has interrupted a request that attaches or detaches the bridge. Our
        # flows are then removed without the steps that avoid frame loss, because such a step may have failed.
        self.interrupted = False
        # ---- the state that the switch has reported
        # Ports, and which uplinks carry traffic.
        self.links = Links(config.failback_delay_s, config.uplinks)
        # The measured loads of ports, units and buckets.
        self.loads = Loads()
        self.flooded = Flooded()
        self.repeated = Repeated()
        self.dropped = DroppedFrames()
        # The addresses behind VM ports: all of them, and those that are separate units.
        self.addresses = Addresses(self)
        self.address_units = AddressUnits()
        # The results of path checks: which uplinks reach each other.
        self.paths = PathChecks()
        # ---- decisions
        # When to read counters.
        self.polling = Polling()
        # The times of policies' decisions, and the latest decisions.
        self.scheduler = Scheduler()
        # The bindings of units to uplinks.
        self.placing = Placing(self)
        # The log of decisions.
        self.decision_log = DecisionLog()
        # ---- features
        # Our installed and desired flows and groups.
        self.installation = Installation(self)
        self.port_changes = PortChanges(self)
        self.handover = Handover(self)
        self.polls = Polls(self)
        self.announcer = Announcer(self)
        self.off_home = OffHomeAddresses(self)
        self.inbound_check = InboundCheck(self)
        self.no_flood = NoFlood(self)
        self.connection_hash = ConnectionHash(self)
        self.shaping = Shaping(self)
        self.probing = Probing(self, probe_key)
        # All features, in the order in which they act.
        self.features = tuple(part for part in vars(self).values() if isinstance(part, Feature))

    # ---- the known state of the switch --------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self.links.connected

    @property
    def read(self) -> InstalledRead | None:
        """The last reading of the switch's flows and groups; None if they have not been read."""
        return self.installation.read

    @property
    def foreign(self) -> tuple[ForeignFlow, ...]:
        """Other programs' flows, from the last reading of the switch."""
        return self.read.foreign if self.read is not None else ()

    @property
    def overruling(self) -> list[str]:
        """Descriptions of other programs' flows that take precedence over ours."""
        if self.read is None or not self.serves:
            return []
        return inspection.flows_before_ours(self.read, self.config.on_bond)

    @property
    def installed(self) -> specs.Pipeline | None:
        """Our flows and groups on the switch; None if they are not known."""
        return self.installation.installed

    @property
    def installed_anything(self) -> bool:
        return self.installed is not None and self.installed != specs.EMPTY

    @property
    def settled(self) -> bool:
        """Whether the installed pipeline is known, and no change to flows or flags is pending."""
        changing = self.no_flood.changing or self.connection_hash.changing
        return self.connected and self.installation.settled and not changing

    @property
    def known(self) -> bool:
        """Whether all data that a change requires has been read from the switch."""
        return self.settled and not self.addresses.awaits_normal

    @property
    def at_rest(self) -> bool:
        """Whether the switch has the desired pipeline, and no announcement is pending."""
        return not (self.announcer.due or self.off_home.due) and self.installation.has_all

    @property
    def awaited(self) -> str:
        """The reason why `known` is False, worded as the end of an error message."""
        if not self.connected:
            return f", because {UNREACHED}"
        if self.addresses.awaits_normal:
            return ", because ovs-vswitchd did not answer fdb/show"
        if self.no_flood.request.error is not None:
            return f", because the flag no-flood cannot be changed on VM ports: {self.no_flood.request.error}"
        return ", because the switch did not answer"

    @property
    def any_up(self) -> bool:
        return any(self.links.up(u) for u in self.config.uplinks if u.role is not Role.UNUSED)

    @property
    def lacp_in_doubt(self) -> bool:
        """Whether LACP may still work although the bridge has fallen back to one uplink.

        True if LACP was current on a member that is up when the database was last read. This
        reading may be outdated.
        """
        config = self.config
        current = (u for u in config.uplinks if u.name in config.lacp_current)
        return config.fallen_back and any(map(self.links.up, current))

    # ---- mode and activity of the bridge -----------------------------------------------------

    @property
    def observing(self) -> bool:
        return self.config.observes

    @property
    def on_normal(self) -> bool:
        """Whether NORMAL forwards on the observed bond, or will forward when our flows are removed."""
        if self.phase.is_attached:
            return self.phase is Phase.ON_NORMAL
        return self.config.observes_bond and not self.handover.is_gathering

    @property
    def serves(self) -> bool:
        """Whether our pipeline, and not the NORMAL action, forwards the bridge's traffic."""
        return self.phase is not Phase.LEAVING and not self.on_normal and self.config.forwards

    @property
    def announces(self) -> bool:
        """Whether the service announces VM ports with learning packets."""
        return self.phase.is_attached and self.serves

    @property
    def wants_addresses(self) -> bool:
        """Whether the learned addresses are needed for units, path checks or queues."""
        if self.config.per_address and self.phase.is_attached and self.installed_anything:
            return True
        if self.checks_paths and any(port.vlans.takes_tagged for port in self.config.vm_ports):
            return True
        asking = self.config.queued
        if not asking or not self.announces or not self.settled:
            return False
        known = self.addresses.by_port
        missing = any(port.name not in known and not port.attached_macs for port in asking)
        return missing or not self.addresses.known

    @property
    def checks_paths(self) -> bool:
        """Whether path checks are active: uplinks send probes to each other."""
        return self.config.checks_paths and self.announces and not self.config.fallen_back

    # ---- pending changes and announcements ---------------------------------------------------

    @property
    def resumes_s(self) -> float:
        """When to send the changes that wait for the switch's failover; infinity if no changes wait."""
        return self.installation.resumes_s if self.connected else math.inf

    @property
    def announces_at_s(self) -> float:
        """When the next announcement or inbound check is due; infinity if none is scheduled."""
        if not self.connected:
            return math.inf
        announced_s = min(self.announcer.due.due_s(), self.off_home.due.due_s())
        return min(announced_s, self.inbound_check.next_s())

    # ---- requests of operators ---------------------------------------------------------------

    def inspect(self) -> Commands:
        """Read the switch's state for a request, and suspend the policies' decisions for the bridge."""
        self.turn(Turn.INSPECT)
        assert self.phase.changes_nothing, "a request inspects the bridge first"
        self.interrupted = False
        return self.read_anew()

    def read_anew(self) -> Commands:
        """Discard the known flows and groups, and read them from the switch again."""
        self.installation.forget_switch()
        return [self.installation.read_installed()] if self.connected else []

    def take_over(self, config: BridgeConfig, now_s: float) -> Commands:
        """Apply `config` and manage the bridge, after it was inspected or a detach has failed."""
        self.turn(Turn.TAKE_OVER)
        assert self.phase.is_attached, "the bridge is attached now"
        self.interrupted = False
        return self.configure(config, now_s)

    def give_back(self, now_s: float) -> Commands:
        """Remove all our flows and groups from the switch."""
        self.turn(Turn.GIVE_BACK)
        assert self.phase is Phase.LEAVING, "all our flows will be removed"
        self.handover.end_gathering()
        read = self.read_anew() if self.installed is None else []
        return [*read, *self.reconcile(now_s)]

    def move(self, unit: str, target: str, reply: engine_commands.Reply, now_s: float) -> Commands:
        """Make `target` the home uplink of VM port `unit`, and send `reply` once the switch is updated.

        Addresses behind the VM port that are separate units move as well, except silent addresses,
        which cannot be announced.
        """
        silent = self.address_units.silent()
        units = [u for u in self.placing.units() if unit in (u.name, u.behind)]
        carriers = {u.name: u.allowed for u in units if u.name not in silent}
        bound = self.placing.on_switch.bound
        moves = [
            Move(name, bound[name].uplink if name in bound else "", target, Reason.MANUAL)
            for name, allowed in carriers.items()
            if allowed is None or target in allowed
        ]
        return self.make(moves, reply, now_s)

    def make(
        self,
        moves: Iterable[Move],
        reply: engine_commands.Reply,
        now_s: float,
        evidence: Evidence | None = None,
    ) -> Commands:
        """Make moves that an operator requested, and send `reply` when the switch has made these moves.

        `evidence`: the loads on which the moves are based, if any.
        """
        self.decision_log.evidence = evidence
        self.placing.carry_out(moves, now_s)
        self.installation.waiting.append(reply)
        return self.reconcile(now_s)

    def refuse(
        self, reasons: Iterable[Reason], why: str, now_s: float, moves: Iterable[Moved] = ()
    ) -> Commands:
        """Record the refusal of moves that an operator requested. These moves also count as planned."""
        counted = list(reasons)
        self.placing.counts.planned.update(counted)
        self.placing.counts.refused.update(counted)
        return [*self.decision_log.refused(self.placing.team_view(), moves, why, now_s)]

    def recover(self, read_s: float, poll_s: float, why: str) -> Commands:
        """Continue as after a reconnect, because an internal error has interrupted the handling of an event.

        Installed flows are kept, and are read at `read_s`. Polls continue at `poll_s`. `why`: the answer to
        waiting requests.
        """
        self.interrupted = not self.phase.is_attached
        self._forget_switch()
        self.shaping.read_anew()
        self.polling.begin_polling(poll_s)
        self.installation.audit_due_s = read_s
        waiting = self.installation.take_waiting()
        return [engine_commands.Reply(reply.request_id, why, refused=True) for reply in waiting]

    # ---- the database ------------------------------------------------------------------------

    def configure(self, config: BridgeConfig, now_s: float) -> Commands:
        """Apply a new configuration, and change the switch where needed."""
        assert config.name == self.config.name, "a bridge keeps its name"
        config = config.in_force(self.links.lacp_known(config.uplinks))
        return [*self._take_config(config, now_s), *self.reconcile(now_s)]

    # ---- the connection to the switch --------------------------------------------------------

    def connect(self, ports: Iterable[events.PortState], now_s: float) -> Commands:
        """Start to manage the switch after it has connected. `ports`: all ports of the switch."""
        self._forget_switch()
        for port in self.config.vm_ports:
            before = (replace(move, at_s=move.at_s - self.epoch_s) for move in port.moved)
            self.scheduler.damping.restore(port.name, before, now_s)
        self.shaping.read_anew()
        self.links.connect(ports, now_s)
        self.polling.begin_polling(now_s)
        self.installation.audit_later(now_s)
        self.polls.count_anew(now_s)
        return [self.installation.read_installed()]

    def disconnect(self) -> Commands:
        """Handle a lost connection: keep bindings. The switch keeps forwarding with the installed flows."""
        self.links.connected = False
        self._forget_switch()
        assert self.installed is None, "the installed flows are not known now"
        return []

    def _forget_switch(self) -> None:
        for feature in self.features:
            feature.forget_switch()

    def handle(self, event: events.BridgeEvent, now_s: float) -> Commands:
        """Handle an event, or pass it to the feature that handles its type."""
        if isinstance(event, events.SwitchConnected):
            return self.connect(event.ports, now_s)
        if isinstance(event, events.SwitchGone):
            return self.disconnect()
        for feature in self.features:
            if isinstance(event, feature.hears):
                return feature.heard(event, now_s)
        raise TypeError(f"no handler for {event!r}")

    # ---- phases ------------------------------------------------------------------------------

    def turn(self, turn: Turn) -> None:
        self.phase = after(self.phase, turn, self.config.observes_bond)

    # ---- the configuration in force ----------------------------------------------------------

    def _take_config(self, config: BridgeConfig, now_s: float) -> Commands:
        """Apply a configuration that already includes the fallback without LACP."""
        self.placing.end_splits(config)
        old, self.config = self.config, config
        other_mode = old.mode != config.mode
        self.turn(Turn.CHANGE_MODE if other_mode else Turn.CONFIGURE)
        self.links.delay_s = config.failback_delay_s
        self.links.follow_team(config.uplinks, now_s)
        self.addresses.keep_ports()
        self.address_units.keep_behind(config)
        if {port.name for port in config.vm_ports} - {port.name for port in old.vm_ports}:
            self.installation.audit_by(now_s + NEW_VM_AUDIT_S)
        if old.offload.by_tc != config.offload.by_tc:
            # From now on, flow counters count differently.
            self.loads = self.loads.without_rates()
            self.scheduler.forget_loads()
        known = {*old.errors}
        new = (error for error in config.errors if error not in known)
        commands: Commands = [engine_commands.Report("warning", str(error)) for error in new]
        if config.fallen_back and not old.fallen_back:
            commands += self._fall_back()
        self.placing.place_anew(old)
        if old.fallen_back and not config.fallen_back:
            commands += self._end_fallback()
        if other_mode:
            # Earlier loads do not belong to the bindings that are evaluated from now on.
            self.scheduler.begin_windows(now_s)
            if config.on_bond and self.serves and not self.installed_anything:
                # Until now, these bindings were only plans.
                self.placing.planned.bind_anew(now_s)
            commands += self.handover.leave(now_s)
            if config.on_bond and self.serves and not self.installed_anything and self.settled:
                commands += self.handover.read_forwarding()
        if config.fallen_back and not old.fallen_back and self.any_up:
            self.announcer.announce(self.announcer.everything, now_s)
        return commands

    def _fall_back(self) -> Commands:
        """Use one uplink: without LACP, the upstream switch treats each member as a separate port."""
        asked = self.config.asked.vm_ports
        self.placing.planned.set_aside({port.name: port.binding for port in asked if port.binding})
        found = f"{self.config.name}: LACP is not negotiated, so one uplink serves all VM ports"
        remedy = "configure LACP, in active mode, on the upstream switch"
        return [engine_commands.Report("warning", f"{found}; {remedy}")]

    def _end_fallback(self) -> Commands:
        """End the fallback when LACP is negotiated, and drop announcements planned for single members."""
        self.placing.planned.take_up()
        self.announcer.forget()
        return [engine_commands.Report("info", f"{self.config.name}: LACP works again")]

    # ---- the steps ---------------------------------------------------------------------------

    def reconcile(self, now_s: float) -> Commands:
        """Update bindings to match home uplinks and links, and the switch to match bindings.

        The same steps follow every event, and are repeated after a bundle without changes, which
        completes immediately. This method schedules announcements; `tick` sends them.
        """
        assert self.connected or self.installed is None, "no flows are known without a connection"
        commands: Commands = []
        if self.phase.changes_nothing:
            return commands
        again = True
        while again:
            if self.phase.is_attached:
                commands += self._follow_lacp(now_s)
                self.announcer.announce_waiting(now_s)
                commands += self.probing.follow(now_s)
                commands += self.port_changes.record(now_s)
                self.placing.choose_on_switch(now_s)
                commands += self.placing.bind(now_s)
                commands += self.placing.judge_rules(now_s)
            sent, again = self.installation.install(now_s)
            commands += sent
        return [*commands, *self.shaping.shape(now_s)]

    def _follow_lacp(self, now_s: float) -> Commands:
        """Fall back to one uplink while LACP is not negotiated; end the fallback when LACP is negotiated."""
        config = self.config.in_force(self.links.lacp_known(self.config.uplinks))
        changed = config.fallen_back is not self.config.fallen_back
        return self._take_config(config, now_s) if changed else []

    # ---- time --------------------------------------------------------------------------------

    def _timers(self) -> Iterator[tuple[float, Callable[[float], Commands]]]:
        """Yield each timer's due time (seconds of engine time) and function, in the order of execution.

        A timer is computed directly before it runs, because earlier functions may have changed it.
        """
        yield from self.handover.timers()
        yield self.decision_log.outcome_due_s, self._log_outcome
        yield self.links.delay_ends_s, self.port_changes.end_delays
        yield self.placing.returns_s, self.reconcile
        yield self.paths.judges_s(self.config.failback_delay_s), self.reconcile
        yield from self.shaping.timers()
        yield self.links.asks_s, self.port_changes.ask_for_frame
        if not self.connected:
            return
        yield from self.polls.timers()
        yield from self.probing.timers()
        yield from self.installation.timers()
        yield from self.announcer.timers()
        yield from self.off_home.timers()
        yield from self.inbound_check.timers()

    def deadline_s(self) -> float:
        """Return when the next timer is due (and `tick` must be called); infinity if none is set."""
        return min([due_s for due_s, _ in self._timers()])

    def tick(self, now_s: float) -> Commands:
        """Run the timers that are due."""
        commands: Commands = []
        for due_s, act in self._timers():
            if now_s >= due_s:
                commands += act(now_s)
        return commands

    def _log_outcome(self, now_s: float) -> Commands:
        return [*self.decision_log.outcome(self.placing.team_view(), now_s)]
