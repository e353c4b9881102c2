"""One attached bridge: its ports, loads, bindings, and what is installed on it.

All of it is state and pure functions of state: no I/O, no clock. Methods take `now_s`
and return the commands to carry out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller import frames, pipeline, reconcile
from controller.config import BridgeConfig, UplinkConfig, VmPortConfig
from controller.database import PREFIX
from controller.events import (
    Apply,
    BundleDone,
    Command,
    DeliverFrame,
    InstalledRead,
    LearnedRead,
    PortCounters,
    PortFlagsSet,
    PortState,
    PortStatsRead,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    Reply,
    Report,
    SendFrame,
    Setting,
    UnitCountersRead,
    Write,
)
from controller.flooding import Flooding
from controller.rates import UNSUPPORTED, Rates, Sample
from controller.status import BridgeStatus, PortStatus, UplinkStatus
from policies import failover, rules
from policies.model import Load, Move, OfPort, Reason, Role, Snapshot, Unit, Uplink
from policies.presets import PRESETS

Commands = list[Command]

# Assumed for an uplink of which nobody knows the speed.
UNKNOWN_CAPACITY_BPS = 1e9
# A learning packet can be overtaken by a megaflow that is not revalidated yet (about 1 s
# at worst), so it is repeated after that, and once more for switches that lost it.
ANNOUNCE_AFTER_S = (0.0, 1.0, 3.0)
# How often what is installed is read back, to repair what somebody else removed.
AUDIT_INTERVAL_S = 30.0
RETRY_INTERVAL_S = 1.0
# By then the switch has carried a change of groups or links into its flow cache: revalidation
# starts at once and takes some 20 µs for each cached flow. It may have to finish a round
# first, and the broadcasts a VM port misses meanwhile are few.
REVALIDATED_AFTER_S = 0.03
# Said of a binding that is what it was before, rather than the result of a move.
RESTORED = "restored"
STATS_TIMEOUT_S = 10.0
# Flow counters are half a second behind port counters at worst. Uplinks are judged by what
# was twice that ago, or a VM port would look smaller than its part of an uplink that is
# filling up, and one too big for any uplink would be moved.
UPLINK_LAG_S = 1.0


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding in force: the uplink, since when (engine time), and why."""

    uplink: str
    since_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class _Bundle:
    """A bundle under way: what the bridge has once it is committed, and who waits for it.

    `final`: that is all that was desired, rather than the first of two steps.
    """

    bundle_id: int
    installs: pipeline.Pipeline
    final: bool
    moves: tuple[Move, ...]
    waiting: tuple[Reply, ...]


@dataclass(slots=True)
class Bridge:
    """The state of one bridge.

    `candidate`: an operator asked to attach it; it is read and nothing more. `enabled`
    False: it is being detached, and nothing of ours shall stay on it.
    """

    config: BridgeConfig
    enabled: bool = True
    candidate: bool = False
    connected: bool = False
    ports: dict[int, PortState] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)
    installed: pipeline.Pipeline | None = None
    foreign_flows: int = 0
    planned: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    last_decision_s: float | None = None
    _usable_from_s: dict[str, float] = field(default_factory=dict)
    _port_rates: dict[int, Rates] = field(default_factory=dict)
    _unit_rates: dict[int, Rates] = field(default_factory=dict)
    _counters: dict[int, PortCounters] = field(default_factory=dict)
    _moving: list[Move] = field(default_factory=list)
    _waiting: list[Reply] = field(default_factory=list)
    _bundle: _Bundle | None = None
    _bundles: int = 0
    _announce: list[tuple[float, frozenset[int]]] = field(default_factory=list)
    _announcing: frozenset[int] = frozenset()
    _flooding: Flooding = field(default_factory=Flooding)
    _last_move_s: float | None = None
    _pause_until_s: float = 0.0
    _stats_due_s: float = 0.0
    _stats_asked_s: float | None = None
    _audit_due_s: float = 0.0

    # ---- what happens to it ------------------------------------------------------------

    def configure(self, config: BridgeConfig, now_s: float) -> Commands:
        """Take a new configuration; the switch follows where it differs."""
        old, self.config = self.config, config
        self._follow_team(old)
        present = {port.name for port in config.vm_ports}
        for name in [name for name in self.homes if name not in present]:
            del self.homes[name]
        for name in [name for name in self.bound if name not in present]:
            del self.bound[name]
        reason = Reason.PIN if _pins(old) != _pins(config) else Reason.REBALANCE
        placed_anew = old.policy != config.policy or _team(old) != _team(config)
        if placed_anew and not PRESETS[config.policy].keeps_bindings:
            self.homes.clear()
        return [*_errors_reported(old, config), *self.settle(now_s, reason)]

    def connect(self, ports: Iterable[PortState], now_s: float) -> Commands:
        self.connected = True
        self._forget_switch()
        self.ports = {}
        for port in ports:
            self._see_port(port, now_s)
        self._stats_due_s = now_s
        self._audit_due_s = now_s + AUDIT_INTERVAL_S
        return [ReadInstalled(self.config.name)]

    def disconnect(self) -> Commands:
        """The switch goes on forwarding by what is installed; bindings stay."""
        self.connected = False
        if self._bundle is not None:
            self._moving = [*self._bundle.moves, *self._moving]
            self._waiting = [*self._bundle.waiting, *self._waiting]
        self._forget_switch()
        return []

    def take_installed(self, read: InstalledRead, now_s: float) -> Commands:
        if self._bundle is not None:
            return []
        self.foreign_flows = read.foreign_flows
        found = pipeline.Pipeline(
            {flow.key: flow for flow in read.flows}, {g.group_id: g for g in read.groups}
        )
        if self.installed is None:
            self._assume_port_flags(found)
        self.installed = found
        return self.settle(now_s, Reason.REBALANCE)

    def change_port(self, port: PortState, now_s: float) -> Commands:
        if port.ofport not in self.ports:
            self._flooding.came(port.ofport)
        self._see_port(port, now_s)
        if not port.up:
            self._pause_until_s = now_s + REVALIDATED_AFTER_S
        return self.settle(now_s, Reason.FAILOVER)

    def remove_port(self, ofport: int, now_s: float) -> Commands:
        if port := self.ports.get(ofport):
            self._see_port(replace(port, up=False), now_s)
            del self.ports[ofport]
        self._flooding.gone(ofport)
        for kept in (self._port_rates, self._unit_rates, self._counters):
            kept.pop(ofport, None)
        return self.settle(now_s, Reason.FAILOVER)

    def take_port_stats(self, read: PortStatsRead) -> Commands:
        uplinks = {uplink.ofport for uplink in self.config.uplinks}
        for port in read.ports:
            self._counters[port.ofport] = port
            outwards = port.ofport in uplinks
            sample = Sample(
                port.clock_s,
                tx_bytes=port.tx_bytes if outwards else port.rx_bytes,
                rx_bytes=port.rx_bytes if outwards else port.tx_bytes,
            )
            self._rates_of(self._port_rates, port.ofport).add(sample)
        return []

    def take_unit_counters(self, read: UnitCountersRead, now_s: float) -> Commands:
        """The last part of a poll: everything is known, so decide."""
        self._stats_asked_s = None
        for ofport, sample in read.units:
            self._rates_of(self._unit_rates, ofport).add(sample)
        return self._decide(now_s)

    def take_learned(self, read: LearnedRead, now_s: float) -> Commands:
        """Send the learning packets and the queries that a move called for.

        And learning packets for a VM port whose frames NORMAL has carried until now. They
        teach our pipeline before it forgets what it has learned from an unknown port.
        """
        trunks = {p.ofport: p.access_vlan is None for p in self.config.vm_ports}
        addresses = {
            (ofport, mac, vlan if trunks[OfPort(ofport)] else 0)
            for ofport, mac, vlan in read.addresses
            if ofport in self._announcing and OfPort(ofport) in trunks
        }
        for port in self.config.vm_ports:
            if port.ofport in self._announcing and port.attached_mac:
                addresses.add((port.ofport, port.attached_mac, 0))
        adopted = {
            (ofport, mac, (vlan or 0) if trunks[OfPort(ofport)] else 0)
            for ofport, mac, vlan in read.beneath
            if OfPort(ofport) in trunks
        }
        if adopted and self.config.teaming == "switch-independent":
            ofports = frozenset(ofport for ofport, _, _ in adopted)
            self._announcing |= ofports
            self._announce += [(now_s + after_s, ofports) for after_s in ANNOUNCE_AFTER_S[1:]]
        addresses |= adopted
        queried = {(ofport, 0) for ofport in self._announcing if OfPort(ofport) in trunks}
        queried |= {(o, vlan) for o, _, vlan in addresses if o in self._announcing}
        self._announcing = frozenset()
        commands: Commands = [
            SendFrame(self.config.name, ofport, frames.rarp(mac, vlan))
            for ofport, mac, vlan in sorted(addresses)
        ]
        commands += [
            DeliverFrame(self.config.name, ofport, query(vlan))
            for ofport, vlan in sorted(queried)
            for query in (frames.igmp_query, frames.mld_query)
        ]
        if self._flooding.changing:
            self._flooding.settle()
            commands += self.settle(now_s, Reason.REBALANCE)
        return commands

    def take_port_flags(self, event: PortFlagsSet, now_s: float) -> Commands:
        """The switch floods by itself where our pipeline does not deliver, or will not."""
        if not self._flooding.expects(event):
            return []
        reported = self._flooding.error
        if self._flooding.answer(event, now_s):
            return [ReadLearned(self.config.name)]
        commands: Commands = []
        if event.error not in (None, reported):
            text = f"{self.config.name}: VM ports' flag no-flood: {event.error}"
            commands.append(Report("warning", text))
        if event.error is not None and not self._serves:
            # Rather give the bridge back with a flag too many than not at all.
            self._flooding.assume(frozenset(), asking=False)
        self._flooding.settle()
        return [*commands, *self.settle(now_s, Reason.REBALANCE)]

    def finish_bundle(self, done: BundleDone, now_s: float) -> Commands:
        bundle = self._bundle
        if bundle is None or done.bundle_id != bundle.bundle_id:
            return []
        self._bundle = None
        if done.error is not None:
            return self._bundle_refused(bundle, done.error, now_s)
        self.installed = bundle.installs
        if not bundle.final:
            self._pause_until_s = now_s + REVALIDATED_AFTER_S
        commands: Commands = list(bundle.waiting)
        for move in bundle.moves:
            self.applied[move.reason] += 1
            text = f"{self.config.name}: {move.unit}: {move.source} -> {move.target}"
            commands.append(Report("info", f"{text} ({move.reason})"))
        moved = {move.unit for move in bundle.moves}
        commands += self._announce_moves(moved, now_s)
        commands += self._remember_bindings()
        return [*commands, *self.settle(now_s, Reason.REBALANCE)]

    def tick(self, now_s: float) -> Commands:
        """Do what is due."""
        commands: Commands = []
        due = [uplink for uplink, at_s in self._usable_from_s.items() if at_s <= now_s]
        for uplink in due:
            del self._usable_from_s[uplink]
        if due:
            commands += self.settle(now_s, Reason.FAILBACK)
        if not self.connected:
            return commands
        if now_s >= self._stats_due_s and self._polled:
            commands += self._poll(now_s)
        if now_s >= self._pause_until_s > 0.0:
            self._pause_until_s = 0.0
            commands += self._reconcile(now_s)
        if now_s >= self._audit_due_s:
            self._audit_due_s = now_s + AUDIT_INTERVAL_S
            commands.append(ReadInstalled(self.config.name))
        announced = [entry for entry in self._announce if entry[0] <= now_s]
        if announced:
            self._announce = [entry for entry in self._announce if entry[0] > now_s]
            self._announcing |= frozenset().union(*(ofports for _, ofports in announced))
            commands.append(ReadLearned(self.config.name))
        return commands

    def deadline_s(self) -> float:
        """When `tick` next has something to do; infinity when nothing is waiting."""
        times = list(self._usable_from_s.values())
        if self.connected:
            times += [self._audit_due_s, *(at_s for at_s, _ in self._announce)]
            if self._pause_until_s > 0.0:
                times.append(self._pause_until_s)
            if self._polled:
                times.append(self._stats_due_s)
        return min(times, default=float("inf"))

    @property
    def _polled(self) -> bool:
        return self.enabled and not self.candidate

    @property
    def settled(self) -> bool:
        """Whether the switch has what it should have from us, as far as we know."""
        idle = self._bundle is None and not self._flooding.changing
        return self.connected and self.installed is not None and idle

    @property
    def installed_anything(self) -> bool:
        return self.installed is not None and self.installed != pipeline.EMPTY

    # ---- bindings ----------------------------------------------------------------------

    def move(self, unit: str, target: str, reason: Reason, reply: Reply, now_s: float) -> Commands:
        """Make `target` a VM port's home, and answer once the switch has followed."""
        self.homes[unit] = target
        self._waiting.append(reply)
        return self.settle(now_s, reason)

    def settle(self, now_s: float, reason: Reason) -> Commands:
        """Bring bindings in line with homes and links, and the switch in line with bindings.

        `reason` is that of changes which no uplink's failure or return explains.
        """
        if self.candidate:
            return []
        self._bind(now_s, reason)
        return self._reconcile(now_s)

    def uplinks(self, window_s: float | None = None) -> tuple[Uplink, ...]:
        """The team as policies see it; loads over a window, or the latest."""
        up = {uplink.name for uplink in self.config.uplinks if self._up(uplink)}
        # An uplink that waits out its failback delay is still better than none.
        usable = up - self._usable_from_s.keys() or up
        return tuple(
            Uplink(
                name=uplink.name,
                ofport=uplink.ofport,
                capacity_bps=self._capacity_bps(uplink),
                role=uplink.role,
                usable=uplink.name in usable,
                load=self._load(self._port_rates, uplink.ofport, window_s, UPLINK_LAG_S),
            )
            for uplink in self.config.uplinks
        )

    def unit(self, port: VmPortConfig, window_s: float | None = None) -> Unit:
        bound = self.bound.get(port.name)
        return Unit(
            name=port.name,
            ofport=port.ofport,
            uplink=bound.uplink if bound else None,
            load=self._load(self._unit_rates, port.ofport, window_s),
            pin=port.pin,
            excluded=port.excluded,
        )

    def desired(self) -> pipeline.Pipeline:
        """The pipeline for the bindings in force; empty where the bridge stays on NORMAL.

        It is taken away when NORMAL floods to all ports again.
        """
        config, no_flood = self.config, self._flooding.ports
        if not self._serves and (no_flood == frozenset() or not config.uplinks):
            return pipeline.EMPTY
        uplinks = self.uplinks()
        team = pipeline.Team(
            uplinks=tuple(uplink.ofport for uplink in uplinks),
            vm_ports=tuple(
                pipeline.VmPort(
                    ofport=port.ofport,
                    order=tuple(u.ofport for u in self._order(port, uplinks)),
                    access_vlan=port.access_vlan,
                    attached_mac=port.attached_mac,
                )
                for port in config.vm_ports
            ),
            hears_everywhere=config.teaming != "switch-independent",
            over_normal=config.on_bond,
            normal_takes_any=config.bond_mode == "balance-slb"
            and config.teaming == "switch-independent",
            no_flood=no_flood if no_flood and self._serves else frozenset(),
        )
        return pipeline.build(team)

    @property
    def _serves(self) -> bool:
        """Whether the bridge forwards by our pipeline, rather than by NORMAL over its bond."""
        observing_a_bond = self.config.mode == "observe" and self.config.on_bond
        return self.enabled and not observing_a_bond and bool(self.config.uplinks)

    def _bind(self, now_s: float, reason: Reason) -> None:
        uplinks = self.uplinks()
        if not uplinks:
            return
        preset = PRESETS[self.config.policy]
        by_name = {uplink.name: uplink for uplink in uplinks}
        for port in self.config.vm_ports:
            known = self.homes.get(port.name)
            stored = port.binding if port.name not in self.bound else None
            unit = Unit(port.name, port.ofport, uplink=known or stored, pin=port.pin)
            home = self.homes[port.name] = rules.home(unit, uplinks, preset)
            target = self._order(port, uplinks)[0].name
            bound = self.bound.get(port.name)
            if bound is None:
                first = RESTORED if stored == target else self.config.policy
                self.bound[port.name] = Bound(target, now_s, first)
            elif bound.uplink != target:
                why = _why(by_name.get(bound.uplink), target == home, reason)
                self.bound[port.name] = Bound(target, now_s, why.value)
                self._moving.append(Move(port.name, bound.uplink, target, why))
                self.planned[why] += 1
                self._last_move_s = now_s

    def _order(self, port: VmPortConfig, uplinks: tuple[Uplink, ...]) -> tuple[Uplink, ...]:
        backup = PRESETS[self.config.policy].backup
        ordered = failover.order(port.name, self.homes[port.name], uplinks, backup)
        return failover.usable_first(ordered or uplinks)

    def _decide(self, now_s: float) -> Commands:
        """Ask the policy, at most once a window, and do what it says.

        A window begins at the first sample after a move, so that no mean mixes before and
        after.
        """
        self.last_decision_s = now_s
        window_s = self.config.window_s
        pause_s = window_s + self.config.poll_interval_s + UPLINK_LAG_S
        if self._last_move_s is not None and now_s - self._last_move_s < pause_s:
            return []
        snapshot = self._snapshot(window_s)
        if snapshot is None:
            return []
        plan = PRESETS[self.config.policy].rebalance(snapshot)
        if not plan.moves:
            return []
        if self.config.mode == "observe":
            self._last_move_s = now_s
            self.planned.update(move.reason.value for move in plan.moves)
            return []
        for move in plan.moves:
            self.homes[move.unit] = move.target
        return self.settle(now_s, plan.moves[0].reason)

    def _snapshot(self, window_s: float) -> Snapshot | None:
        """The team with loads over a full window; None while less is known."""
        known = (self._port_rates.get(u.ofport) for u in self.config.uplinks)
        if any(rates is None or rates.mean(window_s, UPLINK_LAG_S) is None for rates in known):
            return None
        return Snapshot(
            uplinks=self.uplinks(window_s),
            units=tuple(self.unit(port, window_s) for port in self.config.vm_ports),
            threshold_ratio=self.config.threshold_ratio,
        )

    # ---- the switch --------------------------------------------------------------------

    def _reconcile(self, now_s: float) -> Commands:
        """Send what differs, one bundle at a time.

        Ways for broadcasts that open are left to a second bundle, sent when the switch
        has closed the old ones in its flow cache. And a switch that fails over by itself
        is left alone until it has.
        """
        if not self.connected or self.installed is None or self._bundle is not None:
            return []
        if now_s < self._pause_until_s:
            return []
        desired = self.desired()
        step = reconcile.closing(desired, self.installed)
        if step == self.installed:
            step = desired
        moves, self._moving = tuple(self._moving), []
        waiting: tuple[Reply, ...] = ()
        final = step == desired
        if final:
            waiting, self._waiting = tuple(self._waiting), []
        changes = reconcile.changes(step, self.installed)
        self._bundles += 1
        self._bundle = _Bundle(self._bundles, step, final, moves, waiting)
        if changes:
            text = f"{self.config.name}: {len(changes)} changes to flows and groups"
            return [Report("debug", text), Apply(self.config.name, self._bundles, changes)]
        if moves or waiting:
            return self.finish_bundle(BundleDone(self.config.name, self._bundles), now_s)
        self._bundle = None
        return [*self._remember_bindings(), *self._set_port_flags(now_s)]

    def _assume_port_flags(self, found: pipeline.Pipeline) -> None:
        """What the flags must be, given what is installed; nothing where we do not need them."""
        ours = self.config.on_bond and (self._serves or found != pipeline.EMPTY)
        flags = pipeline.no_flood(found) if ours else frozenset[int]()
        self._flooding.assume(flags, asking=ours)

    def _set_port_flags(self, now_s: float) -> Commands:
        vm_ports = frozenset[int](port.ofport for port in self.config.vm_ports)
        serves_over_normal = self._serves and self.config.on_bond
        wanted = vm_ports if serves_over_normal else frozenset()
        if not serves_over_normal and self._flooding.ports == frozenset():
            return []
        command = self._flooding.ask(self.config.name, wanted, vm_ports - wanted, now_s)
        return [command] if command else []

    def _bundle_refused(self, bundle: _Bundle, error: str, now_s: float) -> Commands:
        """Nothing of it was installed: say so, and start again from what the switch has."""
        self.installed = None
        self._audit_due_s = now_s + RETRY_INTERVAL_S
        for move in bundle.moves:
            self.refused[move.reason] += 1
            self.homes[move.unit] = move.source
            self.bound[move.unit] = Bound(move.source, now_s, RESTORED)
        refusal = f"the switch refused the change: {error}"
        waiting, self._waiting = [*bundle.waiting, *self._waiting], []
        replies = [Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [Report("error", f"{self.config.name}: {refusal}"), *replies]

    def _announce_moves(self, units: set[str], now_s: float) -> Commands:
        """Learning packets for moved VM ports; never on a LAG, which needs none."""
        if not units or self.config.teaming != "switch-independent":
            return []
        ofports = frozenset(p.ofport for p in self.config.vm_ports if p.name in units)
        self._announce += [(now_s + after_s, ofports) for after_s in ANNOUNCE_AFTER_S]
        return self.tick(now_s)

    def _remember_bindings(self) -> Commands:
        """Write bindings to the database, so that a restart moves nothing."""
        if not self._polled:
            return []
        settings = tuple(
            Setting("Interface", port.name, PREFIX + "binding", self.bound[port.name].uplink)
            for port in self.config.vm_ports
            if port.name in self.bound and port.binding != self.bound[port.name].uplink
        )
        return [Write(settings)] if settings else []

    def _poll(self, now_s: float) -> Commands:
        self._stats_due_s = now_s + self.config.poll_interval_s
        unanswered_s = 0.0 if self._stats_asked_s is None else now_s - self._stats_asked_s
        if 0.0 < unanswered_s < STATS_TIMEOUT_S:
            return []
        self._stats_asked_s = now_s
        return [ReadStats(self.config.name)]

    def _forget_switch(self) -> None:
        self.installed = None
        self._flooding.forget()
        self._bundle = None
        self._pause_until_s = 0.0
        self._stats_asked_s = None
        self._port_rates.clear()
        self._unit_rates.clear()

    def _see_port(self, port: PortState, now_s: float) -> None:
        """Note a link; one that returns carries nothing before the failback delay is over."""
        self.ports[port.ofport] = port
        uplink = next((u for u in self.config.uplinks if u.ofport == port.ofport), None)
        if uplink is None:
            return
        if not port.up:
            self._usable_from_s[uplink.name] = float("inf")
        elif self._usable_from_s.get(uplink.name) == float("inf"):
            self._usable_from_s[uplink.name] = now_s + self.config.failback_delay_s

    def _follow_team(self, old: BridgeConfig) -> None:
        """Forget the delays of uplinks that left; one that joins without a link has to wait."""
        stayed = {uplink.name for uplink in old.uplinks}
        kept = {name: at_s for name, at_s in self._usable_from_s.items() if name in stayed}
        self._usable_from_s = {}
        for uplink in self.config.uplinks:
            if uplink.name in kept:
                self._usable_from_s[uplink.name] = kept[uplink.name]
            elif uplink.name not in stayed and not self._up(uplink):
                self._usable_from_s[uplink.name] = float("inf")

    def _up(self, uplink: UplinkConfig) -> bool:
        port = self.ports.get(uplink.ofport)
        return port.up if port else not self.connected

    def _capacity_bps(self, uplink: UplinkConfig) -> float:
        port = self.ports.get(uplink.ofport)
        return (
            uplink.capacity_bps
            or (port.speed_bps if port else 0.0)
            or uplink.link_speed_bps
            or UNKNOWN_CAPACITY_BPS
        )

    def _rates_of(self, rates: dict[int, Rates], ofport: int) -> Rates:
        keep_s = self.config.window_s + 2 * self.config.poll_interval_s + UPLINK_LAG_S
        if ofport not in rates:
            rates[ofport] = Rates(keep_s)
        rates[ofport].keep_s = keep_s
        return rates[ofport]

    def _load(
        self, rates: Mapping[int, Rates], ofport: int, window_s: float | None, lag_s: float = 0.0
    ) -> Load:
        if ofport not in rates:
            return Load()
        if window_s is None:
            return rates[ofport].latest()
        return rates[ofport].mean(window_s, lag_s) or Load()

    # ---- what it says of itself --------------------------------------------------------

    def status(self, epoch_s: float) -> BridgeStatus:
        """The bridge now. `epoch_s` is the wall-clock time at which engine time was zero."""
        uplinks = tuple(
            self._uplink_status(u, self._counters.get(u.ofport)) for u in self.uplinks()
        )
        utilizations = [uplink.utilization_ratio for uplink in uplinks if uplink.up]
        decided_s = self.last_decision_s
        return BridgeStatus(
            name=self.config.name,
            policy=self.config.policy,
            teaming=self.config.teaming,
            mode=self.config.mode,
            connected=self.connected,
            threshold_ratio=self.config.threshold_ratio,
            imbalance_ratio=max(utilizations, default=0.0) - min(utilizations, default=0.0),
            uplinks=uplinks,
            ports=tuple(self._port_status(port, epoch_s) for port in self.config.vm_ports),
            config_errors=tuple(str(error) for error in self.config.errors),
            moves_planned=_by_reason(self.planned),
            moves_applied=_by_reason(self.applied),
            moves_refused=_by_reason(self.refused),
            failovers=self.applied[Reason.FAILOVER],
            last_decision_at=None if decided_s is None else epoch_s + decided_s,
        )

    def _uplink_status(self, uplink: Uplink, counters: PortCounters | None) -> UplinkStatus:
        port = self.ports.get(uplink.ofport)
        return UplinkStatus(
            name=uplink.name,
            up=port.up if port else False,
            role=uplink.role.value,
            capacity_bps=uplink.capacity_bps,
            load=uplink.load,
            tx_bytes=_counted(counters.tx_bytes if counters else None),
            rx_bytes=_counted(counters.rx_bytes if counters else None),
            drops=_sum(counters),
        )

    def _port_status(self, port: VmPortConfig, epoch_s: float) -> PortStatus:
        bound = self.bound.get(port.name)
        counters = self._counters.get(port.ofport)
        return PortStatus(
            name=port.name,
            vm=port.vm,
            uplink=bound.uplink if bound else None,
            load=self._load(self._port_rates, port.ofport, None),
            reason=bound.reason if bound else None,
            bound_at=epoch_s + bound.since_s if bound else None,
            tx_bytes=_counted(counters.rx_bytes if counters else None),
            rx_bytes=_counted(counters.tx_bytes if counters else None),
            drops=_sum(counters),
        )


def _why(left: Uplink | None, goes_home: bool, reason: Reason) -> Reason:
    """Why a VM port leaves an uplink (None: it is no longer in the team)."""
    if left is not None and left.usable and left.role in (Role.DRAINED, Role.UNUSED):
        return Reason.DRAIN
    if not goes_home or left is None or not left.usable:
        return Reason.FAILOVER
    return Reason.FAILBACK if reason is Reason.FAILOVER else reason


def _pins(config: BridgeConfig) -> dict[str, str | None]:
    return {port.name: port.pin for port in config.vm_ports}


def _team(config: BridgeConfig) -> list[tuple[str, Role]]:
    return [(uplink.name, uplink.role) for uplink in config.uplinks]


def _errors_reported(old: BridgeConfig, new: BridgeConfig) -> Commands:
    """One line for each value that has become bad."""
    return [Report("warning", str(error)) for error in new.errors if error not in old.errors]


def _by_reason(counter: Counter[str]) -> dict[str, int]:
    return {reason.value: counter[reason.value] for reason in Reason}


def _counted(counter: int | None) -> int | None:
    return None if counter == UNSUPPORTED else counter


def _sum(counters: PortCounters | None) -> int | None:
    if counters is None:
        return None
    drops = [_counted(counters.tx_dropped), _counted(counters.rx_dropped)]
    return sum(d for d in drops if d is not None) if any(d is not None for d in drops) else None
