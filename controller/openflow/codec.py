"""Encodes flows, groups and actions as OpenFlow messages, and decodes the ones that a switch reports."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from controller.api.events import ForeignFlow
from controller.dataplane import specs
from controller.dataplane.drops import TABLES, Dropped, dropped_by
from controller.dataplane.tables import GROUP_IDS, Kind, Register, Table, cookie_kind
from controller.openflow import framing
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser

ETH_VLAN = 0x8100
# OpenFlow 1.3 cannot express the selection method of a `select` group: see side_connection.py.
GROUP_TYPES = {"ff": ofp.OFPGT_FF, "all": ofp.OFPGT_ALL}

# Numbers of Open vSwitch's extensions, as in its nicira-ext.h.
# The switch deletes the learned flows together with the flow that has the learn action.
NX_LEARN_F_DELETE_LEARNED = 2
# The learn action sets a bit to 1 if the learned flow exists afterwards.
NX_LEARN_F_WRITE_RESULT = 4
# NXAST_LEARN2 is a learn action with a limit and the bit for the result, which follow the fixed part
# of the body (nx_action_learn2). The framework has no class for this action.
NXAST_LEARN2 = 45
LEARN_FIXED_BYTES = 22
LEARN2_LIMIT = struct.Struct("!IH2x")
# nx_hash_fields and nx_mp_algorithm. The framework does not name all of them.
HASH_FIELDS = {"eth_src": 0, "symmetric_l3l4+udp": 3}
NX_MP_ALG_MODULO_N = 0
WHOLE_REGISTER = 31  # ofs_nbits: bits 0 to 31
IN_PORT_TABLE = 0xFFF8  # NXAST_RESUBMIT_TABLE: keep the ingress port
# The controller ID of this service, in the action that sends frames to the service. So other controllers,
# whose ID is 0 unless they request another ID, do not get these frames.
CONTROLLER_ID = 0x6C62
WHOLE_FRAME = 0xFFFF

# Replaces unknown actions. The service never installs this action.
NOT_OURS: tuple[specs.Action, ...] = (specs.Output(ofp.OFPP_ANY),)
LEARNING_TABLES = (
    Table.LOCATION,
    Table.LOCAL_SOURCE,
    Table.LOCK,
    Table.SPOKEN,
    Table.MEMBERSHIP,
    Table.PORT_OUT,
)
HASH_FIELD_NAMES = {number: name for name, number in HASH_FIELDS.items()}
GROUP_KINDS = {ofp.OFPGT_SELECT: "select", **{number: kind for kind, number in GROUP_TYPES.items()}}
# The bytes of a flow that change from one reading to the next: the age and the counters.
AGE, COUNTS = slice(4, 12), slice(32, 48)
TABLE_AT, TIMEOUT_AND_COOKIE = 2, struct.Struct("!16xH6xQ")
PACKETS = struct.Struct("!32xQ")
# The fields for which ovs-ofctl has names of its own.
OFCTL_NAMES = {
    "icmpv4_code": "icmp_code",
    "icmpv4_type": "icmp_type",
    "ipv4_dst": "nw_dst",
    "ipv4_src": "nw_src",
    "ipv6_flabel": "ipv6_label",
    "ipv6_nd_sll": "nd_sll",
    "ipv6_nd_target": "nd_target",
    "ipv6_nd_tll": "nd_tll",
    "tun_ipv4_dst": "tun_dst",
    "tun_ipv4_src": "tun_src",
}
# The tables in which frames are counted with each reading of all flows.
COUNTED = TABLES | {Table.DELIVERY}


def flow_mod(datapath: Any, command: int, flow: specs.FlowSpec, cookie_mask: int = 0) -> Any:
    """Encode a flow mod. `command`: one of the constants OFPFC_*."""
    instructions = []
    if flow.actions:
        actions = [encode_action(action) for action in flow.actions]
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
        match=_encode_match(flow.match),
        instructions=instructions,
    )


def _encode_match(match: specs.Match) -> Any:
    fields = dict(match)
    if "ip_frag" in fields:
        # The framework sorts fields by number, and the switch expects the EtherType first. The
        # EtherType's Nicira (NXM) number is lower than that of ip_frag.
        fields["eth_type_nxm"] = fields.pop("eth_type")
    return parser.OFPMatch(**fields)


def group_mod(datapath: Any, command: int, group: specs.GroupSpec) -> Any:
    """Encode a group mod. `command`: one of the constants OFPGC_*."""
    buckets = [
        parser.OFPBucket(
            watch_port=ofp.OFPP_ANY if bucket.watch_port is None else bucket.watch_port,
            watch_group=ofp.OFPG_ANY if bucket.watch_group is None else bucket.watch_group,
            actions=[encode_action(action) for action in bucket.actions],
        )
        for bucket in group.buckets
    ]
    return parser.OFPGroupMod(datapath, command, GROUP_TYPES[group.kind], group.group_id, buckets)


def encode_action(action: specs.Action) -> Any:
    match action:
        case specs.Output(port=port):
            return parser.OFPActionOutput(port)
        case specs.ToController():
            return parser.NXActionController(WHOLE_FRAME, CONTROLLER_ID, ofp.OFPR_ACTION)
        case specs.ToGroup(group_id=group_id):
            return parser.OFPActionGroup(group_id)
        case specs.SetField(field=field, value=value):
            return parser.OFPActionSetField(
                **{field: value if isinstance(value, str) else int(value)}
            )
        case specs.CopyBits(source=source, target=target, bits=bits):
            return parser.NXActionRegMove(
                source, target, bits, src_ofs=action.source_bit, dst_ofs=action.target_bit
            )
        case specs.LoadBits(target=target, bits=bits, value=value):
            ofs_nbits = action.target_bit << 6 | (bits - 1)
            return parser.NXActionRegLoad(ofs_nbits=ofs_nbits, dst=target, value=value)
        case specs.PushVlan():
            return parser.OFPActionPushVlan(ETH_VLAN)
        case specs.PopVlan():
            return parser.OFPActionPopVlan()
        case specs.Resubmit(table=table):
            return parser.NXActionResubmitTable(in_port=IN_PORT_TABLE, table_id=int(table))
        case specs.Learn():
            return _encode_learn(action)
        case specs.Multipath(fields=fields, buckets=buckets, target=target, basis=basis):
            return parser.NXActionMultipath(
                fields=HASH_FIELDS[fields],
                basis=basis,
                algorithm=NX_MP_ALG_MODULO_N,
                max_link=buckets - 1,
                arg=0,
                ofs_nbits=WHOLE_REGISTER,
                dst=target,
            )


def _encode_learn(action: specs.Learn) -> Any:
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


def _encode_learn_spec(spec: specs.LearnMatch | specs.LearnLoad) -> Any:
    build = parser.NXFlowSpecMatch if isinstance(spec, specs.LearnMatch) else parser.NXFlowSpecLoad
    source = spec.source if isinstance(spec.source, int) else (spec.source, 0)
    return build(src=source, dst=(spec.target, 0), n_bits=spec.bits)


# ---- decoding -----------------------------------------------------------------------------


class Unknown(Exception):
    """Raised when decoding an action that the service never installs."""


def lasting(body: bytes) -> tuple[list[bytes], list[int]]:
    """Split the body of a flow statistics reply into flows. Omit learned flows, ages and counters.

    Return each flow's bytes, and the frame count of each flow in the tables `COUNTED`.

    Raises:
        Malformed: the length of a flow does not fit the body.
    """
    parts: list[bytes] = []
    counted: list[int] = []
    for flow in framing.split(body, framing.FLOW_LEAST_BYTES):
        table_id = flow[TABLE_AT]
        if table_id in LEARNING_TABLES and _is_learned(flow):
            continue
        parts.append(flow[: AGE.start] + flow[AGE.stop : COUNTS.start] + flow[COUNTS.stop :])
        if table_id in COUNTED:
            counted += PACKETS.unpack_from(flow)
    return parts, counted


def _is_learned(flow: bytes) -> bool:
    """Whether the switch learned this flow. Among our flows, only learned flows have a timeout."""
    hard_timeout_s, value = TIMEOUT_AND_COOKIE.unpack_from(flow)
    return hard_timeout_s > 0 and cookie_kind(value) in (Kind.LEARNED, Kind.OUTSIDE)


class Flows(NamedTuple):
    """The flows on a switch.

    `by_default`: whether the switch has its default flow. `counting`: for each flow in tables
    `COUNTED`, the ofport of the uplink from which the flow floods frames to VM ports, or the port
    and the reason if the flow drops frames; None for any other flow.
    """

    ours: tuple[specs.FlowSpec, ...]
    foreign: tuple[ForeignFlow, ...]
    by_default: bool
    counting: tuple[int | Dropped | None, ...]


def installed_flow(part: bytes) -> specs.FlowSpec | ForeignFlow | None:
    """Decode a flow from `lasting`. Return None for the switch's default flow.

    Raises:
        Malformed: lengths inside the flow are inconsistent.
        ValueError: the framework cannot parse the flow.
    """
    head, rest = part[: AGE.start], part[AGE.start :]
    fixed = COUNTS.start - AGE.stop
    flow = read_flow(head + bytes(8) + rest[:fixed] + bytes(16) + rest[fixed:])
    if cookie_kind(flow.cookie) is not None:
        return decode_flow(flow)
    if flow.table_id == 0 and flow.priority == 0 and len(flow.match.items()) == 0:
        return None
    return _foreign_flow(flow)


def installed_flows(
    parts: Collection[bytes],
    decode: Callable[[bytes], specs.FlowSpec | ForeignFlow | None] = installed_flow,
) -> Flows:
    """Decode each flow from `lasting` with `decode`, and raise any error that `decode` raises."""
    found = [decode(flow) for flow in parts]
    ours = tuple(flow for flow in found if isinstance(flow, specs.FlowSpec))
    foreign = tuple(flow for flow in found if isinstance(flow, ForeignFlow))
    flows = zip(parts, found, strict=True)
    counting = tuple(_counts(flow) for part, flow in flows if part[TABLE_AT] in COUNTED)
    return Flows(ours, foreign, None in found, counting)


def _counts(flow: specs.FlowSpec | ForeignFlow | None) -> int | Dropped | None:
    """Return what a flow counts, as in `Flows.counting`."""
    if not isinstance(flow, specs.FlowSpec):
        return None
    if flow.table in TABLES:
        return dropped_by(flow)
    uplink = dict(flow.match).get(Register.UPLINK)
    return uplink if isinstance(uplink, int) else None


def read_flow(flow: bytes) -> Any:
    """Parse a flow with the framework.

    Raises:
        Malformed: lengths inside the flow are inconsistent.
    """
    framing.check_flow(flow)
    return parser.OFPFlowStats.parser(flow, 0)


def installed_group(part: bytes) -> specs.GroupSpec:
    """Decode a group description.

    Raises:
        Malformed: lengths inside the description are inconsistent.
    """
    framing.check_group(part)
    group = parser.OFPGroupDescStats.parser(part, 0)
    buckets = tuple(
        specs.Bucket(
            actions=_decode_actions(bucket.actions),
            watch_port=None if bucket.watch_port == ofp.OFPP_ANY else bucket.watch_port,
            watch_group=None if bucket.watch_group == ofp.OFPG_ANY else bucket.watch_group,
        )
        for bucket in group.buckets
    )
    return specs.GroupSpec(group.group_id, GROUP_KINDS.get(group.type, "other"), buckets)


def installed_groups(
    parts: Iterable[bytes], decode: Callable[[bytes], specs.GroupSpec] = installed_group
) -> tuple[specs.GroupSpec, ...]:
    """Decode group descriptions with `decode`, and return the groups whose IDs ovs-lbt uses."""
    return tuple(group for group in map(decode, parts) if group.group_id in GROUP_IDS)


def decode_flow(flow: Any) -> specs.FlowSpec:
    """Convert a flow parsed by the framework to a `FlowSpec`."""
    actions: tuple[specs.Action, ...] = ()
    goto = None
    for instruction in flow.instructions:
        if isinstance(instruction, parser.OFPInstructionActions):
            actions = _decode_actions(instruction.actions)
        elif isinstance(instruction, parser.OFPInstructionGotoTable):
            goto = instruction.table_id
        else:
            actions = NOT_OURS
    return specs.FlowSpec(
        table=flow.table_id,
        priority=flow.priority,
        match=decode_match(flow.match),
        actions=actions,
        goto=goto,
        cookie=flow.cookie,
    )


def _foreign_flow(flow: Any) -> ForeignFlow:
    match = ",".join(
        f"{OFCTL_NAMES.get(name, name)}={_ofctl_value(value)}"
        for name, value in decode_match(flow.match)
    )
    actions = (a for i in flow.instructions for a in getattr(i, "actions", ()))
    groups = {int(a.group_id) for a in actions if isinstance(a, parser.OFPActionGroup)}
    return ForeignFlow(flow.table_id, flow.priority, flow.cookie, match, tuple(sorted(groups)))


def _ofctl_value(value: specs.MatchValue) -> str:
    """Return a field's value, with its mask, if any, in the syntax of ovs-ofctl."""
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def decode_match(match: Any) -> tuple[tuple[str, specs.MatchValue], ...]:
    """Return a parsed match's fields and values, sorted, with the field names of `FlowSpec`."""
    return tuple(sorted((name.removesuffix("_nxm"), value) for name, value in match.items()))


def _decode_actions(actions: Iterable[Any]) -> tuple[specs.Action, ...]:
    """Decode actions. Return `NOT_OURS` if one of them is unknown, so that the flow is replaced."""
    try:
        return tuple(_DECODERS.get(type(action), _decode_unknown)(action) for action in actions)
    except Unknown:
        return NOT_OURS


def _decode_learn(action: Any, limit: int = 0, success: str | None = None) -> specs.Learn:
    return specs.Learn(
        table=action.table_id,
        cookie=action.cookie,
        hard_timeout_s=action.hard_timeout,
        specs=tuple(_decode_learn_specs(action.specs)),
        delete_learned=bool(action.flags & NX_LEARN_F_DELETE_LEARNED),
        priority=action.priority,
        limit=limit,
        success=success,
    )


def _decode_unknown(action: Any) -> specs.Learn:
    """Decode an NXAST_LEARN2 action, the only one of our actions without a class in the framework.

    Raises:
        Unknown: the action has another type.
    """
    if type(action) is not parser.NXActionUnknown or action._subtype != NXAST_LEARN2:
        raise Unknown
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


def _decode_learn_specs(parts: Iterable[Any]) -> Iterator[specs.LearnMatch | specs.LearnLoad]:
    for spec in parts:
        build: Any = (
            specs.LearnMatch if isinstance(spec, parser.NXFlowSpecMatch) else specs.LearnLoad
        )
        source = spec.src if isinstance(spec.src, int) else spec.src[0].removesuffix("_nxm")
        yield build(source, spec.dst[0].removesuffix("_nxm"), spec.n_bits)


def _decode_move(action: Any) -> specs.CopyBits:
    return specs.CopyBits(
        action.src_field.removesuffix("_nxm"),
        action.src_ofs,
        action.dst_field.removesuffix("_nxm"),
        action.dst_ofs,
        action.n_bits,
    )


def _decode_load(action: Any) -> specs.LoadBits:
    bits = (action.ofs_nbits & 0x3F) + 1
    return specs.LoadBits(action.dst, action.ofs_nbits >> 6, bits, action.value)


def _decode_multipath(action: Any) -> specs.Multipath:
    how = (action.algorithm, action.arg, action.ofs_nbits)
    if how != (NX_MP_ALG_MODULO_N, 0, WHOLE_REGISTER) or action.fields not in HASH_FIELD_NAMES:
        raise Unknown
    target = action.dst.removesuffix("_nxm")
    name = HASH_FIELD_NAMES[action.fields]
    return specs.Multipath(name, action.max_link + 1, target, action.basis)


def _decode_controller(action: Any) -> specs.ToController:
    if (action.max_len, action.controller_id) != (WHOLE_FRAME, CONTROLLER_ID):
        raise Unknown
    return specs.ToController()


_DECODERS: dict[type, Callable[[Any], specs.Action]] = {
    parser.OFPActionOutput: lambda a: specs.Output(a.port),
    parser.OFPActionGroup: lambda a: specs.ToGroup(a.group_id),
    parser.OFPActionSetField: lambda a: specs.SetField(a.key.removesuffix("_nxm"), a.value),
    parser.NXActionRegMove: _decode_move,
    parser.NXActionRegLoad: _decode_load,
    parser.OFPActionPushVlan: lambda _: specs.PushVlan(),
    parser.OFPActionPopVlan: lambda _: specs.PopVlan(),
    parser.NXActionResubmitTable: lambda a: specs.Resubmit(a.table_id),
    parser.NXActionLearn: _decode_learn,
    parser.NXActionMultipath: _decode_multipath,
    parser.NXActionController: _decode_controller,
}
