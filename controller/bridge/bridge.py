"""One attached bridge: what happens to it, what is decided, and what it says of itself.

All of it is state and pure functions of state: no I/O, no clock. Methods take `now_s`
and return the commands to carry out.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.api.events import (
    Apply,
    BundleDone,
    Command,
    ForgetForwarding,
    ForwardingRead,
    InboundRead,
    InstalledRead,
    LearnedRead,
    Observe,
    PortFlagsSet,
    PortState,
    PortStatsRead,
    Prepare,
    ReadForwarding,
    ReadInbound,
    ReadInstalled,
    ReadLearned,
    Record,
    Renew,
    Reply,
    Report,
    Shaped,
    UnitCountersRead,
    Write,
)
from controller.api.history import Happened, Moved
from controller.bridge import addresses, desired
from controller.bridge.addresses import Addresses
from controller.bridge.announcing import Announced, Announcing, beneath
from controller.bridge.flooding import Flooding
from controller.bridge.following import Following
from controller.bridge.installation import Bundle, Installation
from controller.config.values import BridgeConfig
from controller.dataplane import pipeline, specs
from controller.dataplane.team import Team
from controller.decisions.chronicle import Chronicle, told
from controller.decisions.deciding import Deciding
from controller.decisions.evidence import Evidence
from controller.decisions.settling import Settling
from controller.load.filling import READ_EVERY_S
from controller.load.judging import Judged
from controller.load.loads import Loads
from controller.load.polling import Polling
from controller.load.rates import BEAT_READING_S
from controller.teaming import bindings, buckets, splits
from controller.teaming.bindings import Bindings, Bound
from controller.teaming.buckets import hashed_by
from controller.teaming.links import Links
from controller.teaming.shaping import ShapedTeam, Shaping, is_asked_for
from controller.teaming.stations import Station, Stations
from policies import rules
from policies.model import Load, Move, Reason, Role, Unit, Uplink
from policies.presets import PRESETS
from policies.rules import Rule

Commands = list[Command]

# Frames for a VM keep coming by the member it was moved from until the upstream switch has
# carried the learning packet into its flow cache: at once, or after the second one (1 s).
GATHERED_AFTER_S = 1.2
# How often what is installed is read back, to repair what somebody else removed.
AUDIT_INTERVAL_S = 10.0
# A VM has spoken by then, as a rule, and ovs-vswitchd could restart, which forgets what was learned.
NEW_VM_AUDIT_S = 2.0
RETRY_INTERVAL_S = 1.0
# For so long counters are read often to see whether a port is counted late: some beats.
UNSURE_S = 2.5
# How often it is read what the switch has learned, while an address is missing that a VM port is
# told by in uplinks' queues, and where addresses are units of their own. A VM that comes leaves by
# its port's home until then, and what is left of one that went is in nobody's way.
LEARNED_INTERVAL_S = 2.0


@dataclass(slots=True)
class Bridge:
    """The state of one bridge.

    `candidate`: an operator asked to attach or detach it; it is read and nothing more.
    `enabled` False: it is given back, and nothing of ours shall stay on it. `read` is
    everything that was read when what is installed was, others' flows and groups too.
    `bindings` are those that policies see. `held`, where there are any, are the ones in force
    instead: on plain uplinks that are observed, as `bindings` are virtual then, and on a
    bond whose VM ports gather on one member before NORMAL takes over (`gathered_s`: when
    they have; None: they do not). `config` is marked with the VM ports that are split, as
    policies see it; `split_in_force`: those that the switch spreads, where that is not so.
    """

    config: BridgeConfig
    enabled: bool = True
    candidate: bool = False
    read: InstalledRead | None = None
    addresses: Addresses = field(default_factory=Addresses)
    links: Links = field(default_factory=Links)
    loads: Loads = field(default_factory=Loads)
    stations: Stations = field(default_factory=Stations)
    bindings: Bindings = field(default_factory=Bindings)
    held: Bindings | None = None
    split_in_force: frozenset[str] = frozenset()
    gathered_s: float | None = None
    installation: Installation = field(default_factory=Installation)
    planned: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    deciding: Deciding = field(default_factory=Deciding)
    chronicle: Chronicle = field(default_factory=Chronicle)
    shaping: Shaping = field(default_factory=Shaping)
    flooding: Flooding = field(default_factory=Flooding)
    # How often VM ports were announced again, as inbound did not follow, and in vain.
    reannounced: int = 0
    not_followed: int = 0
    _announcing: Announcing = field(default_factory=Announcing)
    # A reading of what was learned is under way that will tell of after the bundle.
    _read_ahead: bool = False
    _following: Following = field(default_factory=Following)
    _settling: Settling = field(default_factory=Settling)
    # Frames for NORMAL, once it has taken over.
    _introductions: Commands = field(default_factory=list)
    # To be announced when it is known whether LACP is negotiated.
    _unsaid: frozenset[Announced] = frozenset()
    # The buckets' homes, as the switch had them when it was read first.
    _found: dict[str, str] = field(default_factory=dict)
    epoch_s: float = 0.0
    # Splits and merges that are told with the next bundle.
    _resplit: list[Move] = field(default_factory=list)
    _polling: Polling = field(default_factory=Polling)
    _audit_due_s: float = 0.0
    _awaits_forwarding: bool = False
    _addresses_known: bool = False
    _learned_due_s: float = 0.0
    # Since when it is not known of a port that counts whether it is counted late.
    _unsure_s: float | None = None
    # The team that was desired last, and its pipeline: a reading after another finds the same one.
    _built: tuple[Team, specs.Pipeline] | None = None

    # ---- what happens to it ------------------------------------------------------------

    def configure(self, config: BridgeConfig, now_s: float) -> Commands:
        """Take a new configuration; the switch follows where it differs."""
        config = config.in_force(self.links.lacp_known(config.uplinks))
        config = self._with_splits(config, now_s)
        old, self.config = self.config, config
        self.links.follow_team(old.uplinks, config.uplinks)
        self.addresses.keep(config.vm_ports)
        self.stations.keep(config)
        if {port.name for port in config.vm_ports} - {port.name for port in old.vm_ports}:
            self._audit_due_s = min(self._audit_due_s, now_s + NEW_VM_AUDIT_S)
        commands = _errors_reported(old, config)
        if config.fallen_back and not old.fallen_back:
            commands += self._fall_back()
        self._place_anew(old)
        if old.fallen_back and not config.fallen_back:
            commands += self._end_fallback()
        if old.mode != config.mode:
            # Loads from before are not those of the bindings that are judged from here on.
            self.deciding.begin_windows(now_s)
            commands += self._leave_to_normal(now_s)
            commands += self._learn_from_normal()
        commands += self.settle(now_s)
        if config.fallen_back and not old.fallen_back and self._any_up:
            commands += self._announce_all(now_s)
        return commands

    def _fall_back(self) -> Commands:
        """LACP is not negotiated: to the switch upstream, members are ports of their own."""
        asked = self.config.asked.vm_ports
        self.bindings.set_aside({port.name: port.binding for port in asked if port.binding})
        return [Report("warning", f"{self.config.name}: LACP is not negotiated -> one uplink")]

    def _end_fallback(self) -> Commands:
        """Members are one link again; only what nobody could be told before is announced by it."""
        self.bindings.take_up()
        self._announcing.forget()
        return [Report("info", f"{self.config.name}: LACP is negotiated")]

    @property
    def _any_up(self) -> bool:
        return any(map(self.links.up, self.config.uplinks))

    @property
    def _lacp_in_doubt(self) -> bool:
        """Whether a member is up and was said to hear its partner, maybe too long ago."""
        config = self.config
        current = (u for u in config.uplinks if u.name in config.lacp_current)
        return config.fallen_back and any(map(self.links.up, current))

    def _place_anew(self, old: BridgeConfig) -> None:
        """Forget units that are gone, and the homes that another policy or team asks for.

        A policy that keeps bindings takes VM ports over where they are.
        """
        self._keep_units()
        if other_team := _placed_anew(old.asked, self.config.asked):
            self._found.clear()
        before = {port.name: port.policy for port in old.asked.vm_ports}
        for port in self.config.asked.vm_ports:
            anew = other_team or before.get(port.name) != port.policy
            if anew and not PRESETS[port.policy].keeps_bindings:
                behind = [s.name for s in self.stations.by_name.values() if s.port == port.name]
                for name in (port.name, *behind):
                    self.bindings.place_anew(name)
                    self.stations.found.pop(name, None)

    def _keep_units(self) -> None:
        """Forget units that are gone."""
        units = self.units()
        names = {unit.name for unit in units}
        self.deciding.keep(names)
        self._following.keep({int(port.ofport) for port in self.config.vm_ports})
        self.bindings.keep(names)
        if self.held is not None:
            self.held.keep(unit.name for unit in self._units_in_force)

    def connect(self, ports: Iterable[PortState], now_s: float) -> Commands:
        self._forget_switch()
        for port in self.config.vm_ports:
            before = (replace(move, at_s=move.at_s - self.epoch_s) for move in port.moved)
            self.deciding.damping.restore(port.name, before, now_s)
        self.shaping.look_again()
        self.links.connect(ports, self.config.uplinks, self.config.failback_delay_s, now_s)
        self._polling.begin(now_s)
        self._audit_due_s = now_s + AUDIT_INTERVAL_S
        self._count_anew(now_s)
        return [ReadInstalled(self.config.name)]

    def disconnect(self) -> Commands:
        """The switch goes on forwarding by what is installed; bindings stay."""
        self.links.connected = False
        self._forget_switch()
        return []

    def take_installed(self, read: InstalledRead, now_s: float) -> Commands:
        unknown_before = self.installed is None
        if not self.installation.take(read):
            return []
        if unknown_before:
            found = self.installed or specs.EMPTY
            needed = self.config.on_bond and (self._serves or found != specs.EMPTY)
            self.flooding.assume(found, needed)
            self._found |= buckets.installed(found, self.uplinks())
            self.stations.restore(found, self.config)
            if self.read is None:
                self._restore_splits(now_s)
        first_look, self.read = self.read is None, read
        if addresses.learns(self.installed or specs.EMPTY):
            return [*self.settle(now_s), ReadLearned(self.config.name)]
        unknown = self.config.on_bond or not self.addresses.by_port
        if self.candidate and not first_look:
            return []
        commands: Commands = []
        if self.candidate and self.config.on_bond:
            # Before anything is changed, see which ports have the flag already.
            commands += self.flooding.look(self.config.name, now_s)
        if self.enabled and unknown and not self._awaits_forwarding:
            # NORMAL knows where silent VMs are, and we do not; or of those that have come lately.
            return [*commands, *self._read_forwarding()]
        return [*commands, *self.settle(now_s)]

    def _learn_from_normal(self) -> Commands:
        """Before our pipeline takes NORMAL's place on a bond, ask what it has learned last."""
        takes_over = self._serves and self.config.on_bond and not self.installed_anything
        return self._read_forwarding() if takes_over and self.settled else []

    def _read_forwarding(self) -> Commands:
        self._awaits_forwarding = True
        return [ReadForwarding(self.config.name)]

    def take_forwarding(self, read: ForwardingRead, now_s: float) -> Commands:
        """Learn from NORMAL before its place is taken."""
        if not self._awaits_forwarding:
            return []
        self._awaits_forwarding = False
        follow = self.addresses.take if self.on_normal else self.addresses.add
        follow(read.addresses, self.config.vm_ports)
        self._addresses_known |= read.error is None
        return self.settle(now_s)

    def look_again(self) -> Commands:
        """Read what is installed as if for the first time."""
        self.installation.forget()
        return [ReadInstalled(self.config.name)] if self.connected else []

    def change_port(self, port: PortState, now_s: float) -> Commands:
        if port.ofport not in self.links.ports:
            self.flooding.came(port.ofport)
            self.shaping.look_again()
        was_cut_off, before = not self._any_up, self.links.ports.get(port.ofport)
        self.links.see(port, self.config.uplinks, self.config.failback_delay_s, now_s)
        if not port.up and before is not None and before.up:
            # One that comes or returns is reported as present first, as live a moment later.
            self.installation.pause(now_s)
        commands = self.settle(now_s)
        if was_cut_off and self._any_up:
            # The switches upstream may have forgotten all VMs meanwhile.
            commands += self._announce_all(now_s)
        return commands

    def remove_port(self, ofport: int, now_s: float) -> Commands:
        self.links.remove(ofport, self.config.uplinks, now_s)
        self.flooding.gone(ofport)
        self.loads.remove(ofport)
        return self.settle(now_s)

    def take_port_stats(self, read: PortStatsRead, now_s: float) -> Commands:
        """Decide where it is the last part of a poll."""
        uplinks = {uplink.ofport for uplink in self.config.uplinks}
        keep_s = self.judged.keep_s
        for port in read.ports:
            self.loads.take_port(port, port.ofport in uplinks, keep_s)
        if self._has_looked and not self._polling.with_behind:
            # Addresses behind it are counted by the same look.
            self._polling.read_all(now_s)
        return [] if self._polling.with_units else self._polled_all(now_s)

    def take_unit_counters(self, read: UnitCountersRead, now_s: float) -> Commands:
        """The last part of a poll: everything is known, so decide."""
        names = {s.slot: s.name for s in self.stations.by_name.values()} if read.stations else {}
        self.loads.take_units(read, names, self.judged.keep_s)
        if read.buckets:
            self.deciding.read_buckets(now_s)
        return self._polled_all(now_s)

    def _polled_all(self, now_s: float) -> Commands:
        self._polling.forget()
        commands = [*self._decide(now_s), *self._settled_down(now_s)]
        if self.deciding.filling.reads_fast(now_s):
            self._polling.hasten(now_s + READ_EVERY_S)
        elif self._is_unsure(now_s):
            self._polling.hasten(now_s + BEAT_READING_S / 2)
        return commands

    @property
    def _has_looked(self) -> bool:
        """Whether what is counted late behind VM ports has just been counted, and is waited for."""
        if not any(PRESETS[policy].at_once for policy in self.judged.policies):
            return False
        parted = (port.ofport for port in self.config.vm_ports if port.parted)
        return any(map(self.loads.has_looked, parted))

    def _is_unsure(self, now_s: float) -> bool:
        """Whether counters are to be read often for a moment, to see how they behave."""
        if self.config.poll_interval_s <= BEAT_READING_S:
            return False
        if not self.loads.unsure(port.ofport for port in self.config.vm_ports):
            self._unsure_s = None
            return False
        if self._unsure_s is None:
            self._unsure_s = now_s
        return now_s - self._unsure_s < UNSURE_S

    def _settled_down(self, now_s: float) -> Commands:
        """Tell how long policies took, once all of them have looked again and moved nothing."""
        if self._settling.at_rest:
            return []
        judged = self.judged
        policies = judged.rebalancing
        window_s = max(map(judged.window_s, policies), default=0.0)
        paused = any(self.deciding.pauses(p, judged, now_s) for p in policies)
        paused = paused or self.deciding.looks_again
        if paused or not judged.covers(window_s) or not self.installation.settled:
            return []
        took_s = self._settling.rests()
        return [] if took_s is None else [Observe(self.config.name, "settling", took_s)]

    def take_inbound(self, read: InboundRead, now_s: float) -> Commands:
        """What has moved is announced again where inbound does not follow."""
        seen, name = self._following.take(read.counted, now_s), self.config.name
        commands: Commands = [Observe(name, "inbound_follow", s) for _, s in seen.followed]
        uplinks = {int(uplink.ofport): uplink.name for uplink in self.config.uplinks}
        for port, others in seen.astray:
            home = self.bound[port].uplink if port in self.bound else "-"
            found = ", ".join(uplinks.get(number, str(number)) for number in others)
            text = f"inbound of {port}: by {found}, announced again and again -> by {home}"
            commands.append(Report("warning", f"{name}: {text}"))
        self.not_followed += len(seen.astray)
        if seen.again:
            self.reannounced += len(seen.again)
            self._announcing.plan_once(frozenset[Announced](seen.again))
            commands.append(ReadLearned(name))
        return commands

    def take_learned(self, read: LearnedRead, now_s: float) -> Commands:
        """Remember the addresses; send the frames that a move called for.

        And those for VM ports whose frames NORMAL has carried until now.
        """
        commands: Commands = []
        if self.installation.settled and self._polled:
            self.addresses.take(read.addresses, self.config.vm_ports)
            self._addresses_known = True
            up = {ofport: port.up for ofport, port in self.links.ports.items()}
            flows = self.addresses.renewals(self.config.vm_ports, up, now_s)
            if flows:
                commands.append(Renew(self.config.name, flows))
            commands += self._follow_addresses(read, now_s)
        elif not self.installation.settled:
            # What it tells is of before the bundle.
            self._read_ahead = False
        adopted = beneath(read, self.config)
        if not self.flooding.changing:
            adopted -= set(read.addresses)
        apart = self.stations.located(self.config)
        told = self._announcing.take(read, self.config, adopted, now_s, apart)
        if self.on_normal and self.installed_anything:
            # On a LAG nothing is to leave, and NORMAL would flood what it has not learned yet.
            self._introductions += [] if self.config.on_a_lag else told
        else:
            commands += told
        if self.flooding.changing:
            self.flooding.settle()
            commands += self.settle(now_s)
        return [*commands, *self._shape(now_s)]

    def take_shaped(self, event: Shaped, now_s: float) -> Commands:
        """Uplinks' devices queue as they were asked to, or do not."""
        name, reports = self.config.name, self.shaping.take(event, now_s)
        said = [Report("warning", f"{name}: {text}") for text in reports]
        return [*said, *self._shape(now_s)]

    def _follow_addresses(self, read: LearnedRead, now_s: float) -> Commands:
        """Addresses that are units of their own have come or gone."""
        if not addresses.learns(self.installed or specs.EMPTY):
            return []
        changed = self.stations.take(read, self.config, now_s)
        if not changed:
            return []
        self.loads.forget_stations(changed)
        self._keep_units()
        return self.settle(now_s)

    def take_port_flags(self, event: PortFlagsSet, now_s: float) -> Commands:
        """The switch floods by itself where our pipeline does not deliver, or will not."""
        if not self.flooding.expects(event):
            return []
        reported = self.flooding.error
        if self.flooding.answer(event, now_s):
            return [ReadLearned(self.config.name)]
        commands: Commands = []
        if event.error not in (None, reported):
            text = f"{self.config.name}: VM ports' flag no-flood: {event.error}"
            commands.append(Report("warning", text))
        if event.error is not None and not self._serves:
            # Rather give the bridge back with a flag too many than not at all.
            self.flooding.give_up()
        self.flooding.settle()
        return [*commands, *self.settle(now_s)]

    def finish_bundle(self, done: BundleDone, now_s: float) -> Commands:
        learned_before = addresses.learns(self.installed or specs.EMPTY)
        bundle = self.installation.finish(done, now_s)
        if bundle is None:
            return []
        if done.error is not None:
            self._read_ahead = False
            return self._bundle_refused(bundle, done.error, now_s)
        commands: Commands = list(bundle.waiting)
        if any(move.is_resplit for move in bundle.moves):
            self._count_anew(now_s)
        if self.config.on_bond and not learned_before and addresses.learns(bundle.installs):
            # When a member fails, the bond announces by another one whatever NORMAL has
            # learned; that would come back to us as the word that our VMs have moved away.
            commands.append(ForgetForwarding(self.config.name))
        for move in bundle.moves:
            self.applied[move.reason] += 1
            if move.reason.by_load:
                self._settling.made(now_s)
        commands += self._said(bundle.moves)
        commands += self.chronicle.moved(self.judged, bundle.moves, now_s)
        if not self.installed_anything:
            commands += self._introductions
            self._introductions = []
            if self.on_normal:
                # Nobody counts them there.
                self.stations.forget()
                self._keep_units()
        moves = [move for move in bundle.moves if not move.is_resplit]
        self._watch_inbound(moves, now_s)
        commands += self._announce_moves(self._seen_upstream(moves), now_s)
        self._read_ahead = False
        commands += self._remember_bindings({move.unit for move in moves})
        return [*commands, *self.settle(now_s)]

    def tick(self, now_s: float) -> Commands:
        """Do what is due."""
        commands: Commands = []
        if self.gathered_s is not None and now_s >= self.gathered_s and self.observing:
            self.gathered_s = None
            commands += self._introduce_to_normal()
            commands += self.settle(now_s)
        commands += self.chronicle.outcome(self.judged, now_s)
        if self.links.end_delays(self.config.uplinks, now_s) or now_s >= self._returns_s:
            commands += self.settle(now_s)
        if now_s >= self.shaping.deadline_s():
            commands += self._shape(now_s)
        if not self.connected:
            return commands
        if now_s >= self._polling.due_s and self._polled:
            commands += self._poll(now_s)
        if self.installation.resume(now_s):
            commands += self._reconcile(now_s)
        if now_s >= self._audit_due_s:
            self._audit_due_s = now_s + AUDIT_INTERVAL_S
            commands.append(ReadInstalled(self.config.name))
        if self._announcing.due(now_s) or now_s >= self._addresses_due_s:
            self._learned_due_s = now_s + LEARNED_INTERVAL_S
            if not self._read_ahead:
                commands.append(ReadLearned(self.config.name))
        if ofports := self._following.due(now_s):
            commands.append(ReadInbound(self.config.name, ofports))
        return commands

    @property
    def _follows_addresses(self) -> bool:
        """Whether addresses are units of their own, and the switch has learned some."""
        split = any(port.parted for port in self.config.vm_ports)
        return split and self._polled and self.installed_anything

    def deadline_s(self) -> float:
        """When `tick` next has something to do; infinity when nothing is waiting."""
        times = [self.links.deadline_s(), self._returns_s, self.chronicle.deadline_s()]
        if self.gathered_s is not None and self.observing:
            times.append(self.gathered_s)
        if self.connected:
            times += [self._audit_due_s, self._announcing.deadline_s()]
            times.append(self._following.deadline_s())
            times += [self._addresses_due_s, self.shaping.deadline_s()]
            times.append(self.installation.deadline_s())
            if self._polled:
                times.append(self._polling.due_s)
        return min(times)

    @property
    def connected(self) -> bool:
        return self.links.connected

    @property
    def bound(self) -> Mapping[str, Bound]:
        """Where each VM port is, by name."""
        bound = self.in_force.bound
        return {p.name: bound[p.name] for p in self.config.vm_ports if p.name in bound}

    @property
    def at_rest(self) -> bool:
        """Whether the switch has all that is desired, and nothing is left to announce."""
        return self.settled and self._announcing.idle and self.installed == self.desired()

    @property
    def _returns_s(self) -> float:
        """When the next VM ports return to a better uplink."""
        held_s = self.held.deadline_s() if self.held is not None else float("inf")
        return min(self.bindings.deadline_s(), held_s)

    @property
    def installed(self) -> specs.Pipeline | None:
        return self.installation.installed

    @property
    def settled(self) -> bool:
        """Whether the switch has what it should have from us, as far as we know."""
        return self.connected and self.installation.settled and not self.flooding.changing

    @property
    def installed_anything(self) -> bool:
        return self.installation.has_anything

    @property
    def _polled(self) -> bool:
        return self.enabled and not self.candidate

    @property
    def known(self) -> bool:
        """Whether everything there is to know of the switch before a change was read."""
        return self.settled and not self._awaits_forwarding

    @property
    def awaited(self) -> str:
        """What keeps it from being settled: what was found -> who has to do something."""
        if self.connected and self._awaits_forwarding:
            return ", as fdb/show was not answered -> an ovs-vswitchd that answers"
        if self.connected and self.flooding.error is not None:
            return f", as VM ports' flag no-flood: {self.flooding.error}"
        return " -> a switch that answers"

    # ---- bindings ----------------------------------------------------------------------

    def move(self, unit: str, target: str, reply: Reply, now_s: float) -> Commands:
        """Make `target` a VM port's home, and answer once the switch has followed.

        So that of the addresses behind it, where these are units of their own; but not of those
        that are silent, as nobody could be told.
        """
        silent = self.stations.silent_s
        units = [u for u in self.units() if unit in (u.name, u.behind)]
        carriers = {u.name: u.allowed for u in units if u.name not in silent}
        bound = self.in_force.bound
        moves = [
            Move(name, bound[name].uplink if name in bound else "", target, Reason.MANUAL)
            for name, allowed in carriers.items()
            if allowed is None or target in allowed
        ]
        return self.make(moves, reply, now_s)

    def make(
        self, moves: Iterable[Move], reply: Reply, now_s: float, evidence: Evidence | None = None
    ) -> Commands:
        """Make moves that an operator wants, and answer once the switch has followed.

        `evidence`: by which they were chosen, if it was by loads.
        """
        self.chronicle.evidence = evidence
        self._carry_out(moves, now_s)
        self.installation.wait(reply)
        return self.settle(now_s)

    def gather(self, now_s: float) -> bool:
        """Begin to bind every unit to one member, where NORMAL needs that before it takes over.

        It takes nothing from the members that back up an active-backup bond, so what is under
        way to a VM by one of them would be lost. Policies and pins wait; False: any will do.
        """
        member = self.config.active_member
        if member is None or not self.connected or not self.installed_anything:
            return False
        if all(bound.uplink == member for bound in self.in_force.bound.values()):
            return False
        self.gathered_s = now_s + GATHERED_AFTER_S
        self.held = self.in_force.hold()
        for name in self.held.bound:
            self.held.place(name, member, Reason.MANUAL)
        self.chronicle.because = f"NORMAL takes over by {member}, as an operator wants"
        return True

    def foreseen(self, now_s: float) -> Commands:
        """What a candidate would have to send at once, prepared."""
        ahead = copy.deepcopy(self)
        ahead.candidate = False
        return [Prepare(c) for c in ahead.settle(now_s) if isinstance(c, Apply)]

    def give_back(self, now_s: float) -> Commands:
        """Take everything of ours off the switch."""
        self.enabled = self.candidate = False
        self.gathered_s = None
        return self.settle(now_s)

    def settle(self, now_s: float) -> Commands:
        """Bring bindings in line with homes and links, and the switch in line with bindings."""
        if self.candidate:
            return []
        if not self.enabled:
            return [*self._shape(now_s), *self._reconcile(now_s)]
        in_force = self.config.in_force(self.links.lacp_known(self.config.uplinks))
        if in_force.fallen_back is not self.config.fallen_back:
            return self.configure(in_force, now_s)
        if self._unsaid and not self._lacp_in_doubt:
            unsaid, self._unsaid = self._unsaid, frozenset()
            return [*self._announce(unsaid, now_s), *self.settle(now_s)]
        silent = {uplink.name: self.links.silent(uplink) for uplink in self.config.uplinks}
        commands: Commands = [
            record
            for uplink, up in self.links.take_changes()
            for record in self.chronicle.linked(
                self.judged, uplink, up, silent.get(uplink, ()), now_s
            )
        ]
        self._hold_or_release(now_s)
        team = (self.units(), self.uplinks(), now_s)
        moves = [*self._resplit, *self.bindings.follow(*team)]
        self._resplit = []
        self.planned.update(move.reason.value for move in moves)
        if moves:
            policies = {unit.name: unit.policy for unit in team[0]}
            self.deciding.note(moves, policies, now_s)
        if not self.observing:
            self.installation.expect(moves)
        else:
            commands += self._said(moves, ", not made")
            commands += self.chronicle.planned(self.judged, moves, now_s)
        if self.held is not None:
            self.installation.expect(self.held.follow(self._units_in_force, *team[1:]))
        if self.gathered_s is None:
            commands += self._judge_rules(now_s)
        return [*commands, *self._reconcile(now_s), *self._shape(now_s)]

    @property
    def rules(self) -> Mapping[str, Mapping[Rule, str]]:
        """What is wrong with each rule of each VM port, by name; an empty text: nothing."""
        bound = self.bound
        ruled = [unit for unit in self.units() if unit.rules.whole or unit.rules.reserve_bps]
        at = {unit.name: bound[unit.name].uplink for unit in ruled if unit.name in bound}
        there = (replace(unit, uplink=at.get(unit.name)) for unit in ruled)
        return rules.found(there, self.uplinks() if ruled else ())

    def _judge_rules(self, now_s: float) -> Commands:
        """Tell which rules have come to be broken, and which are kept again."""
        ports = self.config.vm_ports
        if not self.chronicle.broken and not any(
            p.rules.whole or p.rules.reserve_bps for p in ports
        ):
            return []
        told = [*self.chronicle.rules(self.judged, rules.broken(self.rules), now_s)]
        name = self.config.name
        said: Commands = [
            Report("warning", f"{name}: rule broken: {record.entry.why}")
            if record.entry.happened is Happened.RULE_BROKEN
            else Report("info", f"{name}: rule kept: {record.entry.why}")
            for record in told
        ]
        return [*told, *said]

    def rests(self, now_s: float) -> Mapping[str, tuple[float, bool]]:
        """Until when units are not moved because of load, by name, and whether for their budget."""
        return self.deciding.rests(self.judged, now_s)

    @property
    def observing(self) -> bool:
        return self.config.mode == "observe"

    @property
    def on_normal(self) -> bool:
        """Whether nothing of ours is on the switch, as it observes a bond."""
        return self.observing and self.config.on_bond and self.gathered_s is None

    @property
    def in_force(self) -> Bindings:
        """The bindings that the switch follows; on NORMAL, where VM ports would be."""
        return self.held or self.bindings

    def _hold_or_release(self, now_s: float) -> None:
        """Observing plain uplinks, the bindings in force stay, and others are planned."""
        observed = self.observing and not self.config.on_bond
        leaving = self.on_normal and self.installed_anything
        holds = observed or self.gathered_s is not None or (leaving and self.held is not None)
        if holds and self.held is None:
            self.held = self.bindings.hold()
        elif not holds and self.held is not None:
            if not self.on_normal:
                virtual = not self.config.on_bond
                homes = self.held.homes if virtual else self.bindings.homes
                keeps = {u.name for u in self.units() if PRESETS[u.policy].keeps_bindings}
                homes = {name: home for name, home in homes.items() if name in keeps}
                self.bindings = Bindings(homes, dict(self.held.bound))
                if virtual:
                    self.deciding.splits.hold(self.split_in_force, now_s)
                    self.config = splits.marked(self.config, self.deciding.splits.names)
            self.held = None
        if self.held is None:
            self.split_in_force = self.deciding.splits.names

    def _leave_to_normal(self, now_s: float) -> Commands:
        """Going back to NORMAL, VM ports gather first, on a bond that needs it."""
        self.gathered_s = None
        if not self.on_normal or not self.connected or not self.installed_anything:
            return []
        return [] if self.gather(now_s) else self._introduce_to_normal()

    def _introduce_to_normal(self) -> Commands:
        """Ask for what was learned, before it is gone, to tell NORMAL and the switches upstream."""
        self._announcing.plan_once(self._everything)
        return [ReadLearned(self.config.name)] if self.connected else []

    @property
    def judged(self) -> Judged:
        """The team with the bindings that policies see."""
        bound = self.bindings.bound
        state = (self.config, self.links, self.loads, bound, self._found, self.on_normal)
        of = self.deciding
        return Judged(*state, self.stations, of.resting, of.peaks, of.ripe, of.late_known)

    def uplinks(self) -> tuple[Uplink, ...]:
        """The team with its latest loads."""
        return self.judged.uplinks()

    def units(self) -> tuple[Unit, ...]:
        """VM ports, addresses behind them, and buckets, as far as is known."""
        return self.judged.units()

    @property
    def _config_in_force(self) -> BridgeConfig:
        """With the VM ports split that the switch spreads."""
        return splits.marked(self.config, self.split_in_force)

    @property
    def _units_in_force(self) -> tuple[Unit, ...]:
        return replace(self.judged, config=self._config_in_force).units()

    def desired(self) -> specs.Pipeline:
        """The pipeline for the bindings in force; empty where the bridge stays on NORMAL.

        It is taken away when NORMAL floods to all ports again.
        """
        leaves = not self._serves
        if leaves and (not self.installed_anything or self.flooding.given_back(self.config)):
            return specs.EMPTY
        if not self.config.uplinks:
            return specs.EMPTY
        uplinks = self.uplinks()
        no_flood = self.flooding.ports if self._serves else None

        def order(unit: Unit) -> tuple[Uplink, ...]:
            return self.in_force.order(unit, uplinks)

        team = desired.team(
            self._config_in_force,
            self._units_in_force,
            order,
            self.in_force.homes,
            no_flood or frozenset(),
            self.stations.by_name.values(),
        )
        built = self._built[1] if self._built and self._built[0] == team else pipeline.build(team)
        # What was read is shared with other bridges, and compared with itself in no time.
        if self.installed is not None and self.installed == built:
            built = self.installed
        self._built = team, built
        return built

    @property
    def _serves(self) -> bool:
        """Whether the bridge forwards by our pipeline, rather than by NORMAL over its bond."""
        return self.enabled and not self.on_normal and bool(self.config.uplinks)

    def _decide(self, now_s: float) -> Commands:
        """Ask each policy, and do what it says."""
        self.deciding.begin(now_s)
        judged, relieved = self.judged, set[str]()
        for wanted in self.deciding.wanted(judged, now_s, self._polling.is_extra):
            if wanted.moves:
                self._settling.moves(now_s)
                self.chronicle.evidence = wanted.evidence
            self._carry_out(wanted.moves, now_s)
            relieved |= {move.source for move in wanted.moves}
        commands: Commands = [
            *self._judge_saturation(self.judged if relieved else judged, relieved, now_s)
        ]
        return [*commands, *self.settle(now_s)] if relieved else commands

    def _count_anew(self, now_s: float) -> None:
        """What buckets have counted so far was of others' frames, or is not known."""
        self._polling.read_buckets_at(self.deciding.count_anew(now_s))

    # ---- splits ------------------------------------------------------------------------

    def _carry_out(self, moves: Iterable[Move], now_s: float) -> None:
        """Make homes of targets, and split and merge; `settle` follows."""
        moves = list(moves)
        for move in moves:
            if not move.is_resplit:
                self.bindings.place(move.unit, move.target, move.reason)
        resplit = [move for move in moves if move.is_resplit]
        policies = {port.name: port.policy for port in self.config.vm_ports}
        for move in resplit:
            policy, in_use = policies[move.unit], buckets.in_use(self.config)
            if move.reason is Reason.MERGE:
                self.deciding.splits.merge(move.unit)
            else:
                self.deciding.splits.split(move.unit, now_s)
                if policy not in in_use:
                    homes = buckets.by_shares(policy, move.shares)
                    self.bindings.homes |= homes
        if resplit:
            self._resplit += resplit
            self._count_anew(now_s)
            named = {move.unit for move in resplit}
            self.deciding.peaks.drop(u.name for u in self.units() if u.is_bucket or u.name in named)
            self.config = splits.marked(self.config, self.deciding.splits.names)
            self._keep_units()

    def _with_splits(self, config: BridgeConfig, now_s: float) -> BridgeConfig:
        """A configuration with the splits that it allows; the others end."""
        if not config.fallen_back and self.deciding.splits.since_s:
            ended = self.deciding.splits.keep(config)
            bound = self.bindings.bound
            self._resplit += [
                Move(name, bound[name].uplink, bound[name].uplink, Reason.MERGE)
                for name in ended
                if name in bound
            ]
            if self.held is not None:
                self.split_in_force = frozenset(
                    port.name
                    for port in config.vm_ports
                    if port.name in self.split_in_force and splits.may_split(port, config)
                )
        return splits.marked(config, self.deciding.splits.names)

    def _restore_splits(self, now_s: float) -> None:
        """As the switch has it when it is read first."""
        for name in splits.installed(self.installed or specs.EMPTY, self.config):
            self.deciding.splits.split(name, now_s)
        self.config = splits.marked(self.config, self.deciding.splits.names)
        self.split_in_force = self.deciding.splits.names

    def quiet_until_s(self, steady_s: float, now_s: float) -> float:
        """Until when nothing is decided, if loads are what they have been since `steady_s`.

        `now_s`: something may be at once; infinity: nothing will.
        """
        if not self.settled:
            return now_s
        return self.deciding.quiet_until_s(self.judged, steady_s, now_s)

    @property
    def polled_s(self) -> float:
        """When the last poll was due, whatever was read between polls."""
        return self._polling.poll_due_s - self.config.poll_interval_s

    @property
    def reading_s(self) -> float:
        """From when on a poll reads more than the counters of ports."""
        buckets_too = self.hashed or bool(self.stations.by_name)
        return self._polling.reading_s(self.config.poll_interval_s, buckets_too)

    @property
    def hashed(self) -> bool:
        """Whether a policy that moves something because of load moves buckets."""
        in_use = buckets.in_use(self.config)
        return bool(in_use) and not set(self.judged.rebalancing).isdisjoint(in_use)

    def is_calm(self, loads: Mapping[str, Load]) -> bool:
        """Whether nothing is moved while uplinks carry that, or a mean of several such loads.

        Whatever the units' parts of them are.
        """
        judged = self.judged
        uplinks = tuple(replace(uplink, load=loads[uplink.name]) for uplink in judged.uplinks())
        return all(judged.is_calm(policy, uplinks) for policy in judged.rebalancing)

    def _judge_saturation(self, judged: Judged, relieved: set[str], now_s: float) -> list[Record]:
        """Note which uplinks stay above the threshold, once loads are of the bindings in force."""
        window_s = judged.longest_window_s
        pauses = any(self.deciding.pauses(p, judged, now_s) for p in judged.policies)
        if pauses or not judged.covers(window_s):
            return []
        return self.chronicle.saturation(judged, window_s, relieved, now_s)

    # ---- uplinks' queues ---------------------------------------------------------------

    @property
    def shaped_team(self) -> ShapedTeam:
        """What VM ports are to get of uplinks."""
        judged = self.judged
        capacities_bps = {u.name: judged.known_capacity_bps(u) for u in self.config.uplinks}
        return ShapedTeam(
            self.config,
            {name: bps for name, bps in capacities_bps.items() if bps},
            {name: bound.uplink for name, bound in self.bound.items()},
            {n: [mac for mac, _ in known] for n, known in self.addresses.by_port.items()},
        )

    def _shape(self, now_s: float) -> Commands:
        """Have uplinks queue as VM ports' shares say; observing, as they do without us.

        Not before it is known which address is whose, or a service that starts would give
        away what VM ports have.
        """
        if self.candidate:
            return []
        serves = self._serves and not self.observing
        if not serves or not any(map(is_asked_for, self.config.vm_ports)):
            return [*self.shaping.ask(self.config, {}, now_s)]
        if not (self.connected and self._addresses_known):
            return []
        return [*self.shaping.ask(self.config, self.shaped_team.shapers(), now_s)]

    @property
    def _addresses_due_s(self) -> float:
        """When it is read what was learned, for the sake of units or queues; infinity: not at all."""
        if self._follows_addresses:
            return self._learned_due_s
        known = self.addresses.by_port
        asking = [port for port in self.config.vm_ports if is_asked_for(port)]
        missing = any(port.name not in known and not port.attached_macs for port in asking)
        waits = (
            (missing or (asking and not self._addresses_known))
            and self._serves
            and self._polled
            and self.settled
        )
        return self._learned_due_s if waits else math.inf

    # ---- the switch --------------------------------------------------------------------

    @property
    def _renumbered(self) -> bool:
        """Whether the switch has another port where the database (still) has one of ours.

        A restart may number ports anew, and the database follows after the connection. Flows
        for the old numbers could take an uplink for a VM port.
        """
        ours = {int(port.ofport): port.name for port in self.config.vm_ports}
        ours |= {int(uplink.ofport): uplink.name for uplink in self.config.uplinks}
        return self.links.names_another(ours)

    def _reconcile(self, now_s: float) -> Commands:
        """Send what differs."""
        if not self.connected or not self.installation.ready(now_s):
            return []
        if (self._awaits_forwarding and self.enabled) or self._renumbered:
            return []
        bundle = self.installation.next_bundle(self.desired(), self._seeds)
        if bundle is None:
            flags = self.flooding.follow(self.config, self._serves, now_s)
            return [*self._remember_bindings(), *flags]
        if not bundle.changes:
            return self.finish_bundle(BundleDone(self.config.name, bundle.bundle_id), now_s)
        text = f"{self.config.name}: {len(bundle.changes)} changes to flows and groups"
        apply = Apply(self.config.name, bundle.bundle_id, bundle.changes)
        # Of what moves it is known by then which addresses are to be announced.
        self._read_ahead = bool(self._seen_upstream(bundle.moves)) and self._announces
        ahead = [ReadLearned(self.config.name)] if self._read_ahead else []
        return [Report("debug", text), apply, *ahead]

    def _seeds(
        self, desired: specs.Pipeline, installed: specs.Pipeline
    ) -> tuple[specs.FlowSpec, ...]:
        """The learned flows that go with a bundle which brings the flows that learn."""
        return self.addresses.seeds(self.config.vm_ports, desired, installed)

    def _said(self, moves: Iterable[Move], more: str = "") -> Commands:
        """A line of the log for each VM port that moves, and each way that buckets go."""
        return [
            Report("info", f"{self.config.name}: {move}{more}") for move in told(self.judged, moves)
        ]

    def refuse(
        self, reason: Reason, why: str, now_s: float, moves: Iterable[Moved] = ()
    ) -> Commands:
        """Note that an operator wanted moves which are not made."""
        self.planned[reason.value] += 1
        self.refused[reason.value] += 1
        return [*self.chronicle.refused(self.judged, moves, why, now_s)]

    def _bundle_refused(self, bundle: Bundle, error: str, now_s: float) -> Commands:
        """Nothing of it was installed: say so, and start again from what the switch has."""
        self._audit_due_s = now_s + RETRY_INTERVAL_S
        later, waiters = self.installation.give_up()
        moves = [*bundle.moves, *later]
        self.refused.update(move.reason.value for move in moves)
        self.in_force.take_back([move for move in moves if not move.is_resplit], now_s)
        self._take_back_splits(moves, now_s)
        refusal = f"the switch refused the change: {error}"
        records = self.chronicle.refused(self.judged, told(self.judged, moves), refusal, now_s)
        waiting = [*bundle.waiting, *waiters]
        replies = [Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [Report("error", f"{self.config.name}: {refusal}"), *records, *replies]

    def _take_back_splits(self, moves: Iterable[Move], now_s: float) -> None:
        """The switch refused them."""
        for move in moves:
            if move.reason is Reason.SPLIT:
                self.deciding.splits.merge(move.unit)
            elif move.reason is Reason.MERGE:
                self.deciding.splits.split(move.unit, now_s)
        self.config = self._with_splits(self.config, now_s)

    def _seen_upstream(self, moves: Iterable[Move]) -> set[str]:
        """What switches upstream have to be told of, of what moves.

        A LAG is one link to them, but a VM may have come while there was none to say so by.
        """
        on_a_lag = self.config.on_a_lag
        return {m.unit for m in moves if not (m.is_resplit or (m.source and on_a_lag))}

    def _announce_moves(self, moved: set[str], now_s: float) -> Commands:
        """Learning packets for what has moved.

        That are VM ports, and those that may have an address in a bucket which moved: the switch
        alone knows which address is in which. What is under an address of ours needs none.
        """
        by_address = {u.policy for u in self.units() if u.is_bucket and u.name in moved}
        by_address = {p for p in by_address if PRESETS[p].classifier.by_address}
        ofports = {
            p.ofport for p in self.config.vm_ports if p.name in moved or hashed_by(p) in by_address
        }
        located = self.stations.located(self.config, moved)
        otherwise = self.stations.take_unsaid(
            self.installed or specs.EMPTY, self.config, self._is_at_home
        )
        if not self.config.on_a_lag:
            located |= otherwise
        return self._announce(frozenset[Announced](ofports | located), now_s)

    def _is_at_home(self, station: Station) -> bool:
        """Whether an address leaves by its VM port's home."""
        bound = self.in_force.bound
        uplinks = {bound[name].uplink for name in (station.name, station.port) if name in bound}
        return len(uplinks) < 2

    @property
    def _everything(self) -> frozenset[Announced]:
        """All VM ports, and the addresses that do not leave where these do."""
        ofports = {port.ofport for port in self.config.vm_ports}
        return frozenset[Announced](ofports | self.stations.located(self.config))

    def _announce_all(self, now_s: float) -> Commands:
        return self._announce(self._everything, now_s)

    def _announce(self, announced: frozenset[Announced], now_s: float) -> Commands:
        """Learning packets for VM ports or their addresses."""
        if not announced or not self._announces:
            return []
        if self._lacp_in_doubt:
            self._unsaid |= announced
            return []
        self._announcing.plan(announced, now_s)
        return self.tick(now_s)

    @property
    def _announces(self) -> bool:
        return self._polled and self._serves

    def _watch_inbound(self, moves: Iterable[Move], now_s: float) -> None:
        """See whether what comes for VM ports follows them.

        Where addresses leave by uplinks of their own, so does what comes for them; by which member
        of a LAG is the switch upstream's to say.
        """
        ports = {port.name: port for port in self.config.vm_ports}
        uplinks = {uplink.name: int(uplink.ofport) for uplink in self.config.uplinks}
        for move in moves if self._announces and not self.config.on_a_lag else ():
            port = ports.get(move.unit)
            if port is None or port.parted or not move.source or move.source == move.target:
                continue
            by = hashed_by(port)
            if move.target in uplinks and not (by and PRESETS[by].classifier.by_address):
                self._following.watch(port.name, int(port.ofport), uplinks[move.target], now_s)

    def _remember_bindings(self, moved: Collection[str] = ()) -> Commands:
        """Write bindings to the database, so that a restart moves nothing.

        And when VM ports have moved, where there is a budget of moves.
        """
        if not self._polled or self.config.fallen_back:
            return []
        known = {
            port.name: self.deciding.damping.remembered(port.name)
            for port in self.config.vm_ports
            if port.name in moved and PRESETS[port.policy].at_once
        }
        settings = bindings.remembered(self.config, self.bound, known, self.epoch_s)
        return [Write(settings)] if settings else []

    def _poll(self, now_s: float) -> Commands:
        hashed, behind = self.hashed, bool(self.stations.by_name)
        interval_s = self.config.poll_interval_s
        poll = self._polling.poll(self.config.name, interval_s, hashed, behind, now_s)
        return [poll] if poll else []

    def _forget_switch(self) -> None:
        self._introductions = []
        self.installation.forget()
        self._read_ahead = False
        self._following.forget()
        self.flooding.forget()
        self.loads.forget_rates()
        self.deciding.peaks.forget()
        self.deciding.phases.forget()
        self.deciding.filling.forget()
        self._awaits_forwarding = False
        self._polling.forget()


def _placed_anew(old: BridgeConfig, new: BridgeConfig) -> bool:
    """Whether VM ports have to be placed as if they were new.

    A drain is not the time: it moves the VM ports of one uplink, which return when it ends.
    """
    if _names(old) != _names(new):
        return True
    changed = [(o.role, n.role) for o, n in zip(old.uplinks, new.uplinks, strict=True)]
    return any(was is not now and Role.DRAINED not in (was, now) for was, now in changed)


def _names(config: BridgeConfig) -> list[str]:
    return [uplink.name for uplink in config.uplinks]


def _errors_reported(old: BridgeConfig, new: BridgeConfig) -> Commands:
    """One line for each value that has become bad."""
    return [Report("warning", str(error)) for error in new.errors if error not in old.errors]
