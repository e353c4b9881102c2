"""An engine with everything around it faked: a switch, a database and a clock.

The fake switch forwards as a real one would: what VM ports offer is counted at the first
live uplink of their installed binding group. Time passes only in `run_until`.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.api.engine_commands import (
    AddSelectGroup,
    Apply,
    Command,
    Connect,
    Disconnect,
    ForwardByOne,
    ReadForwarding,
    ReadInbound,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    Reply,
    Report,
    ReportFailure,
    SendFrame,
    SetPortFlags,
    Setting,
    Shape,
    Write,
)
from controller.api.events import (
    AddressesRead,
    BundleDone,
    CommandFailed,
    DatabaseRead,
    Device,
    Event,
    ForeignFlow,
    ForwardingByOne,
    ForwardingRead,
    InboundRead,
    InstalledRead,
    LearnedRead,
    PortChanged,
    PortCounters,
    PortFlagsSet,
    PortRemoved,
    PortState,
    PortStatsRead,
    Request,
    Sample,
    SelectGroupAdded,
    Shaped,
    SwitchConnected,
    SwitchGone,
    Tick,
    UnitCountersRead,
    Written,
)
from controller.api.status import BridgeStatus, PortStatus
from controller.bridge.bridge import Bridge
from controller.config.rows import BridgeRow, InterfaceRow, PortRow
from controller.dataplane import htb, specs, tables
from controller.dataplane.drops import Dropped
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Changes, FlowSpec, GroupSpec, Output, Pipeline, SetField
from controller.engine import Engine
from policies.classifiers import BUCKETS
from tests.unit.rows import with_interface
from tests.unit.simulator import Copy, Simulator, as_number

# Bundles until everything is in place over a bond: the second when NORMAL's flags are set.
PLACED = 2

# Commands that a switch answers.
Read = ReadInstalled | ReadStats | ReadInbound | ReadLearned | ReadForwarding
ToSwitch = Read | SetPortFlags | AddSelectGroup | Apply
Rate = Callable[[float], float]
# Behind a VM port: (ofport, MAC, VLAN).
Address = tuple[int, str, int]
Learned = dict[tuple[int, int, specs.Match], tuple[FlowSpec, float]]


A_MOMENT_S = 0.1
ETHERNET_BYTES = 14
# As `rows.host` numbers them.
FIRST_VM_PORT = 10


def _counts() -> dict[Any, float]:
    return defaultdict(float)


def bucket_of(mac: str) -> int:
    """The bucket of an address whose VM has one connection, of any hash."""
    return int(mac.replace(":", ""), 16) * 89 % BUCKETS


@dataclass
class FakeSwitch:
    """One bridge of a switch, with what is installed on it and what its ports counted."""

    ports: dict[int, PortState]
    offered_bps: dict[int, Rate] = field(default_factory=dict)
    # What VM ports send by a bucket of a hash.
    hashed_bps: dict[tuple[int, int], Rate] = field(default_factory=dict)
    # Of what VM ports offer, the part in each bucket, while they are hashed.
    connections: dict[int, dict[int, float]] = field(default_factory=dict)
    # What addresses behind VM ports send.
    behind_bps: dict[Address, Rate] = field(default_factory=dict)
    # What is sent to VM ports, and by which uplink the upstream switch sends it, by ofport.
    inbound_bps: dict[int, Rate] = field(default_factory=dict)
    comes_by: dict[int, int] = field(default_factory=dict)
    inbound_bytes: dict[tuple[int, int], float] = field(default_factory=_counts)
    from_normal: tuple[tuple[int, str, int | None], ...] = ()
    elsewhere: tuple[tuple[str, int], ...] = ()
    no_flood: set[int] = field(default_factory=set)
    refuse_flags: str | None = None
    refuse_select: str | None = None
    foreign: tuple[ForeignFlow, ...] = ()
    dropped: dict[Dropped, int] = field(default_factory=dict)
    forwarding: tuple[tuple[int, str, int], ...] = ()
    flows: dict[tuple[int, int, specs.Match], FlowSpec] = field(default_factory=dict)
    groups: dict[int, GroupSpec] = field(default_factory=dict)
    # How often it is still read with the default flow of a standalone bridge.
    reads_with_default: int = 0
    refuse_next: str | None = None
    holds_answers: bool = False
    held: deque[Event] = field(default_factory=deque)
    sent_bytes: dict[int, float] = field(default_factory=_counts)
    sent_by_bucket: dict[tuple[int, int], float] = field(default_factory=_counts)
    sent_by_address: dict[Address, float] = field(default_factory=_counts)
    # What was sent by buckets comes from VM ports, too: flows of the first of them count it.
    hashed_bytes: float = 0.0
    # The size of all frames, if tc forwards them: it counts a frame without its Ethernet header.
    frame_bytes: int | None = None
    born_s: dict[int, float] = field(default_factory=dict)
    now_s: float = 0.0
    # The flows that are learned, and until when they are kept.
    _learned: Learned = field(default_factory=dict)
    _simulator: Simulator | None = None

    @property
    def learned(self) -> tuple[Address, ...]:
        """The addresses behind VM ports that are learned, as the service reads them."""
        return tuple(
            (tables.cookie_ofport(flow.cookie), mac_of(match["eth_dst"]), int(vlan[0]))
            for flow, until_s in self._learned.values()
            if flow.table == tables.Table.LOCATION and until_s > self.now_s
            for match in [dict(flow.match)]
            for vlan in [match.get(tables.Register.VLAN)]
            if tables.cookie_kind(flow.cookie) is tables.Kind.LEARNED and isinstance(vlan, tuple)
        )

    @learned.setter
    def learned(self, addresses: Iterable[Address]) -> None:
        """These addresses, and no others, until the port goes: what else was learned stays."""
        self._forget(lambda flow: flow.table == tables.Table.LOCATION)
        for ofport, mac, vlan in addresses:
            match: specs.Fields = {"eth_dst": mac, tables.Register.VLAN: (vlan, 0xFFF)}
            table, cookie = _said(ofport)
            self._learn(specs.flow(table, 10, match, cookie=cookie))

    def receive(self, ofport: int, sent: Mapping[str, int]) -> list[Copy]:
        """Where a frame leaves that comes in by a port; the switch learns from it."""
        if not self.ports[ofport].up:
            return []
        if self._simulator is None:
            self._simulator = Simulator(self.installed, ())
        here = self._simulator
        here.alive = {number for number, port in self.ports.items() if port.up}
        here.learned, here.now_s = self._learned, self.now_s
        copies = here.receive(tables.openflow_port(ofport), sent)
        self._learned = here.learned
        return copies

    def restart(self) -> None:
        """It has no flows and groups, and knows no address."""
        self._commit(Changes(delete_groups=tuple(self.groups), clear=True))

    def carry_out(self, command: Command) -> list[Event]:
        """What the switch answers."""
        match command:
            case ReadInstalled(bridge=bridge, number=number):
                flows, groups = tuple(self.flows.values()), tuple(self.groups.values())
                self.reads_with_default -= 1
                by_default = self.reads_with_default >= 0
                others = self.foreign
                found = InstalledRead(bridge, flows, groups, others, by_default, number=number)
                return [replace(found, dropped=dict(self.dropped))]
            case ReadForwarding(bridge=bridge):
                return [ForwardingRead(bridge, self.forwarding)]
            case ReadStats(bridge=bridge, units=False):
                return [PortStatsRead(bridge, tuple(map(self._counters, self.ports)))]
            case ReadInbound(bridge=bridge, ofports=ofports):
                counted = [(*key, int(n)) for key, n in self.inbound_bytes.items()]
                return [InboundRead(bridge, tuple(c for c in counted if c[0] in ofports))]
            case ReadStats(bridge=bridge, buckets=buckets, address_units=address_units):
                ports = tuple(self._counters(ofport) for ofport in self.ports)
                of_vms, of_buckets = self._flows_of(
                    tables.Kind.FROM_VM, tables.Kind.BUCKET
                ).values()
                units = tuple(
                    (f.cookie & 0xFFFF, self._unit_sample(f.cookie & 0xFFFF)) for f in of_vms
                )
                shared = tuple(
                    (key, self._of_flow(1000.0, self.sent_by_bucket.get(key, 0)))
                    for f in (of_buckets if buckets else ())
                    for key in [tables.cookie_bucket(f.cookie)]
                )
                behind = tuple(
                    (slot, self._of_flow(500.0, self.sent_by_address.get(key, 0)))
                    for key, slot in (self.slots() if address_units else {}).items()
                )
                read = UnitCountersRead(bridge, units, shared, behind)
                return [PortStatsRead(bridge, ports), read]
            case ReadLearned(bridge=bridge):
                return [LearnedRead(bridge, tuple(self.learned), self.from_normal, self.elsewhere)]
            case SetPortFlags(bridge=bridge, number=number, no_flood=no_flood, flood=flood):
                if self.refuse_flags is not None:
                    return [PortFlagsSet(bridge, number, frozenset(), self.refuse_flags)]
                before = frozenset(self.no_flood)
                self.no_flood = (self.no_flood | no_flood & self.ports.keys()) - flood
                there = no_flood & self.ports.keys()
                return [PortFlagsSet(bridge, number, there, before=before)]
            case AddSelectGroup(bridge=bridge, number=number):
                if self.refuse_select is None:
                    self.groups[SELECT_GROUP.group_id] = SELECT_GROUP
                return [SelectGroupAdded(bridge, number, self.refuse_select)]
            case Apply(bridge=bridge, bundle_id=bundle_id, changes=changes):
                if self.refuse_next is not None:
                    error, self.refuse_next = self.refuse_next, None
                    return [BundleDone(bridge, bundle_id, error)]
                self._commit(changes)
                return [BundleDone(bridge, bundle_id)]
        return []

    @property
    def installed(self) -> Pipeline:
        return Pipeline(dict(self.flows), dict(self.groups))

    def uplink_of(self, ofport: int) -> int | None:
        """The uplink a VM port's traffic leaves by now; of a hashed one, its home."""
        return self._leaves_by(tables.Group.BINDING.id_of(ofport))

    def uplink_of_bucket(self, number: int, bucket: int) -> int | None:
        return self._leaves_by(tables.bucket_group_id(number, bucket))

    def _flows_of(self, *kinds: tables.Kind) -> dict[tables.Kind, list[FlowSpec]]:
        """The flows of each kind, looked for in one pass: a bridge has hundreds of them."""
        found: dict[tables.Kind, list[FlowSpec]] = {kind: [] for kind in kinds}
        for flow in self.flows.values():
            kind = tables.cookie_kind(flow.cookie)
            if kind in found:
                found[kind].append(flow)
        return found

    def slots(self) -> dict[Address, int]:
        """The slot of each address that is a unit of its own."""
        found = {}
        (flows,) = self._flows_of(tables.Kind.FROM_ADDRESS).values()
        for flow in flows:
            fields = dict(flow.match)
            ofport, vlan = (fields[r] for r in (tables.Register.VM_PORT, tables.Register.VLAN))
            assert isinstance(ofport, int) and isinstance(vlan, int)
            found[ofport, str(fields["eth_src"]), vlan] = tables.cookie_ofport(flow.cookie)
        return found

    def uplink_of_address(
        self, ofport: int, mac: str, vlan: int = 0, slots: Mapping[Address, int] | None = None
    ) -> int | None:
        """The uplink by which an address behind a VM port leaves now.

        `slots`: those there are, if the caller asks for many addresses.
        """
        slot = (self.slots() if slots is None else slots).get((ofport, mac, vlan))
        if slot is not None:
            return self._leaves_by(tables.address_group_id(slot))
        if (number := self.hash_of(ofport)) is not None:
            return self.uplink_of_bucket(number, bucket_of(mac))
        return self.uplink_of(ofport)

    def _leaves_by(self, group_id: int) -> int | None:
        for bucket in self.groups[group_id].buckets if group_id in self.groups else ():
            if bucket.watch_group is not None:
                if (leaves := self._leaves_by(bucket.watch_group)) is not None:
                    return leaves
            elif (port := self.ports.get(bucket.watch_port or 0)) is not None and port.up:
                # An uplink that does not carry every VLAN is left by the table that checks.
                match bucket.actions[0]:
                    case Output(port=number) | SetField(value=int(number)):
                        return int(number)
                return port.ofport
        return None

    def forward_until(self, now_s: float) -> None:
        """Count what VM ports offer; exact for loads that rise in straight lines."""
        elapsed_s, middle_s = now_s - self.now_s, (now_s + self.now_s) / 2
        for ofport, offered_bps in self.offered_bps.items():
            sent = offered_bps(middle_s) / 8 * elapsed_s
            number, spread = self.hash_of(ofport), self.connections.get(ofport, {})
            self.sent_bytes[ofport] += sent
            if number is None or not spread:
                self._count_uplink(self.uplink_of(ofport), sent)
                continue
            for bucket, share in spread.items():
                self._count_bucket((number, bucket), share * sent)
        for key, offered_bps in self.hashed_bps.items():
            sent = offered_bps(middle_s) / 8 * elapsed_s
            self._count_bucket(key, sent)
            self.hashed_bytes += sent
        slots = self.slots() if self.behind_bps else {}
        for address, offered_bps in self.behind_bps.items():
            sent = offered_bps(middle_s) / 8 * elapsed_s
            self.sent_bytes[address[0]] += sent
            number = None if address in slots else self.hash_of(address[0])
            if number is None:
                self.sent_by_address[address] += sent
                self._count_uplink(self.uplink_of_address(*address, slots), sent)
            else:
                self._count_bucket((number, bucket_of(address[1])), sent)
        for ofport, offered_bps in self.inbound_bps.items():
            came = offered_bps(middle_s) / 8 * elapsed_s
            self.inbound_bytes[ofport, self.comes_by[ofport]] += came
        self.now_s = now_s

    def hash_of(self, ofport: int) -> int | None:
        """The hash that spreads what a VM port sends."""
        group = self.groups.get(tables.Group.BINDING.id_of(ofport))
        for action in group.buckets[0].actions if group and group.buckets else ():
            if isinstance(action, SetField) and action.field == tables.Register.HASHED:
                return None if action.value == tables.ASSIGNED else int(action.value)
        return None

    def _count_bucket(self, key: tuple[int, int], sent: float) -> None:
        self.sent_by_bucket[key] += sent
        self._count_uplink(self.uplink_of_bucket(*key), sent)

    def _count_uplink(self, uplink: int | None, sent: float) -> None:
        if uplink is not None:
            self.sent_bytes[uplink] += sent

    def _commit(self, changes: Changes) -> None:
        """All or nothing, and as strict as Open vSwitch about groups."""
        for group in changes.add_groups:
            assert group.group_id not in self.groups, "OFPGMFC_GROUP_EXISTS"
            self.groups[group.group_id] = group
        for group in changes.modify_groups:
            assert group.group_id in self.groups, "OFPGMFC_UNKNOWN_GROUP"
            self.groups[group.group_id] = group
        before = [self.flows.get(flow.key, flow) for flow in changes.add_flows]
        for flow in changes.add_flows:
            for action in flow.actions:
                if isinstance(action, specs.ToGroup):
                    assert action.group_id in self.groups, "OFPBAC_BAD_OUT_GROUP"
            if tables.cookie_kind(flow.cookie) is tables.Kind.LEARNED:
                self._learn(flow)
            else:
                self.flows[flow.key] = flow
        for flow in changes.delete_flows:
            self.flows.pop(flow.key, None)
        if changes.clear:
            self.flows.clear()
        for group_id in changes.delete_groups:
            self.groups.pop(group_id, None)
        self._simulator = None
        taught = _taught(self.flows.values())
        gone = _taught([*before, *changes.delete_flows]) - taught
        # What a test has said of a port goes with the last flow that learns its addresses.
        ports, still = ({tables.cookie_ofport(c) for _, c in of} for of in (gone, taught))
        gone |= {_said(ofport) for ofport in ports - still}
        self._forget(lambda flow: changes.clear or (flow.table, flow.cookie) in gone)

    def _forget(self, is_gone: Callable[[FlowSpec], bool]) -> None:
        self._learned = {k: known for k, known in self._learned.items() if not is_gone(known[0])}

    def _learn(self, flow: FlowSpec) -> None:
        """As the switch writes what it learns."""
        match = ((n, v if isinstance(v, tuple) else as_number(n, v)) for n, v in flow.match)
        flow = replace(flow, match=tuple(sorted(match)))
        self._learned.pop(flow.key, None)
        self._learned[flow.key] = flow, self.now_s + (flow.hard_timeout_s or math.inf)

    def _counters(self, ofport: int) -> PortCounters:
        sent = int(self.sent_bytes.get(ofport, 0))
        clock_s = self.now_s - self.born_s.get(ofport, -1000.0)
        is_vm_port = ofport in self.offered_bps or any(ofport == o for o, *_ in self.behind_bps)
        return PortCounters(
            ofport, clock_s, 0 if is_vm_port else sent, sent if is_vm_port else 0, 0, 0
        )

    def _unit_sample(self, ofport: int) -> Sample:
        sent = self.sent_bytes.get(ofport, 0)
        if ofport == min(o for o in self.ports if o >= FIRST_VM_PORT):
            sent += self.hashed_bytes
        return self._of_flow(1000.0, sent)

    def _of_flow(self, age_s: float, sent_bytes: float) -> Sample:
        """What a flow has counted that was this old at the start."""
        packets = int(sent_bytes / self.frame_bytes) if self.frame_bytes else 0
        return Sample(self.now_s + age_s, int(sent_bytes) - ETHERNET_BYTES * packets, 0, packets)


def _taught(flows: Iterable[FlowSpec]) -> set[tuple[int, int]]:
    """The tables and cookies of what is learned by these flows, and forgotten with them."""
    learns = (a for flow in flows for a in flow.actions if isinstance(a, specs.Learn))
    return {(learn.table, learn.cookie) for learn in learns if learn.delete_learned}


def _said(ofport: int) -> tuple[int, int]:
    """The table and the cookie of what a test says is learned of a port."""
    return tables.Table.LOCATION, tables.cookie(tables.Kind.LEARNED, ofport)


def mac_of(value: object) -> str:
    assert isinstance(value, int)
    return value.to_bytes(6, "big").hex(":")


class World:
    """Drives an engine by events, and carries out its commands."""

    def __init__(self, *rows: BridgeRow, start_s: float = 0.0) -> None:
        self.engine = self.new_engine()
        self.now_s = start_s
        self.rows = {row.name: row for row in rows}
        self.switches: dict[str, FakeSwitch] = {}
        self.log: list[tuple[float, Command]] = []
        self.replies: dict[int, Reply] = {}
        self.refuse_writes: str | None = None
        # The uplink that a bridge of plain uplinks was given back to, and what goes wrong then.
        self.forwards_by: dict[str, ForwardByOne] = {}
        self.refuse_one: str | None = None
        # How uplinks queue: what is there, and the shaper where that is one of ours.
        self.queueing: dict[str, htb.Found] = {}
        self.shapers: dict[str, htb.Shaper] = {}
        # What each class of an uplink has dropped.
        self.drops: dict[str, dict[int, int]] = {}
        self.holds_shaped = False
        # As ovs-ctl writes it down, if that has started the switch.
        self.ovs_version: str | None = None
        self.key_loss_grace_s: str | None = None
        # The addresses of the host's devices.
        self.addresses = AddressesRead({})
        self.held_shaped: list[Shaped] = []
        # Errors of ours that a bridge has survived; a test must expect them.
        self.failures: list[ReportFailure] = []
        self.expects_failures = False
        self.cannot_encode: Callable[[Apply], bool] = lambda _: False
        self.dialled: set[str] = set()
        self.outstanding: set[str] = set()
        self._events: deque[Event] = deque()
        self._requests = 0

    # ---- what a test does --------------------------------------------------------------

    @staticmethod
    def new_engine() -> Engine:
        return Engine()

    def start(self) -> World:
        """The service starts: it reads the database and the host's addresses."""
        self.say(self.addresses)
        return self.say(self.read())

    def read(self) -> DatabaseRead:
        """The database as it is now."""
        return DatabaseRead(
            tuple(self.rows.values()),
            ovs_version=self.ovs_version,
            key_loss_grace_s=self.key_loss_grace_s,
        )

    def restart_service(self) -> World:
        """A new engine on the same database and switches."""
        self.engine = self.new_engine()
        self._events.clear()
        self.outstanding.clear()
        self.dialled.clear()
        self.log.clear()
        return self.start()

    def say(self, *events: Event) -> World:
        """Something happens; everything that follows from it at once happens too."""
        self._events += events
        while self._events:
            event = self._events.popleft()
            if isinstance(event, BundleDone | SwitchConnected):
                self.outstanding.discard(event.bridge)
            commands = self.engine.handle(event, self.now_s)
            self._handled(event)
            for command in commands:
                self.log.append((self.now_s, command))
                self._carry_out(command)
        return self

    def _handled(self, _event: Event) -> None:
        """The deadline is the first of all, though few are looked at with each event."""
        if self.engine.fleet.failures:
            return
        times = [bridge.deadline_s() for bridge in self.engine.fleet.bridges.values()]
        times += [self.engine.jobs.next_s(), self.engine.confirmations.reverts_s()]
        times.append(self.engine.fleet.lost_keys.expires_s())
        assert self.engine.deadline_s() == min(times)

    def run_until(self, end_s: float) -> World:
        """Let time pass, with a Tick whenever the engine has asked for one."""
        ticks = 0
        while (due_s := max(self.now_s, self.engine.deadline_s())) <= end_s:
            ticks = ticks + 1 if due_s == self.now_s else 0
            assert ticks < 10 * len(self.rows), f"the engine is busy with nothing at {due_s} s"
            self._pass(due_s)
            self.say(Tick())
        self._pass(end_s)
        return self

    def run_for(self, seconds: float) -> World:
        return self.run_until(self.now_s + seconds)

    def ask(self, *words: str) -> Reply | None:
        """An operator's command; None while it is not answered.

        A moment is given to it: a move is done when its second step is.
        """
        self._requests += 1
        self.say(Request(self._requests, words))
        if self._requests not in self.replies:
            self.run_for(A_MOMENT_S)
        return self.replies.get(self._requests)

    def do(self, words: str) -> World:
        """An operator's command that is carried out."""
        done(self.ask(*words.split()))
        return self

    @property
    def asked(self) -> int:
        """How many commands operators gave."""
        return self._requests

    def write(self, row: BridgeRow) -> World:
        """The operator changes the database."""
        self.rows[row.name] = row
        return self.say(self.read())

    def write_keys_of(self, interface: str, **keys: str) -> World:
        """The operator sets all keys of an interface in the database."""
        return self.write(with_interface(self.rows["br0"], interface, **keys))

    def set_link(
        self,
        ofport: int,
        up: bool,
        bridge: str = "br0",
        speed_bps: float | None = None,
        silent: bool = False,
    ) -> World:
        """A speed that is not given stays as it was."""
        port = self.switches[bridge].ports[ofport]
        speed_bps = port.speed_bps if speed_bps is None else speed_bps
        switch = self.switches[bridge]
        switch.ports[ofport] = replace(port, up=up, speed_bps=speed_bps, silent=silent)
        return self.say(PortChanged(bridge, switch.ports[ofport]))

    def add_port(self, port: PortRow, bridge: str = "br0") -> World:
        """As libvirt does: the record comes first, the switch's own message after it."""
        row, ofport = self.rows[bridge], port.interfaces[0].ofport or 0
        ports = tuple(sorted((*row.ports, port), key=lambda p: p.name))
        state = PortState(ofport, port.name, up=True, speed_bps=0)
        self.switches[bridge].ports[ofport] = state
        return self.write(replace(row, ports=ports)).say(PortChanged(bridge, state))

    def remove_port(self, name: str, bridge: str = "br0") -> World:
        row, switch = self.rows[bridge], self.switches[bridge]
        (gone,) = (port for port in row.ports if port.name == name)
        ofport = gone.interfaces[0].ofport or 0
        del switch.ports[ofport]
        self.say(PortRemoved(bridge, ofport))
        return self.write(replace(row, ports=tuple(p for p in row.ports if p is not gone)))

    def disconnect(self, bridge: str = "br0") -> World:
        self.switches[bridge].held.clear()
        self.outstanding.discard(bridge)
        return self.say(SwitchGone(bridge))

    def restart_switch(self) -> World:
        """The switch of br0 starts anew: it has nothing of ours, and has learned nothing."""
        self.disconnect()
        self.switch.restart()
        return self.connect()

    def connect(self, bridge: str = "br0") -> World:
        return self.say(SwitchConnected(bridge, tuple(self.switches[bridge].ports.values())))

    def answer_held(self, bridge: str = "br0") -> World:
        """A switch that kept its answers back gives them now."""
        switch = self.switches[bridge]
        switch.holds_answers = False
        held = list(switch.held)
        switch.held.clear()
        return self.say(*held)

    # ---- what a test sees --------------------------------------------------------------

    @property
    def switch(self) -> FakeSwitch:
        return self.switches["br0"]

    @property
    def bridge(self) -> Bridge:
        """What the engine has for br0."""
        return self.engine.fleet.bridges["br0"]

    @property
    def status(self) -> BridgeStatus:
        """Of the only bridge."""
        (status,) = self.engine.fleet.status()
        return status

    def port_status(self, name: str = "vnet0") -> PortStatus:
        return next(p for p in self.status.ports if p.port.name == name)

    def commands(self, kind: type, since_s: float = -1.0) -> list[Any]:
        return [c for at_s, c in self.log if isinstance(c, kind) and at_s >= since_s]

    def applied(self) -> list[tuple[float, Changes]]:
        return [(at_s, c.changes) for at_s, c in self.log if isinstance(c, Apply)]

    def frames(self) -> list[tuple[float, int]]:
        return [(at_s, c.ofport) for at_s, c in self.log if isinstance(c, SendFrame)]

    def bindings(self, bridge: str = "br0") -> dict[str, str]:
        return {
            name: b.uplink for name, b in self.engine.fleet.bridges[bridge].placing.bound.items()
        }

    # ---- the shell ---------------------------------------------------------------------

    def _pass(self, now_s: float) -> None:
        self.now_s = now_s
        for switch in self.switches.values():
            switch.forward_until(now_s)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Connect(bridge=bridge):
                assert bridge not in self.dialled
                self.dialled.add(bridge)
                if bridge in self.switches:
                    ports = tuple(self.switches[bridge].ports.values())
                    self._events.append(SwitchConnected(bridge, ports))
            case Disconnect(bridge=bridge):
                self.dialled.remove(bridge)
            case ReportFailure():
                if not self.expects_failures:
                    raise command.error
                self.failures.append(command)
            case Write():
                self._write(command)
            case Shape():
                shaped = self._shape(command)
                (self.held_shaped if self.holds_shaped else self._events).append(shaped)
            case ForwardByOne(bridge=bridge):
                error, self.refuse_one = self.refuse_one, None
                if error is None:
                    self.forwards_by[bridge] = command
                self._events.append(ForwardingByOne(bridge, error))
            case Reply(request_id=request_id):
                assert request_id not in self.replies, "a request is answered once"
                self.replies[request_id] = command
            case Apply(bridge=bridge) if self.cannot_encode(command):
                self._events.append(CommandFailed(bridge, ValueError("a group is too long")))
            case _ if isinstance(command, ToSwitch):
                self._ask_switch(command)

    def _shape(self, command: Shape) -> Shaped:
        """As `tc` would; what is there of somebody else's stays unless it may be replaced."""
        devices = []
        for name, wanted in command.wanted:
            found, replaced = self.queueing.get(name, htb.Found()), None
            if found.is_foreign and (wanted is None or name not in command.replaces):
                devices.append(Device(name, found))
                continue
            if found.is_foreign:
                replaced = str(found)
            self.shapers.pop(name, None)
            self.queueing[name] = htb.Found()
            if wanted is not None:
                self.shapers[name] = wanted
                drops = {leaf.minor: 0 for leaf in wanted.leaves} | self.drops.get(name, {})
                self.queueing[name] = htb.Found("htb", htb.HANDLE, drops=drops)
            devices.append(Device(name, self.queueing[name], replaced=replaced))
        return Shaped(command.bridge, tuple(devices))

    def _ask_switch(self, command: ToSwitch) -> None:
        switch = self.switches[command.bridge]
        if isinstance(command, Apply):
            assert command.bridge not in self.outstanding, "one bundle at a time"
            self.outstanding.add(command.bridge)
        answers = switch.carry_out(command)
        if switch.holds_answers:
            switch.held += answers
        else:
            self._events += answers

    def _write(self, write: Write) -> None:
        error, self.refuse_writes = self.refuse_writes, None
        if error is None:
            for setting in write.settings:
                self._set(setting)
            self._events.append(self.read())
        if write.request_id is not None:
            self._events.append(Written(write.request_id, error))

    def _set(self, setting: Setting) -> None:
        for name, row in self.rows.items():
            if setting.table == "Bridge" and name == setting.record:
                if setting.column == "fail_mode":
                    self.rows[name] = replace(row, fail_mode=setting.value)
                else:
                    ids = _with(dict(row.external_ids), setting)
                    self.rows[name] = replace(row, external_ids=ids)
            elif setting.table in ("Interface", "Port"):
                self.rows[name] = replace(row, ports=tuple(_set_in(p, setting) for p in row.ports))


def _set_in(port: PortRow, setting: Setting) -> PortRow:
    if setting.table == "Port":
        mine = port.name == setting.record
        if mine and setting.column == "protected":
            return replace(port, protected=setting.value == "true")
        ids = _with(dict(port.external_ids), setting) if mine else port.external_ids
        return replace(port, external_ids=ids)

    def written(one: InterfaceRow) -> InterfaceRow:
        mine = one.name == setting.record
        return replace(one, external_ids=_with(dict(one.external_ids), setting)) if mine else one

    return port.with_interfaces(written)


def _with(ids: dict[str, str], setting: Setting) -> dict[str, str]:
    if setting.value is None:
        ids.pop(setting.key, None)
    else:
        ids[setting.key] = setting.value
    return ids


def world(row: BridgeRow, speed_bps: float = 10e9, **switch: object) -> World:
    """A world of one bridge whose switch has the ports of its record, all of them up."""
    made = World(row)
    ports = {
        interface.ofport: PortState(interface.ofport, interface.name, up=True, speed_bps=speed_bps)
        for interface in row.interfaces
        if interface.ofport is not None
    }
    made.switches[row.name] = FakeSwitch(ports, **switch)  # type: ignore[arg-type]
    return made


def refusal(reply: Reply | None) -> str:
    assert reply is not None and reply.refused
    return reply.text


def done(reply: Reply | None) -> str:
    assert reply is not None and not reply.refused, reply
    return reply.text


def reports(here: World, level: str) -> list[str]:
    return [c.text for _, c in here.log if isinstance(c, Report) and c.level == level]


def moves(here: World) -> dict[str, int]:
    return {reason: n for reason, n in here.status.moves_applied.items() if n}
