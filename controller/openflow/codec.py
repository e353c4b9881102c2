"""The only encoder and decoder of OpenFlow messages: specs and events on our side."""

from __future__ import annotations

import functools
import hashlib
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Generic, TypeVar

from controller.api.events import (
    Apply,
    DeliverFrame,
    Event,
    ForeignFlow,
    InboundRead,
    InstalledRead,
    LearnedRead,
    PortCounters,
    PortState,
    PortStatsRead,
    ReadInbound,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    Renew,
    Sample,
    SendFrame,
    UnitCountersRead,
)
from controller.dataplane.specs import (
    Action,
    Bucket,
    CopyBits,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LearnMatch,
    LoadBits,
    MatchValue,
    Multipath,
    Output,
    PopVlan,
    PushVlan,
    Resubmit,
    SetField,
    ToGroup,
)
from controller.dataplane.tables import (
    COOKIE_KIND_MASK,
    FROM_BENEATH,
    GROUP_IDS,
    OFPP_LOCAL,
    Kind,
    Register,
    Table,
    cookie,
    cookie_bucket,
    cookie_inbound,
    cookie_kind,
    cookie_ofport,
    openflow_port,
)
from controller.openflow import framing
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser
from policies.model import OFPORT_LOCAL

ETH_VLAN = 0x8100
# NXFF: the learned flow goes when the flow with the learn action goes (nicira-ext.h).
NX_LEARN_F_DELETE_LEARNED = 2
# The action says by a bit whether the flow it wants is there.
NX_LEARN_F_WRITE_RESULT = 4
# NXAST_LEARN2, for which the framework has no class: a learn action with a limit, and the
# bit for the result, behind the fixed part of the body (nx_action_learn2).
NXAST_LEARN2 = 45
LEARN_FIXED_BYTES = 22
ROLE = struct.Struct("!I")
LEARN2_LIMIT = struct.Struct("!IH2x")
BUNDLE_FLAGS = ofp.ONF_BF_ATOMIC | ofp.ONF_BF_ORDERED
GROUP_TYPES = {"ff": ofp.OFPGT_FF, "all": ofp.OFPGT_ALL}
GROUP_KINDS = {number: kind for kind, number in GROUP_TYPES.items()}
ALL_BITS = 0xFFFFFFFFFFFFFFFF
# Stands for actions that we know nothing of: it equals none of ours.
NOT_OURS: tuple[Action, ...] = (Output(ofp.OFPP_ANY),)
LEARNING_TABLES = (Table.LOCATION, Table.LOCAL_SOURCE, Table.LOCK)
# nx_hash_fields and nx_mp_algorithm (nicira-ext.h); the framework does not name all of them.
HASH_FIELDS = {"eth_src": 0, "symmetric_l3l4+udp": 3}
HASH_FIELD_NAMES = {number: name for name, number in HASH_FIELDS.items()}
NX_MP_ALG_MODULO_N = 0
WHOLE_REGISTER = 31  # ofs_nbits: bits 0 to 31
IN_PORT_TABLE = 0xFFF8  # NXAST_RESUBMIT_TABLE: keep the ingress port


class Asked(IntEnum):
    """Transaction ids by which a statistics reply says what it answers."""

    FLOWS = 0x6C000001
    GROUPS = 0x6C000002
    PORTS = 0x6C000003
    TO_VM = 0x6C000004
    FROM_VM = 0x6C000005
    LEARNED = 0x6C000006
    BUCKETS = 0x6C000007
    TO_ADDRESS = 0x6C000008
    FROM_ADDRESS = 0x6C000009
    INBOUND = 0x6C00000A


# All messages of a bundle carry this plus the bundle's number, so that any error tells it.
BUNDLE_XID = 0x6D000000
BUNDLE_NUMBER_MASK = 0xFFFFFF

# What a switch reports that has not been told any generation since it was started.
NO_GENERATION = ALL_BITS
# OFPRAW_ONFT13_ROLE_STATUS: OpenFlow 1.4's, as an extension of 1.3.
ONF_EXPERIMENTER, ROLE_STATUS = 0x4F4E4600, 1911

# ---- encoding --------------------------------------------------------------------------


def set_async(datapath: Any) -> list[Any]:
    """Ask for port status messages and for little else that is not an answer."""
    all_reasons = 7
    return [
        parser.OFPSetAsync(
            datapath,
            packet_in_mask=[0, 0],
            port_status_mask=[all_reasons, all_reasons],
            flow_removed_mask=[0, 0],
        )
    ]


def ask_role(datapath: Any) -> list[Any]:
    """Ask for our role and the generation of the last master, and change neither."""
    return [parser.OFPRoleRequest(datapath, ofp.OFPCR_ROLE_NOCHANGE, 0)]


def claim(datapath: Any, generation: int) -> list[Any]:
    """Ask to be the bridge's master, whose changes alone are taken."""
    return [parser.OFPRoleRequest(datapath, ofp.OFPCR_ROLE_MASTER, generation)]


def read_installed(datapath: Any, _command: ReadInstalled) -> list[Any]:
    """Flows first, then groups: the answer is complete when the groups are."""
    groups = parser.OFPGroupDescStatsRequest(datapath, 0)
    return [_flow_stats(datapath, Asked.FLOWS, 0, 0), _with_xid(groups, Asked.GROUPS)]


def read_stats(datapath: Any, command: ReadStats) -> list[Any]:
    """Ports first, then what buckets sent, then what VM ports got from uplinks and sent."""
    buckets = _unit_stats(datapath, Asked.BUCKETS, Kind.BUCKET, Table.BUCKET)
    stations = [
        _unit_stats(datapath, Asked.TO_ADDRESS, Kind.TO_ADDRESS, Table.EGRESS),
        _unit_stats(datapath, Asked.FROM_ADDRESS, Kind.FROM_ADDRESS, Table.HASH),
    ]
    units = [
        *([buckets] if command.buckets else []),
        *(stations if command.stations else []),
        _unit_stats(datapath, Asked.TO_VM, Kind.TO_VM, Table.EGRESS),
        _unit_stats(datapath, Asked.FROM_VM, Kind.FROM_VM, Table.UPLINK_OUT),
    ]
    ports = _with_xid(parser.OFPPortStatsRequest(datapath, 0, ofp.OFPP_ANY), Asked.PORTS)
    return [ports, *units] if command.units else [ports]


def read_inbound(datapath: Any, command: ReadInbound) -> list[Any]:
    """Of one VM port, if it is one; else of all: there are as many flows as VM ports and uplinks."""
    value, mask = cookie(Kind.INBOUND, 0), COOKIE_KIND_MASK
    if len(command.ofports) == 1:
        value, mask = value | command.ofports[0], mask | 0xFFFF
    return [_flow_stats(datapath, Asked.INBOUND, value, mask, Table.INBOUND)]


def read_learned(datapath: Any, _command: ReadLearned) -> list[Any]:
    return [_unit_stats(datapath, Asked.LEARNED, Kind.LEARNED, Table.LOCATION)]


def send_frame(datapath: Any, command: SendFrame) -> list[Any]:
    return [
        parser.OFPPacketOut(
            datapath,
            buffer_id=ofp.OFP_NO_BUFFER,
            in_port=openflow_port(command.ofport),
            actions=[parser.OFPActionOutput(ofp.OFPP_TABLE)],
            data=command.frame,
        )
    ]


def renew(datapath: Any, command: Renew) -> list[Any]:
    """Modifying a flow starts its timeouts anew, and never adds one that is not there."""
    return [
        _flow_mod(datapath, ofp.OFPFC_MODIFY_STRICT, flow, cookie_mask=ALL_BITS)
        for flow in command.flows
    ]


def deliver_frame(datapath: Any, command: DeliverFrame) -> list[Any]:
    return [
        parser.OFPPacketOut(
            datapath,
            buffer_id=ofp.OFP_NO_BUFFER,
            in_port=ofp.OFPP_CONTROLLER,
            actions=[parser.OFPActionOutput(openflow_port(command.ofport))],
            data=command.frame,
        )
    ]


def apply_changes(datapath: Any, command: Apply) -> list[Any]:
    """One atomic bundle: all of the changes or none of them."""

    def control(kind: int) -> Any:
        return parser.ONFBundleCtrlMsg(datapath, command.bundle_id, kind, BUNDLE_FLAGS, [])

    def add(message: Any) -> Any:
        return parser.ONFBundleAddMsg(datapath, command.bundle_id, BUNDLE_FLAGS, message, [])

    changes = command.changes
    mods = [_group_mod(datapath, ofp.OFPGC_ADD, group) for group in changes.add_groups]
    mods += [_group_mod(datapath, ofp.OFPGC_MODIFY, group) for group in changes.modify_groups]
    mods += [_flow_mod(datapath, ofp.OFPFC_ADD, flow) for flow in changes.add_flows]
    mods += [_flow_mod(datapath, ofp.OFPFC_DELETE_STRICT, flow) for flow in changes.delete_flows]
    if changes.forget:
        mods.append(_forget_learned(datapath))
    mods += [
        parser.OFPGroupMod(datapath, ofp.OFPGC_DELETE, ofp.OFPGT_ALL, group_id, [])
        for group_id in changes.delete_groups
    ]
    messages = [
        control(ofp.ONF_BCT_OPEN_REQUEST),
        *map(add, mods),
        control(ofp.ONF_BCT_COMMIT_REQUEST),
    ]
    return [_with_xid(message, BUNDLE_XID | command.bundle_id) for message in messages]


def _forget_learned(datapath: Any) -> Any:
    return parser.OFPFlowMod(
        datapath,
        cookie=cookie(Kind.LEARNED, 0),
        cookie_mask=COOKIE_KIND_MASK,
        table_id=ofp.OFPTT_ALL,
        command=ofp.OFPFC_DELETE,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=parser.OFPMatch(),
    )


def _with_xid(message: Any, xid: int) -> Any:
    message.set_xid(int(xid))
    return message


def _unit_stats(datapath: Any, asked: Asked, kind: Kind, table: Table) -> Any:
    return _flow_stats(datapath, asked, cookie(kind, 0), COOKIE_KIND_MASK, table)


def _flow_stats(
    datapath: Any, asked: Asked, value: int, mask: int, table: int = ofp.OFPTT_ALL
) -> Any:
    request = parser.OFPFlowStatsRequest(
        datapath,
        flags=0,
        table_id=int(table),
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        cookie=value,
        cookie_mask=mask,
        match=parser.OFPMatch(),
    )
    return _with_xid(request, asked)


def _flow_mod(datapath: Any, command: int, flow: FlowSpec, cookie_mask: int = 0) -> Any:
    instructions = []
    if flow.actions:
        actions = [_encode_action(action) for action in flow.actions]
        instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    if flow.goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(int(flow.goto)))
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        cookie_mask=cookie_mask,
        table_id=int(flow.table),
        command=command,
        hard_timeout=flow.hard_timeout_s,
        priority=flow.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=parser.OFPMatch(**dict(flow.match)),
        instructions=instructions,
    )


def _group_mod(datapath: Any, command: int, group: GroupSpec) -> Any:
    buckets = [
        parser.OFPBucket(
            watch_port=ofp.OFPP_ANY if bucket.watch_port is None else bucket.watch_port,
            watch_group=ofp.OFPG_ANY,
            actions=[_encode_action(action) for action in bucket.actions],
        )
        for bucket in group.buckets
    ]
    return parser.OFPGroupMod(datapath, command, GROUP_TYPES[group.kind], group.group_id, buckets)


def _encode_action(action: Action) -> Any:
    match action:
        case Output(port=port):
            return parser.OFPActionOutput(port)
        case ToGroup(group_id=group_id):
            return parser.OFPActionGroup(group_id)
        case SetField(field=field, value=value):
            return parser.OFPActionSetField(
                **{field: value if isinstance(value, str) else int(value)}
            )
        case CopyBits(source=source, target=target, bits=bits):
            return parser.NXActionRegMove(
                source, target, bits, src_ofs=action.source_bit, dst_ofs=action.target_bit
            )
        case LoadBits(target=target, bits=bits, value=value):
            ofs_nbits = action.target_bit << 6 | (bits - 1)
            return parser.NXActionRegLoad(ofs_nbits=ofs_nbits, dst=target, value=value)
        case PushVlan():
            return parser.OFPActionPushVlan(ETH_VLAN)
        case PopVlan():
            return parser.OFPActionPopVlan()
        case Resubmit(table=table):
            return parser.NXActionResubmitTable(in_port=IN_PORT_TABLE, table_id=int(table))
        case Learn():
            return _encode_learn(action)
        case Multipath(fields=fields, buckets=buckets, target=target, basis=basis):
            return parser.NXActionMultipath(
                fields=HASH_FIELDS[fields],
                basis=basis,
                algorithm=NX_MP_ALG_MODULO_N,
                max_link=buckets - 1,
                arg=0,
                ofs_nbits=WHOLE_REGISTER,
                dst=target,
            )


def _encode_learn(action: Learn) -> Any:
    flags = NX_LEARN_F_DELETE_LEARNED if action.delete_learned else 0
    flags |= NX_LEARN_F_WRITE_RESULT if action.success else 0
    learn = parser.NXActionLearn(
        table_id=int(action.table),
        specs=[_encode_learn_spec(spec) for spec in action.specs],
        hard_timeout=action.hard_timeout_s,
        priority=action.priority,
        cookie=action.cookie,
        flags=flags,
    )
    if not action.limit and action.success is None:
        return learn
    body = learn.serialize_body()
    limit = bytearray(LEARN2_LIMIT.pack(action.limit, 0))
    if action.success is not None:
        number = ofp.oxm_from_user_header(action.success)
        ofp.oxm_serialize_header(number, limit, len(limit))
    data = body[:LEARN_FIXED_BYTES] + limit + body[LEARN_FIXED_BYTES:]
    return parser.NXActionUnknown(NXAST_LEARN2, data)


def _encode_learn_spec(spec: LearnMatch | LearnLoad) -> Any:
    build = parser.NXFlowSpecMatch if isinstance(spec, LearnMatch) else parser.NXFlowSpecLoad
    source = spec.source if isinstance(spec.source, int) else (spec.source, 0)
    return build(src=source, dst=(spec.target, 0), n_bits=spec.bits)


# ---- decoding --------------------------------------------------------------------------


# More than any bridge has flows or ports; a reply that goes on is none.
MOST_BYTES = 1 << 26
# So many flows and groups that were read are known when they are read again: those of a bridge or
# two, of which a few have changed.
REMEMBERED = 1 << 12
STATISTICS = {Asked.PORTS: parser.OFPPortStatsReply, Asked.GROUPS: parser.OFPGroupDescStatsReply}
# ofp_port_stats and ofp_flow_stats, without what nobody looks at.
PORT_STATS = struct.Struct("!I4xQQQQQQ48xII")
FLOW_COUNTS = struct.Struct("!4xII12xQ8xQ")
# What changes from one reading of a flow to the next: its age, and what it has counted.
AGE, COUNTS = slice(4, 12), slice(32, 48)
TABLE_AT, TIMEOUT_AND_COOKIE = 2, struct.Struct("!16xH6xQ")

R = TypeVar("R")


class _Read(Generic[R]):
    """What a reply says, decoded only when it is not the same as the last one."""

    def __init__(self, decode: Callable[[list[bytes]], R]) -> None:
        self._decode = decode
        self._last: tuple[bytes, R] | None = None

    def of(self, parts: list[bytes]) -> R:
        """The very same object where nothing has changed."""
        # Each part begins with its length.
        digest = hashlib.blake2b(b"".join(parts), digest_size=16).digest()
        if self._last is None or self._last[0] != digest:
            self._last = digest, self._decode(parts)
        return self._last[1]


class Replies:
    """Puts statistics replies together and says what they mean; one for each connection.

    A reply comes in parts, and some answers need two replies: what is installed is flows
    and groups, what units exchanged is counted in either direction by another flow.
    """

    def __init__(self) -> None:
        self._bodies: dict[int, list[bytes]] = {asked: [] for asked in Asked}
        self._sizes: dict[int, int] = dict.fromkeys(Asked, 0)
        self._installed = _Read[_Flows](installed_flows)
        self._groups = _Read[tuple[GroupSpec, ...]](installed_groups)

    def event(self, bridge: str, message: Any) -> Event | None:
        """What this part of a reply completes, if it completes anything.

        Raises:
            Malformed: its lengths do not agree, or it is not of what was asked for.
            ValueError: it goes on and on, or cannot be read.
        """
        if message.xid not in self._bodies:
            return None
        expected = STATISTICS.get(message.xid, parser.OFPFlowStatsReply)
        if type(message) is not expected:
            found = f"statistics of type {message.cls_stats_type}"
            raise framing.Malformed(f"{found} -> {expected.cls_stats_type}")
        self._bodies[message.xid].append(message.body)
        self._sizes[message.xid] += len(message.body)
        if self._sizes[message.xid] > MOST_BYTES:
            raise ValueError(f"a reply of more than {MOST_BYTES} bytes")
        if message.flags & ofp.OFPMPF_REPLY_MORE:
            return None
        match message.xid:
            case Asked.GROUPS:
                flows, foreign, by_default = self._installed.of(lasting(self._take(Asked.FLOWS)))
                groups = self._groups.of(list(framing.groups(self._take(Asked.GROUPS))))
                return InstalledRead(bridge, flows, groups, foreign, by_default)
            case Asked.PORTS:
                return PortStatsRead(bridge, port_counters(self._take(Asked.PORTS)))
            case Asked.FROM_VM:
                counters = unit_counters(self._take(Asked.TO_VM), self._take(Asked.FROM_VM))
                buckets = bucket_counters(self._take(Asked.BUCKETS))
                to, sent = self._take(Asked.TO_ADDRESS), self._take(Asked.FROM_ADDRESS)
                return UnitCountersRead(bridge, counters, buckets, unit_counters(to, sent))
            case Asked.INBOUND:
                return InboundRead(bridge, inbound_counters(self._take(Asked.INBOUND)))
            case Asked.LEARNED:
                learned = [_read_flow(flow) for flow in framing.flows(self._take(Asked.LEARNED))]
                return LearnedRead(
                    bridge,
                    learned_addresses(learned),
                    learned_beneath(learned),
                    learned_elsewhere(learned),
                )
        return None

    def _take(self, asked: Asked) -> bytes:
        body, self._bodies[asked] = b"".join(self._bodies[asked]), []
        self._sizes[asked] = 0
        return body


def bundle_outcome(message: Any) -> int | None:
    """The number of the bundle that a message says was committed, if it says that."""
    return _bundle_number(message) if message.type == ofp.ONF_BCT_COMMIT_REPLY else None


def failed_bundle(message: Any) -> int | None:
    """The number of the bundle that an error message is about, if it is about one."""
    return _bundle_number(message)


def _bundle_number(message: Any) -> int | None:
    if message.xid & ~BUNDLE_NUMBER_MASK != BUNDLE_XID:
        return None
    return int(message.xid & BUNDLE_NUMBER_MASK)


class Unknown(Exception):
    """Something in our place that we did not put there."""


def lasting(body: bytes) -> list[bytes]:
    """Flows without what changes with time; not those that the switch learned itself.

    Raises:
        Malformed: lengths do not agree.
    """
    return [
        flow[: AGE.start] + flow[AGE.stop : COUNTS.start] + flow[COUNTS.stop :]
        for flow in framing.flows(body)
        if flow[TABLE_AT] not in LEARNING_TABLES or not _is_learned(flow)
    ]


def _is_learned(flow: bytes) -> bool:
    """Whether it ends by itself, where the switch learns; else somebody made it up."""
    hard_timeout_s, value = TIMEOUT_AND_COOKIE.unpack_from(flow)
    return hard_timeout_s > 0 and cookie_kind(value) is Kind.LEARNED


_Flows = tuple[tuple[FlowSpec, ...], tuple[ForeignFlow, ...], bool]


def installed_flows(parts: Iterable[bytes]) -> _Flows:
    """Flows of ours; others'; is there a default. `parts` are what `lasting` gives of them.

    Raises:
        Malformed: lengths do not agree.
        ValueError: a flow cannot be read.
    """
    found = [_installed_flow(flow) for flow in parts]
    ours = tuple(flow for flow in found if isinstance(flow, FlowSpec))
    foreign = tuple(flow for flow in found if isinstance(flow, ForeignFlow))
    return ours, foreign, None in found


@functools.lru_cache(REMEMBERED)
def _installed_flow(part: bytes) -> FlowSpec | ForeignFlow | None:
    """What a flow is, by what of it lasts; None: the default."""
    head, rest = part[: AGE.start], part[AGE.start :]
    fixed = COUNTS.start - AGE.stop
    flow = _read_flow(head + bytes(8) + rest[:fixed] + bytes(16) + rest[fixed:])
    if cookie_kind(flow.cookie) is not None:
        return _decode_flow(flow)
    if flow.table_id == 0 and flow.priority == 0 and len(flow.match.items()) == 0:
        return None
    return _foreign_flow(flow)


def _read_flow(flow: bytes) -> Any:
    """A flow as the framework reads it.

    Raises:
        Malformed: its lengths do not agree.
    """
    framing.check_flow(flow)
    return parser.OFPFlowStats.parser(flow, 0)


def installed_groups(parts: Iterable[bytes]) -> tuple[GroupSpec, ...]:
    """The groups in our range of ids.

    Raises:
        Malformed: lengths do not agree.
    """
    return tuple(group for group in map(_installed_group, parts) if group.group_id in GROUP_IDS)


@functools.lru_cache(REMEMBERED)
def _installed_group(described: bytes) -> GroupSpec:
    framing.check_group(described)
    return _decode_group(parser.OFPGroupDescStats.parser(described, 0))


def learned_addresses(stats: Iterable[Any]) -> tuple[tuple[int, str, int], ...]:
    """(ofport, MAC, VLAN) of every address learned on a VM port."""
    addresses = set()
    for flow in stats:
        ofport = cookie_ofport(flow.cookie)
        fields = dict(_decode_match(flow.match))
        beneath = flow.cookie & FROM_BENEATH
        if cookie_kind(flow.cookie) is Kind.LEARNED and ofport and not beneath:
            vlan = fields.get(Register.VLAN.field, 0)
            addresses.add((ofport, _address(fields), int(_exact(vlan))))
    return tuple(sorted(addresses))


def learned_elsewhere(stats: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    """(MAC, VLAN) of every address that was on a VM port and has announced itself elsewhere."""
    addresses = set()
    for flow in stats:
        if flow.cookie == cookie(Kind.LEARNED, 0):
            fields = dict(_decode_match(flow.match))
            vlan = _exact(fields.get(Register.VLAN.field, 0))
            addresses.add((_address(fields), vlan))
    return tuple(sorted(addresses))


def learned_beneath(stats: Iterable[Any]) -> tuple[tuple[int, str, int | None], ...]:
    """(ofport, MAC, VLAN) of every address learned from a port that we did not know."""
    addresses = set()
    for flow in stats:
        if cookie_kind(flow.cookie) is not Kind.LEARNED or not flow.cookie & FROM_BENEATH:
            continue
        fields = dict(_decode_match(flow.match))
        vlan = fields.get(Register.VLAN.field)
        tag = None if vlan is None else _exact(vlan)
        for action in _decode_flow(flow).actions:
            if isinstance(action, LoadBits) and action.target == Register.TARGET.field:
                addresses.add((action.value, _address(fields), tag))
    return tuple(sorted(addresses, key=lambda a: (a[0], a[1], a[2] or 0)))


def flow_counts(body: bytes) -> list[tuple[int, float, int]]:
    """Of each flow its cookie, its age in seconds and the bytes it has counted.

    Raises:
        Malformed: lengths do not agree.
    """
    found = map(FLOW_COUNTS.unpack_from, framing.flows(body))
    return [(cookie, sec + nsec / 1e9, count) for sec, nsec, cookie, count in found]


def unit_counters(to_vm: bytes, from_vm: bytes) -> tuple[tuple[int, Sample], ...]:
    """What each VM port sent by its uplink and got from uplinks, on its flow's clock.

    The same of addresses behind VM ports, by slot.
    """
    received = {cookie_ofport(cookie): count for cookie, _, count in flow_counts(to_vm)}
    sent = [(cookie_ofport(cookie), at_s, count) for cookie, at_s, count in flow_counts(from_vm)]
    return tuple(
        (ofport, Sample(at_s, count, received.get(ofport, 0))) for ofport, at_s, count in sent
    )


def bucket_counters(body: bytes) -> tuple[tuple[tuple[int, int], Sample], ...]:
    """What each bucket of a hash sent, by (hash, bucket); nothing comes in by one."""
    return tuple(
        (cookie_bucket(cookie), Sample(at_s, count, 0)) for cookie, at_s, count in flow_counts(body)
    )


def inbound_counters(body: bytes) -> tuple[tuple[int, int, int], ...]:
    """(ofport of a VM port, of an uplink, bytes that this brought for it)."""
    return tuple((*cookie_inbound(cookie), count) for cookie, _, count in flow_counts(body))


def port_counters(body: bytes) -> tuple[PortCounters, ...]:
    """What ports have counted.

    Raises:
        Malformed: that are not whole ports.
    """
    framing.check_ports(body)
    return tuple(
        # In the order of its fields: their names cost as much as all the rest.
        PortCounters(
            _ofport(number),
            sec + nsec / 1e9,
            tx_bytes,
            rx_bytes,
            tx_dropped,
            rx_dropped,
            tx_packets,
            rx_packets,
        )
        for (
            number,
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_dropped,
            tx_dropped,
            sec,
            nsec,
        ) in PORT_STATS.iter_unpack(body)
    )


def port_states(datapath: Any) -> tuple[PortState, ...]:
    """The ports that the handshake listed, as they have changed since."""
    with warnings.catch_warnings():
        # The framework warns that OpenFlow 1.3 has no ports in its features reply; it keeps
        # those of the port description there, which is what is meant.
        warnings.simplefilter("ignore")
        return tuple(map(port_state, tuple(datapath.ports.values())))


def port_state(port: Any) -> PortState:
    """`up` as fast failover groups take it: the link is there, and LACP, BFD and CFM agree."""
    down = bool(port.state & ofp.OFPPS_LINK_DOWN or port.config & ofp.OFPPC_PORT_DOWN)
    live = bool(port.state & ofp.OFPPS_LIVE)
    return PortState(
        ofport=_ofport(port.port_no),
        name=port.name.decode(errors="replace"),
        up=live and not down,
        speed_bps=port.curr_speed * 1e3,
        silent=not (live or down),
    )


def next_generation(generation: int) -> int:
    """The one above, as the switch compares them: by their distance with a sign."""
    return (generation + 1) & ALL_BITS


def is_master(message: Any) -> bool:
    """Whether a role reply says that we are."""
    return bool(message.role == ofp.OFPCR_ROLE_MASTER)


def says_deposed(message: Any) -> bool:
    """Whether a message says that another controller is the bridge's master now."""
    if message.msg_type == ofp.OFPT_ERROR:
        slave = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
        return (message.type, getattr(message, "code", None)) == slave
    about_role = (message.experimenter, message.exp_type) == (
        ONF_EXPERIMENTER,
        ROLE_STATUS,
    )
    # A role, 4 bytes, comes first.
    (role,) = ROLE.unpack_from(message.data) if about_role else (None,)
    return bool(role == ofp.OFPCR_ROLE_SLAVE)


def is_stale(message: Any) -> bool:
    """Whether an error says that somebody has claimed the bridge since we asked."""
    stale = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
    return (message.type, getattr(message, "code", None)) == stale


def error_text(message: Any) -> str:
    """An OpenFlow error in words; Open vSwitch reports those of bundles as an experimenter's."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter {message.experimenter:#x}, error {message.exp_type}"
    kind = ofp.ofp_error_type_to_str(message.type)
    return f"{kind}, {ofp.ofp_error_code_to_str(message.type, message.code)}"


def _ofport(port_no: int) -> int:
    return OFPORT_LOCAL if port_no == OFPP_LOCAL else int(port_no)


def _decode_flow(flow: Any) -> FlowSpec:
    actions: tuple[Action, ...] = ()
    goto = None
    for instruction in flow.instructions:
        if isinstance(instruction, parser.OFPInstructionActions):
            actions = _decode_actions(instruction.actions)
        elif isinstance(instruction, parser.OFPInstructionGotoTable):
            goto = instruction.table_id
        else:
            actions = NOT_OURS
    return FlowSpec(
        table=flow.table_id,
        priority=flow.priority,
        match=_decode_match(flow.match),
        actions=actions,
        goto=goto,
        cookie=flow.cookie,
    )


def _foreign_flow(flow: Any) -> ForeignFlow:
    match = ",".join(f"{name}={value}" for name, value in _decode_match(flow.match))
    actions = (a for i in flow.instructions for a in getattr(i, "actions", ()))
    groups = {int(a.group_id) for a in actions if isinstance(a, parser.OFPActionGroup)}
    return ForeignFlow(flow.table_id, flow.priority, flow.cookie, match, tuple(sorted(groups)))


def _decode_match(match: Any) -> tuple[tuple[str, MatchValue], ...]:
    return tuple(sorted((name.removesuffix("_nxm"), value) for name, value in match.items()))


def _address(fields: Mapping[str, MatchValue]) -> str:
    """The whole address that a learned flow is about.

    Raises:
        ValueError: there is none, or a mask with it.
    """
    found = fields.get("eth_dst")
    if not isinstance(found, str):
        raise ValueError(f"a learned flow for {found}")
    return found


def _exact(value: MatchValue) -> int:
    """A field's value where a mask of all ones, or of the bits in use, may come with it."""
    found = value[0] if isinstance(value, tuple) else value
    return int(found)


def _decode_group(group: Any) -> GroupSpec:
    buckets = tuple(
        Bucket(
            actions=_decode_actions(bucket.actions),
            watch_port=None if bucket.watch_port == ofp.OFPP_ANY else bucket.watch_port,
        )
        for bucket in group.buckets
    )
    return GroupSpec(group.group_id, GROUP_KINDS.get(group.type, "other"), buckets)


def _decode_actions(actions: Iterable[Any]) -> tuple[Action, ...]:
    """Actions as ours; where one is not, a spec that equals none of ours, so it is replaced."""
    try:
        return tuple(map(_decode_action, actions))
    except Unknown:
        return NOT_OURS


def _decode_action(action: Any) -> Action:
    decode = _DECODERS.get(type(action))
    if decode is None:
        raise Unknown(repr(action))
    return decode(action)


def _decode_learn(action: Any, limit: int = 0, success: str | None = None) -> Learn:
    return Learn(
        table=action.table_id,
        cookie=action.cookie,
        hard_timeout_s=action.hard_timeout,
        specs=tuple(_decode_learn_specs(action.specs)),
        delete_learned=bool(action.flags & NX_LEARN_F_DELETE_LEARNED),
        priority=action.priority,
        limit=limit,
        success=success,
    )


def _decode_unknown(action: Any) -> Learn:
    """What the framework has no class for: of ours, that is learning with a limit."""
    if action._subtype != NXAST_LEARN2:
        raise Unknown(repr(action))
    fixed, rest = action.data[:LEARN_FIXED_BYTES], action.data[LEARN_FIXED_BYTES:]
    limit, _ = LEARN2_LIMIT.unpack_from(rest)
    rest = rest[LEARN2_LIMIT.size :]
    success = None
    learn = parser.NXActionLearn.parser(fixed)
    if learn.flags & NX_LEARN_F_WRITE_RESULT:
        number, length = ofp.oxm_parse_header(rest, 0)
        success = ofp.oxm_to_user_header(number).removesuffix("_nxm")
        rest = rest[length:]
    return _decode_learn(parser.NXActionLearn.parser(fixed + rest), limit, success)


def _decode_learn_specs(specs: Iterable[Any]) -> Iterator[LearnMatch | LearnLoad]:
    for spec in specs:
        build: Any = LearnMatch if isinstance(spec, parser.NXFlowSpecMatch) else LearnLoad
        source = spec.src if isinstance(spec.src, int) else spec.src[0].removesuffix("_nxm")
        yield build(source, spec.dst[0].removesuffix("_nxm"), spec.n_bits)


def _decode_move(action: Any) -> CopyBits:
    return CopyBits(
        action.src_field.removesuffix("_nxm"),
        action.src_ofs,
        action.dst_field.removesuffix("_nxm"),
        action.dst_ofs,
        action.n_bits,
    )


def _decode_load(action: Any) -> LoadBits:
    bits = (action.ofs_nbits & 0x3F) + 1
    return LoadBits(action.dst, action.ofs_nbits >> 6, bits, action.value)


def _decode_multipath(action: Any) -> Multipath:
    how = (action.algorithm, action.arg, action.ofs_nbits)
    if how != (NX_MP_ALG_MODULO_N, 0, WHOLE_REGISTER) or action.fields not in HASH_FIELD_NAMES:
        raise Unknown(repr(action))
    target = action.dst.removesuffix("_nxm")
    name = HASH_FIELD_NAMES[action.fields]
    return Multipath(name, action.max_link + 1, target, action.basis)


_DECODERS: dict[type, Callable[[Any], Action]] = {
    parser.OFPActionOutput: lambda a: Output(a.port),
    parser.OFPActionGroup: lambda a: ToGroup(a.group_id),
    parser.OFPActionSetField: lambda a: SetField(a.key.removesuffix("_nxm"), a.value),
    parser.NXActionRegMove: _decode_move,
    parser.NXActionRegLoad: _decode_load,
    parser.OFPActionPushVlan: lambda _: PushVlan(),
    parser.OFPActionPopVlan: lambda _: PopVlan(),
    parser.NXActionResubmitTable: lambda a: Resubmit(a.table_id),
    parser.NXActionLearn: _decode_learn,
    parser.NXActionMultipath: _decode_multipath,
    parser.NXActionUnknown: _decode_unknown,
}

ENCODERS: dict[type, Callable[[Any, Any], list[Any]]] = {
    ReadInstalled: read_installed,
    ReadStats: read_stats,
    ReadInbound: read_inbound,
    ReadLearned: read_learned,
    Renew: renew,
    SendFrame: send_frame,
    DeliverFrame: deliver_frame,
    Apply: apply_changes,
}
