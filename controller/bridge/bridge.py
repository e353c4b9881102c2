"""One attached bridge: how it handles each event.

All of it is state and pure functions of state: no I/O, no clock. Methods that take an event, or
`now_s`, return the commands to carry out. Each of them ends in `reconcile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from controller.api import events
from controller.api.history import Moved
from controller.bridge import addresses
from controller.bridge.installation import Bundle
from controller.bridge.phase import Phase, Turn
from controller.bridge.reconcile import ReconciledBridge
from controller.bridge.state import Commands
from controller.config.values import BridgeConfig
from controller.dataplane import frames, specs
from controller.decisions.decision_log import move_lines
from controller.decisions.evidence import Evidence
from controller.features.announcer import Announcer, learned_from_normal
from controller.features.connection_hash import ConnectionHash
from controller.features.inbound_check import InboundCheck
from controller.features.no_flood import NoFlood
from controller.features.off_home import OffHomeAddresses
from controller.features.path_checks import Probing
from controller.features.shaping import Shaping
from controller.load.filling import MOST_UNITS, READ_EVERY_S
from controller.load.headers import with_headers
from controller.load.polling import ADDRESSES_SOON_S
from controller.teaming import buckets, splits
from controller.teaming.links import PORT_NAME_CHARACTERS, Links
from policies.model import Move, Reason

RETRY_INTERVAL_S = 1.0
# After this time, no cached flow gives NORMAL what VM ports send because there was no uplink.
REVALIDATED_S = 1.0


@dataclass(slots=True)
class Bridge(ReconciledBridge):
    """One bridge: an event in, commands out."""

    def __post_init__(self) -> None:
        self.links = Links(self.config.failback_delay_s)
        self.no_flood = NoFlood(self)
        self.connection_hash = ConnectionHash(self)
        self.shaping = Shaping(self)
        self.probing = Probing(self, self.probe_key)
        self.announcer = Announcer(self)
        self.off_home = OffHomeAddresses(self)
        self.inbound_check = InboundCheck(self)
        self.features = (
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
        self._turn(Turn.INSPECT)
        self.interrupted = False
        return self.read_anew()

    def read_anew(self) -> Commands:
        """Read what is installed as if for the first time."""
        self.installation.forget()
        return [events.ReadInstalled(self.config.name)] if self.connected else []

    def take_over(self, config: BridgeConfig, now_s: float) -> Commands:
        """Manage the bridge from now on: it was inspected, or could not be given back."""
        self._turn(Turn.TAKE_OVER)
        self.interrupted = False
        return self.configure(config, now_s)

    def give_back(self, now_s: float) -> Commands:
        """Take everything of ours off the switch."""
        self._turn(Turn.GIVE_BACK)
        self.gathering.end()
        read = self.read_anew() if self.installed is None else []
        return [*read, *self.reconcile(now_s)]

    def introduce_to_normal(self) -> None:
        """Teach NORMAL where VMs are, as soon as it has taken over a bond. Nobody else hears of it.

        Whoever attaches the bridge again finds the addresses there, also those of silent VMs.
        """
        if not self.config.on_bond:
            return
        ports = {port.name: port for port in self.config.vm_ports}
        self.announcer.introduce(
            events.SendFrame(
                self.config.name,
                int(ports[name].ofport),
                frames.rarp(mac, ports[name].vlans.tag_in(vlan), to_itself=True),
            )
            for name, known in sorted(self.addresses.by_port.items())
            if name in ports
            for mac, vlan in known
        )

    def move(self, unit: str, target: str, reply: events.Reply, now_s: float) -> Commands:
        """Make `target` a VM port's home, and answer once the switch has followed.

        The same for addresses behind it that are units of their own, except silent ones, which
        cannot be announced.
        """
        silent = self.address_units.silent_s
        units = [u for u in self.units() if unit in (u.name, u.behind)]
        carriers = {u.name: u.allowed for u in units if u.name not in silent}
        bound = self.applied_bindings.bound
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
        self._carry_out(moves, now_s)
        self.installation.wait(reply)
        return self.reconcile(now_s)

    def refuse(
        self, reasons: Iterable[Reason], why: str, now_s: float, moves: Iterable[Moved] = ()
    ) -> Commands:
        """Record moves that an operator asked for and that are not made."""
        self.counts.refuse_request(reasons)
        return [*self.decision_log.refused(self.team_view, moves, why, now_s)]

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
        self.loads.forget_rates()
        self.flooded.forget()
        self.scheduler.forget_loads()
        self.addresses.awaits_normal = False
        self.polling.forget()

    def take_installed(self, read: events.InstalledRead, now_s: float) -> Commands:
        """Take a reading of the switch's flows and groups, ours and those of others."""
        unknown_before, first_reading = self.installed is None, self.read is None
        if not self.installation.take(read, now_s):
            return []
        members = self.config.uplinks if self.config.on_a_lag else ()
        up = [member.ofport for member in members if self.links.up(member)]
        self.repeated.take({ofport: read.flooded.get(ofport, 0) for ofport in up}, now_s)
        if self.interrupted:
            return self.reconcile(now_s)
        if unknown_before:
            self._restore(first_reading, now_s)
        if addresses.learns(self.installed or specs.EMPTY):
            forgotten = self._take_over_from_normal()
            return [*forgotten, *self.reconcile(now_s), events.ReadLearned(self.config.name)]
        inspects = self.phase is Phase.INSPECTING
        if inspects and not first_reading:
            return []
        commands: Commands = []
        if inspects and self.config.on_bond:
            # Before anything is changed, see which ports have the flag already.
            commands += self.no_flood.inspect(now_s)
        unknown = self.config.on_bond or not self.addresses.by_port
        if self.phase is not Phase.LEAVING and unknown and not self.addresses.awaits_normal:
            # NORMAL knows the addresses of silent VMs and of new ones; we do not.
            return [*commands, *self._read_forwarding()]
        return [*commands, *self.reconcile(now_s)]

    def _restore(self, first_reading: bool, now_s: float) -> None:
        """Go on from what is installed, as an earlier service left it."""
        found = self.installed or specs.EMPTY
        self.no_flood.restore(found)
        self.installation.found_homes |= buckets.installed(found, self.uplinks())
        self.address_units.restore(found, self.config)
        if first_reading:
            for name in splits.installed(found, self.config):
                self.scheduler.splits.split(name, now_s)
            self.applied.split = self.scheduler.splits.names

    def take_forwarding(self, read: events.ForwardingRead, now_s: float) -> Commands:
        """Take the addresses that NORMAL has learned, before our pipeline replaces it."""
        if not self.addresses.awaits_normal:
            return []
        self.addresses.awaits_normal = False
        follow = self.addresses.take if self.on_normal else self.addresses.add
        follow(read.addresses, self.config.vm_ports)
        self.addresses.known |= read.error is None
        return self.reconcile(now_s)

    def heard(self, event: events.Event, now_s: float) -> Commands:
        """Handle an event that one of the features hears."""
        for feature in self.features:
            if isinstance(event, feature.hears):
                return feature.heard(event, now_s)
        raise TypeError(f"no handler for {event!r}")

    def finish_bundle(self, done: events.BundleDone, now_s: float) -> Commands:
        """The switch has made the changes of a bundle, or has refused all of them."""
        bundle = self.installation.finish(done, now_s)
        if bundle is None:
            return []
        if done.error is not None:
            self.announcer.end_reading_ahead()
            return self._bundle_refused(bundle, done.error, now_s)
        commands = self._carried_out(bundle, now_s)
        return [*commands, *self.reconcile(now_s)]

    def _bundle_refused(self, bundle: Bundle, error: str, now_s: float) -> Commands:
        """The switch has refused a bundle: report that, and read what is installed."""
        self.installation.audit_at(now_s + RETRY_INTERVAL_S)
        later, waiters = self.installation.give_up()
        moves = [*bundle.moves, *later]
        self.counts.refuse(moves)
        self.applied_bindings.take_back([move for move in moves if not move.is_resplit], now_s)
        self.scheduler.splits.take_back(moves, now_s)
        self._end_splits(self.config)
        refusal = f"the switch refused the change: {error}"
        records = self.decision_log.refused(
            self.team_view, move_lines(self.team_view, moves), refusal, now_s
        )
        waiting = [*bundle.waiting, *waiters]
        replies = [events.Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [events.Report("error", f"{self.config.name}: {refusal}"), *records, *replies]

    # ---- links -------------------------------------------------------------------------------

    def change_port(self, port: events.PortState, now_s: float) -> Commands:
        """A port has come, or its link has changed."""
        if port.ofport not in self.links.ports:
            self.no_flood.came(port.ofport)
            self.shaping.read_anew()
        was_cut_off, before = not self.any_up, self.links.ports.get(port.ofport)
        self.links.see(port, self.config.uplinks, now_s)
        # The switch reports a new port first as present, and a moment later as live.
        failed = not port.up and before is not None and before.up
        if failed:
            self.installation.pause(now_s)
        if not self._concerns(port):
            return []
        commands = self.reconcile(now_s)
        if failed:
            commands += self.announcer.announce_failover()
        if was_cut_off and self.any_up:
            # The upstream switches may have forgotten all VMs meanwhile, and NORMAL has learned them.
            self.announcer.announce(self.announcer.everything, now_s)
            self.taken_over_with = ()
            self.installation.audit_by(now_s + REVALIDATED_S)
        return commands

    def _concerns(self, port: events.PortState) -> bool:
        """Whether a port is one that the configuration names.

        Of a new port, the switch tells before the database does. Until then nothing follows from it,
        and with hundreds of buckets it takes a while to find that out.
        """
        uplinks, vm_ports = self.config.uplinks, self.config.vm_ports
        known = {uplink.ofport for uplink in uplinks} | {vm_port.ofport for vm_port in vm_ports}
        names = {uplink.name[:PORT_NAME_CHARACTERS] for uplink in uplinks}
        return port.ofport in known or port.name in names

    def remove_port(self, ofport: int, now_s: float) -> Commands:
        """A port is gone."""
        self.links.remove(ofport, self.config.uplinks, now_s)
        self.no_flood.gone(ofport)
        self.loads.remove(ofport)
        return self.reconcile(now_s)

    # ---- counters and decisions --------------------------------------------------------------

    def take_port_stats(self, read: events.PortStatsRead, now_s: float) -> Commands:
        """Take the counters of ports. If the poll reads nothing else, decide."""
        uplinks, team_view = {uplink.ofport for uplink in self.config.uplinks}, self.team_view
        keep_s = team_view.keep_s
        for port in read.ports:
            self.loads.take_port(port, port.ofport in uplinks, keep_s)
        self.flooded.take(read.ports, self.config.vm_ports)
        self._note_received()
        if team_view.just_updated and not self.polling.with_behind:
            # The same update has counted the addresses behind it.
            self.polling.read_all(now_s)
        return [] if self.polling.with_units else self._polled_all(now_s)

    def _note_received(self) -> None:
        """Note whether uplinks receive anything. The upstream switch may choose to send by no member of a LAG."""
        if self.config.on_a_lag:
            self.links.forget_received()
            return
        counters = ((u.name, self.loads.counters.get(u.ofport)) for u in self.config.uplinks)
        found = {name: port.rx_packets for name, port in counters if port is not None}
        received = {name: count for name, count in found.items() if count != events.UNSUPPORTED}
        self.links.receive(received, probed=self.checks_paths)

    def take_unit_counters(self, read: events.UnitCountersRead, now_s: float) -> Commands:
        """Take the counters of units, which end a poll, and decide."""
        self.installation.poll_counted(bool(read.units), now_s)
        if self.config.offload.by_tc:
            read = with_headers(read)
        behind = self.address_units.by_slot(self.config) if read.address_units else {}
        self.loads.take_units(read, behind, self.team_view.keep_s)
        if read.buckets:
            self.scheduler.read_buckets(now_s)
        if read.address_units:
            self.scheduler.filling.read_addresses(now_s)
        return self._polled_all(now_s)

    def take_stats_again(self, now_s: float) -> Commands:
        """A poll shows the loads that the last one has shown: decide about them again."""
        self.loads.repeat()
        return self._polled_all(now_s)

    def _polled_all(self, now_s: float) -> Commands:
        self.polling.forget()
        self.loads.steady_s = self.scheduler.filling.late_steady_s(now_s)
        self.loads.addresses_steady = self.scheduler.filling.addresses_steady
        commands = self._decide(now_s)
        if self.installation.settled and not self.scheduler.convergence.at_rest:
            took_s = self.scheduler.converged(self.team_view, now_s)
            if took_s is not None:
                commands.append(events.Observe(self.config.name, "settling", took_s))
        if self.scheduler.filling.reads_fast(now_s):
            self.polling.hasten(now_s + READ_EVERY_S)
        else:
            unsure = self.loads.unsure(port.ofport for port in self.config.vm_ports)
            self.polling.read_often(unsure, self.config.poll_interval_s, now_s)
        if self._awaits_addresses:
            self.polling.hasten_flows(now_s + ADDRESSES_SOON_S)
        return commands

    @property
    def _awaits_addresses(self) -> bool:
        """Whether a decision waits for the loads of addresses behind a port that is counted at once."""
        if self.scheduler.late_known or len(self.address_units.by_name) > MOST_UNITS:
            return False
        return any(not self.loads.is_late(port.ofport) for port in self.config.per_address)

    def _decide(self, now_s: float) -> Commands:
        """Ask each policy, and do what it says."""
        self.scheduler.begin(now_s)
        team_view, relieved = self.team_view, set[str]()
        for wanted in self.scheduler.wanted(team_view, now_s, self.polling.is_extra):
            if wanted.moves:
                self.scheduler.convergence.start(now_s)
                self.decision_log.evidence = wanted.evidence
            self._carry_out(wanted.moves, now_s)
            relieved |= {move.source for move in wanted.moves}
        team_view, commands = self.team_view if relieved else team_view, Commands()
        if self.scheduler.knows(team_view, now_s):
            commands += self.decision_log.saturation(
                team_view, team_view.longest_window_s, relieved, now_s
            )
        return [*commands, *self.reconcile(now_s)] if relieved else commands

    def _carry_out(self, moves: Iterable[Move], now_s: float) -> None:
        """Make the targets of moves homes, and split and merge VM ports. `reconcile` must follow."""
        moves = list(moves)
        for move in moves:
            if not move.is_resplit:
                self.bindings.place(move.unit, move.target, move.reason)
        resplit = [move for move in moves if move.is_resplit]
        if not resplit:
            return
        policies = {port.name: port.policy for port in self.config.vm_ports}
        before, in_use = self.units(), self.team_view.in_use
        for move in resplit:
            policy = policies[move.unit]
            if move.reason is Reason.SPLIT and policy not in in_use:
                self.bindings.homes |= buckets.by_shares(policy, move.shares)
        self.scheduler.splits.make(resplit, now_s)
        self._count_anew(now_s)
        named = {move.unit for move in resplit}
        self.scheduler.peaks.drop(u.name for u in before if u.is_bucket or u.name in named)
        self._keep_units()

    # ---- what the switch has learned ---------------------------------------------------------

    def take_learned(self, read: events.LearnedRead, now_s: float) -> Commands:
        """Remember the addresses, and send the learning packets that are due.

        They are for units that have moved, and for VM ports whose frames NORMAL has carried until
        now.
        """
        commands: Commands = []
        if self.installation.settled and self.phase.is_attached:
            self.addresses.take(read.addresses, self.config.vm_ports)
            self.addresses.known = True
            up = {ofport: port.up for ofport, port in self.links.ports.items()}
            flows = self.addresses.renewals(self.config.vm_ports, up, now_s)
            if flows:
                commands.append(events.Renew(self.config.name, flows))
            commands += self._follow_addresses(read, now_s)
        elif not self.installation.settled:
            # This reading shows the addresses before the bundle.
            self.announcer.end_reading_ahead()
        from_normal = learned_from_normal(read, self.config)
        if not self.no_flood.changing:
            from_normal -= set(read.addresses)
        packets = self.announcer.packets(read, from_normal, now_s)
        if self.on_normal and self.installed_anything:
            # On a LAG, no learning packet has to go upstream, and NORMAL would flood those for
            # addresses that it has not learned yet.
            self.announcer.introduce([] if self.config.on_a_lag else packets)
        else:
            commands += packets
        if self.no_flood.changing:
            self.no_flood.take_up()
            commands += self.reconcile(now_s)
        return [*commands, *self.shaping.shape(now_s)]

    def _follow_addresses(self, read: events.LearnedRead, now_s: float) -> Commands:
        """Addresses that are units of their own have come or gone, or speak again."""
        if not addresses.learns(self.installed or specs.EMPTY):
            return []
        silent = set(self.address_units.silent_s)
        changed = self.address_units.take(read, self.config, now_s)
        if not changed and silent <= self.address_units.silent_s.keys():
            return []
        self.loads.forget_address_units(changed)
        self._keep_units()
        return self.reconcile(now_s)

    # ---- time --------------------------------------------------------------------------------

    def _timers(self) -> Iterator[tuple[float, Callable[[float], Commands]]]:
        """When each thing is due, in seconds of engine time, and what does it, in this order.

        A row is made in its turn, because what was done before may have changed it.
        """
        if self.observing:
            yield self.gathering.deadline_s(), self._end_gathering
        yield self.decision_log.deadline_s(), self._log_outcome
        yield self.links.delay_ends_s, self._end_delays
        yield self._returns_s, self.reconcile
        yield self.paths.deadline_s(self.config.failback_delay_s), self.reconcile
        yield from self.shaping.timers()
        yield self.links.asks_s, self._ask_for_frame
        if not self.connected:
            return
        if self.phase.is_attached:
            yield self.polling.due_s, self._poll
        yield from self.probing.timers()
        yield self.installation.resumes_s, self._end_pause
        yield self.installation.audit_due_s, self._audit
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

    def _end_gathering(self, now_s: float) -> Commands:
        self.gathering.end()
        self._turn(Turn.GATHERED)
        return [*self._introduce_to_normal(), *self.reconcile(now_s)]

    def _log_outcome(self, now_s: float) -> Commands:
        return [*self.decision_log.outcome(self.team_view, now_s)]

    def _end_delays(self, now_s: float) -> Commands:
        self.links.end_delays(self.config.uplinks, now_s)
        return self.reconcile(now_s)

    def _ask_for_frame(self, now_s: float) -> Commands:
        """Have a frame sent that reaches an uplink which has to receive one before it returns."""
        self.links.asked(now_s)
        if not self.announces:
            return []
        # Of one network, a broadcast by another uplink reaches this one as well.
        return self.announcer.announce_once(self.announcer.carried_by(set(sorted(self.bound)[:1])))

    def _poll(self, now_s: float) -> Commands:
        behind, interval_s = bool(self.address_units.by_name), self.config.poll_interval_s
        poll = self.polling.poll(self.config.name, interval_s, self.hashed, behind, now_s)
        return [poll] if poll else []

    def _end_pause(self, now_s: float) -> Commands:
        self.installation.end_pause()
        return self.reconcile(now_s)

    def _audit(self, now_s: float) -> Commands:
        self.installation.audit_later(now_s)
        return [events.ReadInstalled(self.config.name)]
