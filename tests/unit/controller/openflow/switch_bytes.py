"""OpenFlow messages as bytes: what is sent, and what a switch would answer."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.api.engine_commands import Apply
from controller.config.vlans import access
from controller.dataplane import pipeline, specs
from controller.dataplane.specs import Changes, FlowSpec, LoadBits
from controller.dataplane.tables import Kind, Register, cookie
from controller.dataplane.team import Hash, Team, VmPort
from controller.openflow import codec, commands
from controller.openflow.framework import ofproto, parser, serialized, unread
from controller.openflow.messages import Asked
from policies.classifiers import Classifier
from policies.model import OfPort

DATAPATH: Any = ProtocolDesc(version=4)
HEADER = struct.Struct("!BBHI")
FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")  # 48 bytes
PORT_STATS = struct.Struct("!I4xQQQQQQQQQQQQII")
MAC = "52:54:00:00:00:01"
UPLINKS = (OfPort(1), OfPort(2), OfPort(3))
TEAM = Team(
    UPLINKS,
    (
        VmPort(OfPort(10), UPLINKS),
        VmPort(OfPort(11), UPLINKS[::-1], access(7), attached_macs=(MAC,), forges=False),
        VmPort(OfPort(12), UPLINKS, hashed=0),
    ),
    hashes=(Hash(0, Classifier.TRANSPORT, (UPLINKS, ())),),
    off_home_macs={UPLINKS[0]: "0a:00:00:00:00:01", UPLINKS[1]: "0a:00:00:00:00:02"},
)
PIPELINE = pipeline.build(TEAM)


def message(kind: int, xid: int, body: bytes = b"", version: int = 4) -> bytes:
    return HEADER.pack(version, kind, HEADER.size + len(body), xid) + body


def split(data: bytes) -> Iterator[bytes]:
    while data:
        length = HEADER.unpack_from(data)[2]
        yield data[:length]
        data = data[length:]


def parse(data: bytes) -> Any:
    version, kind, length, xid = HEADER.unpack_from(data)
    return parser.msg_parser(DATAPATH, version, kind, length, xid, data)


def bundle(changes: Changes, number: int = 5) -> list[bytes]:
    messages = commands.apply_changes(DATAPATH, Apply("br0", number, changes))
    return list(split(serialized(messages)))


def wrapped(changes: Changes) -> list[bytes]:
    """The messages in a bundle, without the open and commit around them."""
    return [message[24:] for message in bundle(changes)[1:-1]]


def reply(asked: int, kind: int, entries: Iterable[bytes], more: bool = False) -> Any:
    """A multipart reply as the framework hands it to us."""
    return unread(DATAPATH, asked, multipart(asked, kind, entries, more))


def multipart(asked: int, kind: int, entries: Iterable[bytes], more: bool = False) -> bytes:
    body = struct.pack("!HH4x", kind, ofproto.OFPMPF_REPLY_MORE if more else 0) + b"".join(entries)
    return message(ofproto.OFPT_MULTIPART_REPLY, asked, body)


def flow_stats(
    flow_mod: bytes, count: int = 0, age_s: float = 0, hard_timeout_s: int = 0, packets: int = 1
) -> bytes:
    """How a switch tells of the flow that `flow_mod` added."""
    value, _, table, _, _, _, priority = struct.unpack_from("!QQBBHHH", flow_mod, 8)
    rest = flow_mod[48:]
    times = *divmod(round(age_s * 1e9), 10**9), priority, 0, hard_timeout_s
    return FLOW_STATS.pack(48 + len(rest), table, *times, 0, value, packets, count) + rest


def group_description(group_mod: bytes) -> bytes:
    _, kind, group_id = struct.unpack_from("!HBxI", group_mod, 8)
    buckets = group_mod[16:]
    return struct.pack("!HBxI", 8 + len(buckets), kind, group_id) + buckets


def as_stats(
    flow: FlowSpec, count: int = 0, age_s: float = 0, hard_timeout_s: int = 0, packets: int = 1
) -> bytes:
    (mod,) = wrapped(Changes(add_flows=(flow,)))
    return flow_stats(mod, count, age_s, hard_timeout_s, packets)


def read_back_flow(flow: FlowSpec) -> FlowSpec:
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, [as_stats(flow)]).body
    ((only,), foreign, *_) = codec.installed_flows(codec.lasting(body)[0])
    assert foreign == ()
    return only


def error(xid: int) -> Any:
    body = struct.pack("!HH", ofproto.OFPET_GROUP_MOD_FAILED, ofproto.OFPGMFC_OUT_OF_GROUPS)
    return parse(message(ofproto.OFPT_ERROR, xid, body + bytes(8)))


def port_stats(number: int, rx: int = 0, tx: int = 0, age_s: float = 0, drops: int = 0) -> bytes:
    seconds, nanoseconds = divmod(round(age_s * 1e9), 10**9)
    return PORT_STATS.pack(
        number, rx // 2, tx // 2, rx, tx, drops, drops + 1, 0, 0, 0, 0, 0, 0, seconds, nanoseconds
    )


def learned(
    ofport: int, mac: str, vlan: int | tuple[int, int] | None, taught_by: int | None = None
) -> bytes:
    fields: dict[str, Any] = {"eth_dst": mac}
    if vlan is not None:
        fields[Register.VLAN] = vlan
    load = LoadBits(Register.TARGET, 0, 16, ofport)
    taught = cookie(Kind.LEARNED, ofport if taught_by is None else taught_by)
    return as_stats(specs.flow(20, 10, fields, load, cookie=taught), hard_timeout_s=300)
