"""Decodes the flows and groups of a switch from bytes to values: the inverse of `encode`."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from controller.api.events import ForeignFlow
from controller.dataplane import specs
from controller.dataplane.tables import GROUP_IDS, Kind, Register, Table, cookie_kind
from controller.openflow import encode, framing
from controller.openflow.encode import GROUP_TYPES
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser

# Stands for actions that the service never installs. It differs from all actions that it installs.
NOT_OURS: tuple[specs.Action, ...] = (specs.Output(ofp.OFPP_ANY),)
LEARNING_TABLES = (
    Table.LOCATION,
    Table.LOCAL_SOURCE,
    Table.LOCK,
    Table.SPOKEN,
    Table.MEMBERSHIP,
    Table.PORT_OUT,
)
HASH_FIELD_NAMES = {number: name for name, number in encode.HASH_FIELDS.items()}
GROUP_KINDS = {
    ofp.OFPGT_SELECT: "select",
    **{number: kind for kind, number in GROUP_TYPES.items()},
}
# How many decoded flows, and how many decoded groups, the cache holds: those of one or two bridges. It
# holds none that are longer than this, because a switch may send flows of 64 KiB.
REMEMBERED, REMEMBERED_BYTES = 1 << 12, 512
# The bytes of a flow that change from one reading to the next: its age and its counters.
AGE, COUNTS = slice(4, 12), slice(32, 48)
TABLE_AT, TIMEOUT_AND_COOKIE = 2, struct.Struct("!16xH6xQ")
PACKETS = struct.Struct("!32xQ")

R = TypeVar("R")


class Unknown(Exception):
    """The service never installs such an action."""


def lasting(body: bytes) -> tuple[list[bytes], list[int]]:
    """Split the body of a flow statistics reply into flows, without their ages and counters.

    Flows that the switch has learned are left out. Also returns how many frames each flow of DELIVERY
    has counted.

    Raises:
        Malformed: the length of a flow does not fit the body.
    """
    parts: list[bytes] = []
    delivered: list[int] = []
    for flow in framing.split(body, framing.FLOW_LEAST_BYTES):
        table_id = flow[TABLE_AT]
        if table_id in LEARNING_TABLES and _is_learned(flow):
            continue
        parts.append(flow[: AGE.start] + flow[AGE.stop : COUNTS.start] + flow[COUNTS.stop :])
        if table_id == Table.DELIVERY:
            delivered += PACKETS.unpack_from(flow)
    return parts, delivered


def _is_learned(flow: bytes) -> bool:
    """Whether the switch has learned the flow. Learned flows have a timeout, others have none."""
    hard_timeout_s, value = TIMEOUT_AND_COOKIE.unpack_from(flow)
    return hard_timeout_s > 0 and cookie_kind(value) in (Kind.LEARNED, Kind.OUTSIDE)


class Flows(NamedTuple):
    """Flows of a switch.

    `by_default`: whether it has the default flow. `delivering`: for each flow of DELIVERY, the ofport of
    the uplink whose frames it floods to VM ports, if there is one.
    """

    ours: tuple[specs.FlowSpec, ...]
    foreign: tuple[ForeignFlow, ...]
    by_default: bool
    delivering: tuple[int | None, ...]


def installed_flows(parts: Collection[bytes]) -> Flows:
    """Decode flows that `lasting` has returned.

    Raises:
        Malformed: lengths inside a flow do not agree.
        ValueError: the framework cannot parse a flow.
    """
    found = [_remembered(_installed_flow, flow) for flow in parts]
    ours = tuple(flow for flow in found if isinstance(flow, specs.FlowSpec))
    foreign = tuple(flow for flow in found if isinstance(flow, ForeignFlow))
    flows = zip(parts, found, strict=True)
    delivering = tuple(_uplink_of(f) for part, f in flows if part[TABLE_AT] == Table.DELIVERY)
    return Flows(ours, foreign, None in found, delivering)


def _uplink_of(flow: specs.FlowSpec | ForeignFlow | None) -> int | None:
    uplink = dict(flow.match).get(Register.UPLINK) if isinstance(flow, specs.FlowSpec) else None
    return uplink if isinstance(uplink, int) else None


@functools.lru_cache(REMEMBERED)
def _installed_flow(part: bytes) -> specs.FlowSpec | ForeignFlow | None:
    """Decode a flow that `lasting` has returned. None: it is the default flow."""
    head, rest = part[: AGE.start], part[AGE.start :]
    fixed = COUNTS.start - AGE.stop
    flow = read_flow(head + bytes(8) + rest[:fixed] + bytes(16) + rest[fixed:])
    if cookie_kind(flow.cookie) is not None:
        return decode_flow(flow)
    if flow.table_id == 0 and flow.priority == 0 and len(flow.match.items()) == 0:
        return None
    return _foreign_flow(flow)


def read_flow(flow: bytes) -> Any:
    """Parse a flow with the framework.

    Raises:
        Malformed: lengths inside the flow do not agree.
    """
    framing.check_flow(flow)
    return parser.OFPFlowStats.parser(flow, 0)


def installed_groups(parts: Iterable[bytes]) -> tuple[specs.GroupSpec, ...]:
    """Decode group descriptions, and return the groups whose ids are in our range.

    Raises:
        Malformed: lengths inside a description do not agree.
    """
    found = (_remembered(_installed_group, part) for part in parts)
    return tuple(group for group in found if group.group_id in GROUP_IDS)


def _remembered(decode: functools._lru_cache_wrapper[R], part: bytes) -> R:
    return decode(part) if len(part) <= REMEMBERED_BYTES else decode.__wrapped__(part)


@functools.lru_cache(REMEMBERED)
def _installed_group(described: bytes) -> specs.GroupSpec:
    framing.check_group(described)
    group = parser.OFPGroupDescStats.parser(described, 0)
    buckets = tuple(
        specs.Bucket(
            actions=_decode_actions(bucket.actions),
            watch_port=None if bucket.watch_port == ofp.OFPP_ANY else bucket.watch_port,
            watch_group=None if bucket.watch_group == ofp.OFPG_ANY else bucket.watch_group,
        )
        for bucket in group.buckets
    )
    return specs.GroupSpec(group.group_id, GROUP_KINDS.get(group.type, "other"), buckets)


def decode_flow(flow: Any) -> specs.FlowSpec:
    """Return a flow that the framework has parsed, as a value."""
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
    match = ",".join(f"{name}={value}" for name, value in decode_match(flow.match))
    actions = (a for i in flow.instructions for a in getattr(i, "actions", ()))
    groups = {int(a.group_id) for a in actions if isinstance(a, parser.OFPActionGroup)}
    return ForeignFlow(flow.table_id, flow.priority, flow.cookie, match, tuple(sorted(groups)))


def decode_match(match: Any) -> tuple[tuple[str, specs.MatchValue], ...]:
    """Return the fields and values of a parsed match, by the names that `FlowSpec` uses."""
    return tuple(sorted((name.removesuffix("_nxm"), value) for name, value in match.items()))


def _decode_actions(actions: Iterable[Any]) -> tuple[specs.Action, ...]:
    """Decode actions. If one is unknown, return `NOT_OURS`, so that the flow is replaced."""
    try:
        return tuple(_DECODERS.get(type(action), _decode_other)(action) for action in actions)
    except Unknown:
        return NOT_OURS


def _decode_other(_action: Any) -> specs.Action:
    raise Unknown


def _decode_learn(action: Any, limit: int = 0, success: str | None = None) -> specs.Learn:
    return specs.Learn(
        table=action.table_id,
        cookie=action.cookie,
        hard_timeout_s=action.hard_timeout,
        specs=tuple(_decode_learn_specs(action.specs)),
        delete_learned=bool(action.flags & encode.NX_LEARN_F_DELETE_LEARNED),
        priority=action.priority,
        limit=limit,
        success=success,
    )


def _decode_unknown(action: Any) -> specs.Learn:
    """Decode an action for which the framework has no class. Of ours, only NXAST_LEARN2 is one.

    Raises:
        Unknown: it is another action.
    """
    if action._subtype != encode.NXAST_LEARN2:
        raise Unknown
    fixed, rest = action.data[: encode.LEARN_FIXED_BYTES], action.data[encode.LEARN_FIXED_BYTES :]
    limit, _ = encode.LEARN2_LIMIT.unpack_from(rest)
    rest = rest[encode.LEARN2_LIMIT.size :]
    success = None
    learn = parser.NXActionLearn.parser(fixed)
    if learn.flags & encode.NX_LEARN_F_WRITE_RESULT:
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
    if (
        how != (encode.NX_MP_ALG_MODULO_N, 0, encode.WHOLE_REGISTER)
        or action.fields not in HASH_FIELD_NAMES
    ):
        raise Unknown
    target = action.dst.removesuffix("_nxm")
    name = HASH_FIELD_NAMES[action.fields]
    return specs.Multipath(name, action.max_link + 1, target, action.basis)


def _decode_controller(action: Any) -> specs.ToController:
    if (action.max_len, action.controller_id) != (encode.WHOLE_FRAME, encode.CONTROLLER_ID):
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
    parser.NXActionUnknown: _decode_unknown,
}
