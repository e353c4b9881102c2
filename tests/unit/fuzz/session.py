"""What a good switch says in a session, as the bytes of each message: what is mutated."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache

from controller.dataplane import specs
from controller.dataplane.specs import Changes, FlowSpec, GroupSpec, LoadBits
from controller.dataplane.tables import LEARNED_TIMEOUT_S, Kind, Register, Table, cookie
from controller.openflow import messages
from controller.openflow.framework import ofproto
from controller.openflow.messages import BUNDLE_XID, Asked
from tests.unit.controller.openflow import switch_bytes
from tests.unit.controller.openflow.switch_bytes import message, wrapped
from tests.unit.fake_switch import World, world
from tests.unit.rows import host

DATAPATH_ID = 0x02000000000A
PORTS = {1: "eth1", 2: "eth2", 10: "vnet0", 11: "vnet1", 12: "vnet2", 13: "vnet3"}
MOST_BYTES = 60_000


def multipart(asked: int, kind: int, entries: Iterable[bytes]) -> list[bytes]:
    """A reply in as many parts as it takes."""
    parts, part = [], b""
    for entry in entries:
        if len(part) + len(entry) > MOST_BYTES:
            parts.append(part)
            part = b""
        part += entry
    parts.append(part)
    flags = [ofproto.OFPMPF_REPLY_MORE] * (len(parts) - 1) + [0]
    heads = [struct.pack("!HH4x", kind, more) for more in flags]
    reply = ofproto.OFPT_MULTIPART_REPLY
    return [message(reply, asked, head + part) for head, part in zip(heads, parts, strict=True)]


def port(number: int, name: str, state: int = ofproto.OFPPS_LIVE) -> bytes:
    speeds = (0, 0, 0, 0, 10_000_000, 10_000_000)
    return struct.pack("!I4x6s2x16sII6I", number, bytes(6), name.encode(), 0, state, *speeds)


def features() -> bytes:
    body = struct.pack("!QIBB2xII", DATAPATH_ID, 0, 254, 0, 0x4F, 0)
    return message(ofproto.OFPT_FEATURES_REPLY, 2, body)


def port_stats(number: int, sent: int) -> bytes:
    return struct.pack("!I4x12QII", number, 1, 1, sent, sent, *[0] * 8, 100, 0)


def flow_stats(flow: FlowSpec, count: int = 0, hard_timeout_s: int = 0) -> bytes:
    """How a switch tells of a flow that was added 100 s ago."""
    return switch_bytes.as_stats(flow, count, 100, hard_timeout_s)


def group_description(group: GroupSpec) -> bytes:
    (mod,) = wrapped(Changes(add_groups=(group,)))
    return switch_bytes.group_description(mod)


@cache
def installed() -> World:
    """A bridge that has been taken over."""
    return world(host()).start().run_for(3)


def role(role: int, generation: int) -> bytes:
    return message(ofproto.OFPT_ROLE_REPLY, 4, struct.pack("!I4xQ", role, generation))


def role_status(role: int) -> bytes:
    """What a switch says unasked when another controller becomes its master, or ceases to be."""
    body = struct.pack("!IIIB3xQ", messages.ONF_EXPERIMENTER, messages.ROLE_STATUS, role, 0, 1)
    return message(ofproto.OFPT_EXPERIMENTER, 0, body)


def handshake() -> list[bytes]:
    described = [port(number, name) for number, name in PORTS.items()]
    return [
        message(ofproto.OFPT_HELLO, 1, struct.pack("!HHI", 1, 8, 1 << 4)),
        features(),
        *multipart(3, ofproto.OFPMP_PORT_DESC, described),
        role(ofproto.OFPCR_ROLE_EQUAL, messages.NO_GENERATION),
        role(ofproto.OFPCR_ROLE_MASTER, 0),
    ]


@cache
def answers() -> tuple[bytes, ...]:
    """One of each that a switch sends later."""
    switch = installed().switches["br0"]
    flows, groups = list(switch.flows.values()), list(switch.groups.values())
    learned = specs.flow(
        Table.LOCATION,
        10,
        {"eth_dst": "52:54:00:00:00:01", Register.VLAN: (0, 0xFFF)},
        LoadBits(Register.TARGET, 0, 16, 10),
        cookie=cookie(Kind.LEARNED, 10),
    )
    flow, described = ofproto.OFPMP_FLOW, ofproto.OFPMP_GROUP_DESC
    told = [flow_stats(learned, 10, LEARNED_TIMEOUT_S)]
    counted = [port_stats(number, 1000 * number) for number in PORTS]
    by_flows = (Asked.TO_VM, Asked.FROM_VM, Asked.BUCKETS, Asked.INBOUND)
    committed = struct.pack("!IIIHH", 0x4F4E4600, 2300, 1, ofproto.ONF_BCT_COMMIT_REPLY, 3)
    refused = struct.pack("!HH", ofproto.OFPET_GROUP_MOD_FAILED, 1) + bytes(64)
    experimental = struct.pack("!HHI", 0xFFFF, 2300, 0x4F4E4600) + bytes(16)
    return (
        *multipart(Asked.FLOWS, flow, map(flow_stats, flows)),
        *multipart(Asked.GROUPS, described, map(group_description, groups)),
        *multipart(Asked.PORTS, ofproto.OFPMP_PORT_STATS, counted),
        *(
            part
            for asked in by_flows
            for part in multipart(asked, flow, map(flow_stats, flows[:9]))
        ),
        *multipart(Asked.LEARNED, flow, told),
        message(ofproto.OFPT_EXPERIMENTER, BUNDLE_XID | 1, committed),
        message(ofproto.OFPT_ERROR, BUNDLE_XID | 1, refused),
        message(ofproto.OFPT_ERROR, BUNDLE_XID | 1, experimental),
        message(ofproto.OFPT_PORT_STATUS, 0, struct.pack("!B7x", 2) + port(1, "eth1", 1)),
        message(ofproto.OFPT_PORT_STATUS, 0, struct.pack("!B7x", 1) + port(11, "vnet1")),
        message(ofproto.OFPT_PORT_STATUS, 0, struct.pack("!B7x", 0) + port(99, "vnet9")),
        role_status(ofproto.OFPCR_ROLE_MASTER),
        message(ofproto.OFPT_ECHO_REQUEST, 7, b"are you there?"),
        message(ofproto.OFPT_ECHO_REPLY, 8, b"yes"),
        message(
            ofproto.OFPT_PACKET_IN, 0, struct.pack("!IHBBQHH4x2x", 1, 60, 0, 0, 0, 1, 4) + bytes(60)
        ),
        *multipart(9, 12, [bytes(64)]),
    )
