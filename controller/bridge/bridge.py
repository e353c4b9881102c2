"""One attached bridge: how it handles each event.

All of it is state and pure functions of state: no I/O, no clock. Methods that take an event, or
`now_s`, return the commands to carry out. Each of them ends in `reconcile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from controller.api import events
from controller.api.history import Moved
from controller.bridge.handover import Handover
from controller.bridge.installing import Installing
from controller.bridge.phase import Turn
from controller.bridge.placing import Placing
from controller.bridge.reconcile import ReconciledBridge
from controller.bridge.state import Commands
from controller.config.values import BridgeConfig
from controller.decisions.evidence import Evidence
from controller.features.announcer import Announcer
from controller.features.connection_hash import ConnectionHash
from controller.features.inbound_check import InboundCheck
from controller.features.no_flood import NoFlood
from controller.features.off_home import OffHomeAddresses
from controller.features.path_checks import Probing
from controller.features.polls import Polls
from controller.features.port_changes import PortChanges
from controller.features.shaping import Shaping
from controller.teaming.links import Links
from policies.model import Move, Reason


@dataclass(slots=True)
class Bridge(ReconciledBridge):
    """One bridge: an event in, commands out."""

    def __post_init__(self) -> None:
        self.links = Links(self.config.failback_delay_s)
        self.no_flood = NoFlood(self)
        self.connection_hash = ConnectionHash(self)
        self.shaping = Shaping(self)
        self.probing = Probing(self, self.probe_key)
        self.placing = Placing(self)
        self.port_changes = PortChanges(self)
        self.installing = Installing(self)
        self.handover = Handover(self)
        self.polls = Polls(self)
        self.announcer = Announcer(self)
        self.off_home = OffHomeAddresses(self)
        self.inbound_check = InboundCheck(self)
        self.features = (
            self.port_changes,
            self.installing,
            self.handover,
            self.polls,
            self.announcer,
            self.off_home,
            self.inbound_check,
            self.no_flood,
            self.connection_hash,
            self.shaping,
            self.probing,
        )

    # ---- requests of operators ---------------------------------------------------------------

    def inspect(self) -> Commands:
        """A request inspects the bridge; the service decides nothing about it from now on."""
        self.turn(Turn.INSPECT)
        self.interrupted = False
        return self.read_anew()

    def read_anew(self) -> Commands:
        """Read what is installed as if for the first time."""
        self.installation.forget()
        return [events.ReadInstalled(self.config.name)] if self.connected else []

    def take_over(self, config: BridgeConfig, now_s: float) -> Commands:
        """Manage the bridge from now on: it was inspected, or could not be given back."""
        self.turn(Turn.TAKE_OVER)
        self.interrupted = False
        return self.configure(config, now_s)

    def give_back(self, now_s: float) -> Commands:
        """Take everything of ours off the switch."""
        self.turn(Turn.GIVE_BACK)
        self.handover.end_gathering()
        read = self.read_anew() if self.installed is None else []
        return [*read, *self.reconcile(now_s)]

    def move(self, unit: str, target: str, reply: events.Reply, now_s: float) -> Commands:
        """Make `target` a VM port's home, and answer once the switch has followed.

        The same for addresses behind it that are units of their own, except silent ones, which
        cannot be announced.
        """
        silent = self.address_units.silent_s
        units = [u for u in self.placing.units() if unit in (u.name, u.behind)]
        carriers = {u.name: u.allowed for u in units if u.name not in silent}
        bound = self.placing.applied_bindings.bound
        moves = [
            Move(name, bound[name].uplink if name in bound else "", target, Reason.MANUAL)
            for name, allowed in carriers.items()
            if allowed is None or target in allowed
        ]
        return self.make(moves, reply, now_s)

    def make(
        self,
        moves: Iterable[Move],
        reply: events.Reply,
        now_s: float,
        evidence: Evidence | None = None,
    ) -> Commands:
        """Make moves that an operator wants, and answer once the switch has followed.

        `evidence`: the loads by which they were chosen, if any.
        """
        self.decision_log.evidence = evidence
        self.placing.carry_out(moves, now_s)
        self.installation.wait(reply)
        return self.reconcile(now_s)

    def refuse(
        self, reasons: Iterable[Reason], why: str, now_s: float, moves: Iterable[Moved] = ()
    ) -> Commands:
        """Record moves that an operator asked for and that are not made."""
        self.placing.counts.refuse_request(reasons)
        return [*self.decision_log.refused(self.placing.team_view, moves, why, now_s)]

    def recover(self, read_s: float, poll_s: float, why: str) -> Commands:
        """An error of ours has interrupted the handling of an event: go on as after a reconnect.

        What is installed stays, and is read at `read_s`. Polls go on at `poll_s`. `why`: the answer to
        requests that wait.
        """
        self.interrupted = not self.phase.is_attached
        self._forget_switch()
        self.shaping.read_anew()
        self.polling.begin(poll_s)
        waiting = self.installation.fail(read_s)
        return [events.Reply(reply.request_id, why, refused=True) for reply in waiting]

    # ---- the database ------------------------------------------------------------------------

    def configure(self, config: BridgeConfig, now_s: float) -> Commands:
        """Take a new configuration; the switch follows where it differs."""
        config = config.in_force(self.links.lacp_known(config.uplinks))
        return [*self._take_config(config, now_s), *self.reconcile(now_s)]

    # ---- the connection, and what is installed -----------------------------------------------

    def connect(self, ports: Iterable[events.PortState], now_s: float) -> Commands:
        """The switch has accepted a connection, and has these ports."""
        self._forget_switch()
        for port in self.config.vm_ports:
            before = (replace(move, at_s=move.at_s - self.epoch_s) for move in port.moved)
            self.scheduler.damping.restore(port.name, before, now_s)
        self.shaping.read_anew()
        self.links.connect(ports, self.config.uplinks, now_s)
        self.polling.begin(now_s)
        self.installation.audit_later(now_s)
        self._count_anew(now_s)
        return [events.ReadInstalled(self.config.name)]

    def disconnect(self) -> Commands:
        """The connection is lost. The switch forwards by the installed flows, and bindings stay."""
        self.links.connected = False
        self._forget_switch()
        return []

    def _forget_switch(self) -> None:
        self.installation.forget()
        for feature in self.features:
            feature.forget_switch()
        self.addresses.awaits_normal = False

    def heard(self, event: events.Event, now_s: float) -> Commands:
        """Handle an event that one of the features hears."""
        for feature in self.features:
            if isinstance(event, feature.hears):
                return feature.heard(event, now_s)
        raise TypeError(f"no handler for {event!r}")

    # ---- links -------------------------------------------------------------------------------

    # ---- counters and decisions --------------------------------------------------------------

    def _decide(self, now_s: float) -> Commands:
        """Ask each policy, and do what it says."""
        self.scheduler.begin(now_s)
        team_view, relieved = self.placing.team_view, set[str]()
        for wanted in self.scheduler.wanted(team_view, now_s, self.polling.is_extra):
            if wanted.moves:
                self.scheduler.convergence.start(now_s)
                self.decision_log.evidence = wanted.evidence
            self.placing.carry_out(wanted.moves, now_s)
            relieved |= {move.source for move in wanted.moves}
        team_view, commands = self.placing.team_view if relieved else team_view, Commands()
        if self.scheduler.knows(team_view, now_s):
            commands += self.decision_log.saturation(
                team_view, team_view.longest_window_s, relieved, now_s
            )
        return [*commands, *self.reconcile(now_s)] if relieved else commands

    # ---- what the switch has learned ---------------------------------------------------------

    # ---- time --------------------------------------------------------------------------------

    def _timers(self) -> Iterator[tuple[float, Callable[[float], Commands]]]:
        """When each thing is due, in seconds of engine time, and what does it, in this order.

        A row is made in its turn, because what was done before may have changed it.
        """
        yield from self.handover.timers()
        yield self.decision_log.deadline_s(), self._log_outcome
        yield from self.port_changes.timers()
        yield self.placing.returns_s, self.reconcile
        yield self.paths.deadline_s(self.config.failback_delay_s), self.reconcile
        yield from self.shaping.timers()
        if not self.connected:
            return
        yield from self.polls.timers()
        yield from self.probing.timers()
        yield from self.installing.timers()
        for announcing in (self.announcer, self.off_home, self.inbound_check):
            yield from announcing.timers()

    def deadline_s(self) -> float:
        """When `tick` next has something to do; infinity when nothing is waiting."""
        return min(due_s for due_s, _ in self._timers())

    def tick(self, now_s: float) -> Commands:
        """Do what is due."""
        commands: Commands = []
        for due_s, act in self._timers():
            if now_s >= due_s:
                commands += act(now_s)
        return commands

    def _log_outcome(self, now_s: float) -> Commands:
        return [*self.decision_log.outcome(self.placing.team_view, now_s)]
