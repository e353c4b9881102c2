"""Specs to bytes and back: what we install is what we read back, and equal to it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.api.events import (
    Apply,
    DeliverFrame,
    ForeignFlow,
    InboundRead,
    InstalledRead,
    LearnedRead,
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
from controller.config.vlans import access, port_vlans
from controller.dataplane import pipeline, reconcile, specs, tables
from controller.dataplane.specs import (
    EMPTY,
    Action,
    Bucket,
    Changes,
    CopyBits,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LearnMatch,
    LoadBits,
    Multipath,
    Output,
    PopVlan,
    PushVlan,
    Resubmit,
    SetField,
    ToGroup,
)
from controller.dataplane.tables import Kind, Register, Table, cookie
from controller.dataplane.team import Hash, Team, VmPort
from controller.openflow import codec, framing
from controller.openflow.codec import Asked, Replies
from controller.openflow.framework import ofproto, parser, serialized, unread
from policies.classifiers import Classifier
from policies.model import OFPORT_LOCAL, OfPort

DATAPATH: Any = ProtocolDesc(version=4)
HEADER = struct.Struct("!BBHI")
FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")
PORT_STATS = struct.Struct("!I4xQQQQQQQQQQQQII")
MAC = "52:54:00:00:00:01"
UPLINKS = (OfPort(1), OfPort(2), OfPort(3))

TEAM = Team(
    uplinks=UPLINKS,
    vm_ports=(
        VmPort(OfPort(10), UPLINKS),
        VmPort(OfPort(11), UPLINKS[::-1], access(7), attached_macs=(MAC,), forges=False),
        VmPort(OfPort(12), UPLINKS, access(0)),
        VmPort(OfPort(13), UPLINKS, access(4094)),
        VmPort(OfPort(14), UPLINKS, port_vlans("native-untagged", 7, range(100, 200))),
        VmPort(OfPort(15), UPLINKS, port_vlans("native-tagged", 7, ())),
        VmPort(OfPort(16), UPLINKS, hashed=0),
        VmPort(OfPort(OFPORT_LOCAL), UPLINKS, attached_macs=(MAC,)),
    ),
    uplink_vlans={UPLINKS[1]: port_vlans("native-untagged", 7, range(64))},
    hashes=(
        Hash(0, Classifier.TRANSPORT, (UPLINKS, ())),
        Hash(1, Classifier.SOURCE_MAC, (UPLINKS,)),
        Hash(2, Classifier.IP_PAIR, (UPLINKS, UPLINKS)),
        Hash(15, Classifier.IP_PAIR, (UPLINKS, UPLINKS, UPLINKS)),
    ),
    off_home_macs={UPLINKS[0]: "0a:00:00:00:00:01", UPLINKS[1]: "0a:00:00:00:00:02"},
)
PIPELINE = pipeline.build(TEAM)


# ---- bytes -----------------------------------------------------------------------------


def split(data: bytes) -> Iterator[bytes]:
    while data:
        length = HEADER.unpack_from(data)[2]
        yield data[:length]
        data = data[length:]


def parse(data: bytes) -> Any:
    version, kind, length, xid = HEADER.unpack_from(data)
    return parser.msg_parser(DATAPATH, version, kind, length, xid, data)


def bundle(changes: Changes, number: int = 5) -> list[bytes]:
    messages = codec.apply_changes(DATAPATH, Apply("br0", number, changes))
    return list(split(serialized(messages)))


def wrapped(changes: Changes) -> list[bytes]:
    """The messages in a bundle, without the open and commit around them."""
    return [message[24:] for message in bundle(changes)[1:-1]]


def reply(asked: int, kind: int, entries: Iterable[bytes], more: bool = False) -> Any:
    """A multipart reply as the framework hands it to us."""
    body = struct.pack("!HH4x", kind, ofproto.OFPMPF_REPLY_MORE if more else 0) + b"".join(entries)
    header = HEADER.pack(4, ofproto.OFPT_MULTIPART_REPLY, HEADER.size + len(body), asked)
    return unread(DATAPATH, asked, header + body)


def flow_stats(flow_mod: bytes, count: int = 0, age_s: float = 0, hard_timeout_s: int = 0) -> bytes:
    """How a switch tells of the flow that `flow_mod` added."""
    value, _, table, _, _, _, priority = struct.unpack_from("!QQBBHHH", flow_mod, 8)
    rest = flow_mod[48:]
    seconds, nanoseconds = divmod(round(age_s * 1e9), 10**9)
    return (
        FLOW_STATS.pack(
            FLOW_STATS.size + len(rest),
            table,
            seconds,
            nanoseconds,
            priority,
            0,
            hard_timeout_s,
            0,
            value,
            1,
            count,
        )
        + rest
    )


def group_description(group_mod: bytes) -> bytes:
    _, kind, group_id = struct.unpack_from("!HBxI", group_mod, 8)
    buckets = group_mod[16:]
    return struct.pack("!HBxI", 8 + len(buckets), kind, group_id) + buckets


def as_stats(flow: FlowSpec, count: int = 0, age_s: float = 0, hard_timeout_s: int = 0) -> bytes:
    (mod,) = wrapped(Changes(add_flows=(flow,)))
    return flow_stats(mod, count, age_s, hard_timeout_s)


def read_back_flow(flow: FlowSpec) -> FlowSpec:
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, [as_stats(flow)]).body
    ((only,), foreign, _) = codec.installed_flows(codec.lasting(body))
    assert foreign == ()
    return only


def read_back_group(group: GroupSpec) -> GroupSpec:
    (mod,) = wrapped(Changes(add_groups=(group,)))
    body = reply(Asked.GROUPS, ofproto.OFPMP_GROUP_DESC, [group_description(mod)]).body
    (only,) = codec.installed_groups(framing.groups(body))
    return only


# ---- there and back --------------------------------------------------------------------


@pytest.mark.parametrize("flow", PIPELINE.flows.values(), ids=lambda f: f"table{f.table}")
def test_a_flow_read_back_equals_the_one_installed(flow: FlowSpec) -> None:
    assert read_back_flow(flow) == flow


@pytest.mark.parametrize("group", PIPELINE.groups.values(), ids=lambda g: f"{g.group_id:x}")
def test_a_group_read_back_equals_the_one_installed(group: GroupSpec) -> None:
    assert read_back_group(group) == group


ACTIONS: tuple[Action, ...] = (
    Output(tables.OFPP_LOCAL),
    ToGroup(tables.GROUP_IDS.start),
    SetField("reg0", 0xFFFE),
    SetField("vlan_vid", 0x1007),
    CopyBits("vlan_tci", 0, "reg2", 0, 12),
    CopyBits("arp_spa", 28, "reg7", 4, 4),
    LoadBits("reg7", 8, 1, 1),
    PushVlan(),
    PopVlan(),
    Resubmit(Table.SET_LOCK),
    Learn(
        Table.LOCATION,
        cookie(Kind.LEARNED, 10),
        300,
        (LearnMatch("eth_src", "eth_dst", 48), LearnLoad("reg0", "reg3", 16)),
        delete_learned=True,
    ),
    Learn(Table.LOCK, cookie(Kind.LEARNED, 0), 5, (LearnLoad(0xFFFF, "reg3", 16),)),
    Learn(Table.LOCK, cookie(Kind.LEARNED, 10), 5, (LearnLoad(1, "reg5", 1),), limit=1024),
    Learn(
        Table.LOCAL_SOURCE,
        cookie(Kind.LEARNED, 10),
        300,
        (LearnMatch("reg2", "reg2", 12), LearnLoad(1, "reg4", 1)),
        delete_learned=True,
        limit=0xFFFFFFFF,
        success="reg8",
    ),
    SetField("eth_src", MAC),
    CopyBits("ipv6_src", 30, "reg13", 0, 2),
    Multipath("eth_src", 256, "reg12"),
    Multipath("eth_src", 256, "reg12", basis=15),
    Multipath("symmetric_l3l4+udp", 1, "reg12"),
)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: type(a).__name__)
def test_an_action_read_back_equals_the_one_installed(action: Action) -> None:
    flow = FlowSpec(3, 10, (), (action,), goto=4)
    assert read_back_flow(flow) == flow


@pytest.mark.parametrize(
    ("fields", "algorithm", "arg", "ofs_nbits"),
    [(0, 1, 0, 31), (0, 0, 1, 31), (0, 0, 0, 7), (9, 0, 0, 31)],
)
def test_hashing_in_another_way_is_not_ours(
    fields: int, algorithm: int, arg: int, ofs_nbits: int
) -> None:
    strange = parser.NXActionMultipath(fields, 0, algorithm, 255, arg, ofs_nbits, "reg12")
    mod = parser.OFPFlowMod(
        DATAPATH,
        cookie=specs.COOKIE_PREFIX,
        match=parser.OFPMatch(),
        instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, [strange])],
    )
    mod.set_xid(1)
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, [flow_stats(serialized([mod]))]).body
    ((found,), _, _) = codec.installed_flows(codec.lasting(body))
    assert found.actions == codec.NOT_OURS


def test_learning_with_a_limit_is_what_the_switch_calls_learn2() -> None:
    """nx_action_learn2: learn's fixed part, limit, offset and field of the result, specs."""
    learn = Learn(
        Table.LOCAL_SOURCE, 0x77, 300, (LearnLoad(1, "reg4", 1),), limit=1024, success="reg8"
    )
    (mod,) = wrapped(Changes(add_flows=(FlowSpec(1, 10, (), (learn,)),)))
    fixed = struct.pack("!HHHQHBxHH", 0, 300, 10, 0x77, 4, Table.LOCAL_SOURCE, 0, 0)
    body = fixed + bytes.fromhex("00000400 0000 0000 00011004")
    body += bytes.fromhex("2801 0001 00010804 0000")
    action = struct.pack("!HHIH", 0xFFFF, 56, 0x2320, 45) + body
    assert mod.endswith(action.ljust(56, b"\0"))


def test_nothing_has_to_be_changed_on_a_switch_that_has_everything() -> None:
    flows = [as_stats(flow) for flow in PIPELINE.flows.values()]
    mods = wrapped(Changes(add_groups=tuple(PIPELINE.groups.values())))
    replies = Replies()
    replies.event("br0", reply(Asked.FLOWS, ofproto.OFPMP_FLOW, flows))
    groups = reply(Asked.GROUPS, ofproto.OFPMP_GROUP_DESC, map(group_description, mods))
    read = replies.event("br0", groups)
    assert isinstance(read, InstalledRead)
    installed = specs.Pipeline(
        {flow.key: flow for flow in read.flows}, {g.group_id: g for g in read.groups}
    )
    assert not reconcile.changes(PIPELINE, installed)


def test_what_somebody_else_put_in_our_place_equals_nothing_of_ours() -> None:
    """It is replaced, as it is under our cookie and not ours."""
    strange = parser.OFPFlowMod(
        DATAPATH,
        cookie=specs.COOKIE_PREFIX,
        priority=10,
        match=parser.OFPMatch(),
        instructions=[
            parser.OFPInstructionActions(
                ofproto.OFPIT_APPLY_ACTIONS,
                [parser.OFPActionSetQueue(1), parser.OFPActionPopVlan()],
            )
        ],
    )
    strange.set_xid(1)
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, [flow_stats(serialized([strange]))]).body
    ((found,), _, _) = codec.installed_flows(codec.lasting(body))
    assert found not in PIPELINE.flows.values()
    assert found.key == (0, 10, ())


# ---- bundles ---------------------------------------------------------------------------


def test_a_bundle_is_atomic_ordered_and_opened_before_it_is_committed() -> None:
    sent = bundle(reconcile.changes(PIPELINE, EMPTY), number=77)
    assert len(sent) == len(PIPELINE.flows) + len(PIPELINE.groups) + 2
    kinds = [struct.unpack_from("!IHH", message, 16) for message in (sent[0], sent[-1])]
    flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED
    assert kinds == [
        (77, ofproto.ONF_BCT_OPEN_REQUEST, flags),
        (77, ofproto.ONF_BCT_COMMIT_REQUEST, flags),
    ]


def test_all_messages_of_a_bundle_have_one_xid_also_those_inside() -> None:
    """Open vSwitch refuses a message whose xid is not that of what wraps it."""
    changes = reconcile.changes(PIPELINE, EMPTY)
    outside = {HEADER.unpack_from(message)[3] for message in bundle(changes)}
    inside = {HEADER.unpack_from(message)[3] for message in wrapped(changes)}
    assert outside == inside == {codec.BUNDLE_XID | 5}


def test_changes_go_in_an_order_that_is_always_valid() -> None:
    old, new = GroupSpec(0x6C000001, "all", ()), GroupSpec(0x6C000002, "all", ())
    added, deleted = FlowSpec(0, 1, ()), FlowSpec(0, 2, ())
    mods = wrapped(Changes((new,), (old,), (added,), (deleted,), (old.group_id,), forget=True))
    kinds = [message[1] for message in mods]
    group, flow = ofproto.OFPT_GROUP_MOD, ofproto.OFPT_FLOW_MOD
    assert kinds == [group, group, flow, flow, flow, group]
    commands = [struct.unpack_from("!H", m, 8)[0] for m in mods if m[1] == group]
    assert commands == [ofproto.OFPGC_ADD, ofproto.OFPGC_MODIFY, ofproto.OFPGC_DELETE]
    assert [m[25] for m in mods if m[1] == flow] == [
        ofproto.OFPFC_ADD,
        ofproto.OFPFC_DELETE_STRICT,
        ofproto.OFPFC_DELETE,
    ]
    forgotten = struct.unpack_from("!QQB", mods[4], 8)
    assert forgotten == (0x6C62740300000000, 0xFFFFFFFF00000000, ofproto.OFPTT_ALL)


def experimenter(kind: int, xid: int) -> Any:
    control = parser.ONFBundleCtrlMsg(DATAPATH, xid & 0xFFFFFF, kind, 0, [])
    control.set_xid(xid)
    return parse(serialized([control]))


def test_the_answer_to_a_commit_says_which_bundle() -> None:
    xid = codec.BUNDLE_XID | 77
    assert codec.bundle_outcome(experimenter(ofproto.ONF_BCT_COMMIT_REPLY, xid)) == 77
    assert codec.bundle_outcome(experimenter(ofproto.ONF_BCT_OPEN_REPLY, xid)) is None


def error(xid: int) -> Any:
    body = struct.pack("!HH", ofproto.OFPET_GROUP_MOD_FAILED, ofproto.OFPGMFC_OUT_OF_GROUPS)
    return parse(HEADER.pack(4, ofproto.OFPT_ERROR, 12 + 8, xid) + body + bytes(8))


def test_an_error_says_which_bundle_it_is_about_and_what_is_wrong() -> None:
    assert codec.failed_bundle(error(codec.BUNDLE_XID | 77)) == 77
    assert codec.failed_bundle(error(0x1234)) is None
    assert codec.failed_bundle(error(Asked.FLOWS)) is None
    text = codec.error_text(error(1))
    assert "GROUP_MOD_FAILED" in text and "OUT_OF_GROUPS" in text


def test_an_error_of_an_experimenter_is_told_as_one() -> None:
    """Open vSwitch has those for bundles; they have no code."""
    body = struct.pack("!HHI", 0xFFFF, 2300, 0x4F4E4600) + bytes(16)
    header = HEADER.pack(4, ofproto.OFPT_ERROR, HEADER.size + len(body), codec.BUNDLE_XID | 7)
    message = parse(header + body)
    assert codec.error_text(message) == "experimenter 0x4f4e4600, error 2300"
    assert codec.failed_bundle(message) == 7


# ---- replies ---------------------------------------------------------------------------


def port_stats(number: int, rx: int = 0, tx: int = 0, age_s: float = 0, drops: int = 0) -> bytes:
    seconds, nanoseconds = divmod(round(age_s * 1e9), 10**9)
    return PORT_STATS.pack(
        number, rx // 2, tx // 2, rx, tx, drops, drops + 1, 0, 0, 0, 0, 0, 0, seconds, nanoseconds
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**32 - 1),
            *[st.integers(0, 2**64 - 1)] * 12,
            *[st.integers(0, 2**32 - 1)] * 2,
        ),
        max_size=3,
    )
)
def test_ports_are_read_as_the_framework_reads_them(rows: list[tuple[int, ...]]) -> None:
    entries = [PORT_STATS.pack(*row) for row in rows]
    body = struct.pack("!HH4x", ofproto.OFPMP_PORT_STATS, 0) + b"".join(entries)
    header = HEADER.pack(4, ofproto.OFPT_MULTIPART_REPLY, HEADER.size + len(body), Asked.PORTS)
    found = codec.port_counters(b"".join(entries))
    expected = parse(header + body).body
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.ofport in (theirs.port_no, OFPORT_LOCAL)
        assert ours.clock_s == theirs.duration_sec + theirs.duration_nsec / 1e9
        for name in (
            "rx_bytes",
            "tx_bytes",
            "rx_dropped",
            "tx_dropped",
            "rx_packets",
            "tx_packets",
        ):
            assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize("flow", PIPELINE.flows.values(), ids=lambda f: f"table{f.table}")
def test_counters_of_flows_are_read_as_the_framework_reads_them(flow: FlowSpec) -> None:
    entry = as_stats(flow, count=2**63 + 5, age_s=77.000000123, hard_timeout_s=9)
    body = struct.pack("!HH4x", ofproto.OFPMP_FLOW, 0) + entry + entry
    header = HEADER.pack(4, ofproto.OFPT_MULTIPART_REPLY, HEADER.size + len(body), Asked.FLOWS)
    ours, theirs = codec.flow_counts(entry + entry), parse(header + body).body
    assert ours == [
        (read.cookie, read.duration_sec + read.duration_nsec / 1e9, read.byte_count)
        for read in theirs
    ]


def test_a_flow_is_the_same_whatever_it_has_counted_and_another_one_is_not() -> None:
    first, second, *_ = PIPELINE.flows.values()
    young, old = as_stats(first, 1, 1.0), as_stats(first, 2**40, 1e6)
    (found, again, other), _, _ = codec.installed_flows(
        codec.lasting(young + old + as_stats(second))
    )
    assert found is again
    assert (found, other) == (first, second)


def test_what_is_installed_is_decoded_again_only_when_it_has_changed() -> None:
    first, second, *_ = PIPELINE.flows.values()
    replies = Replies()

    def read(*entries: bytes) -> InstalledRead:
        replies.event("br0", reply(Asked.FLOWS, ofproto.OFPMP_FLOW, entries))
        event = replies.event("br0", reply(Asked.GROUPS, ofproto.OFPMP_GROUP_DESC, []))
        assert isinstance(event, InstalledRead)
        return event

    before = read(as_stats(first, 1, 1.0), learned(10, MAC, 7))
    same = read(as_stats(first, 2, 9.0))
    assert same.flows is before.flows and same.flows == (first,)
    assert read(as_stats(first), as_stats(second)).flows == (first, second)
    assert read(as_stats(second)).flows == (second,)


def test_port_counters_also_of_local() -> None:
    entries = [port_stats(1, rx=7, tx=2**63, age_s=12.5, drops=3), port_stats(0xFFFFFFFE, tx=9)]
    read = Replies().event("br0", reply(Asked.PORTS, ofproto.OFPMP_PORT_STATS, entries))
    assert isinstance(read, PortStatsRead)
    eth1, local = read.ports
    assert (eth1.ofport, eth1.clock_s, eth1.tx_bytes, eth1.rx_bytes) == (1, 12.5, 2**63, 7)
    assert (eth1.rx_dropped, eth1.tx_dropped) == (3, 4)
    assert (eth1.rx_packets, eth1.tx_packets) == (3, 2**62)
    assert (local.ofport, local.tx_bytes) == (OFPORT_LOCAL, 9)


def test_a_reply_in_parts_is_one_answer() -> None:
    replies, kind = Replies(), ofproto.OFPMP_PORT_STATS
    for number in (1, 2):
        part = reply(Asked.PORTS, kind, [port_stats(number)], more=True)
        assert replies.event("br0", part) is None
    read = replies.event("br0", reply(Asked.PORTS, kind, [port_stats(3)]))
    assert isinstance(read, PortStatsRead)
    assert [port.ofport for port in read.ports] == [1, 2, 3]
    again = replies.event("br0", reply(Asked.PORTS, kind, [port_stats(4)]))
    assert isinstance(again, PortStatsRead) and len(again.ports) == 1


def test_an_answer_nobody_asked_for_is_ignored() -> None:
    stray = reply(0x1234, ofproto.OFPMP_PORT_STATS, [port_stats(1)])
    assert Replies().event("br0", stray) is None


def test_what_units_exchanged_is_counted_by_a_flow_in_each_direction() -> None:
    def stats(kind: Kind, ofport: int, count: int) -> bytes:
        flow = FlowSpec(5, 10, (("reg0", ofport),), cookie=cookie(kind, ofport))
        return as_stats(flow, count=count, age_s=2.25)

    replies = Replies()
    to_vm = [stats(Kind.TO_VM, 10, 111)]
    from_vm = [stats(Kind.FROM_VM, 10, 222), stats(Kind.FROM_VM, OFPORT_LOCAL, 333)]
    assert replies.event("br0", reply(Asked.TO_VM, ofproto.OFPMP_FLOW, to_vm)) is None
    read = replies.event("br0", reply(Asked.FROM_VM, ofproto.OFPMP_FLOW, from_vm))
    assert read == UnitCountersRead(
        "br0", ((10, Sample(2.25, 222, 111)), (OFPORT_LOCAL, Sample(2.25, 333, 0)))
    )


def test_what_buckets_sent_comes_with_what_units_exchanged() -> None:
    def stats(number: int, bucket: int, count: int) -> bytes:
        flow = FlowSpec(Table.BUCKET, 10, (), cookie=tables.bucket_cookie(number, bucket))
        return as_stats(flow, count=count, age_s=2.25)

    replies = Replies()
    buckets = [stats(0, 0, 111), stats(15, 255, 222)]
    assert replies.event("br0", reply(Asked.BUCKETS, ofproto.OFPMP_FLOW, buckets)) is None
    read = replies.event("br0", reply(Asked.FROM_VM, ofproto.OFPMP_FLOW, []))
    counted = (((0, 0), Sample(2.25, 111, 0)), ((15, 255), Sample(2.25, 222, 0)))
    assert read == UnitCountersRead("br0", (), counted)
    again = replies.event("br0", reply(Asked.FROM_VM, ofproto.OFPMP_FLOW, []))
    assert again == UnitCountersRead("br0", ())


def test_what_addresses_exchanged_comes_with_what_units_did() -> None:
    def stats(kind: Kind, table: int, slot: int, count: int) -> bytes:
        return as_stats(FlowSpec(table, 10, (), cookie=cookie(kind, slot)), count=count, age_s=2.25)

    replies = Replies()
    sent = [stats(Kind.FROM_ADDRESS, Table.HASH, slot, 100 + slot) for slot in (7, 65535)]
    got = [stats(Kind.TO_ADDRESS, Table.EGRESS, 7, 55)]
    assert replies.event("br0", reply(Asked.TO_ADDRESS, ofproto.OFPMP_FLOW, got)) is None
    assert replies.event("br0", reply(Asked.FROM_ADDRESS, ofproto.OFPMP_FLOW, sent)) is None
    read = replies.event("br0", reply(Asked.FROM_VM, ofproto.OFPMP_FLOW, []))
    counted = ((7, Sample(2.25, 107, 55)), (65535, Sample(2.25, 65635, 0)))
    assert read == UnitCountersRead("br0", (), (), counted)
    again = replies.event("br0", reply(Asked.FROM_VM, ofproto.OFPMP_FLOW, []))
    assert again == UnitCountersRead("br0", ())


def test_what_uplinks_brought_comes_by_vm_port_and_uplink() -> None:
    def stats(ofport: int, uplink: int, count: int) -> bytes:
        counts = tables.inbound_cookie(ofport, uplink)
        return as_stats(FlowSpec(Table.INBOUND, 10, (), cookie=counts), count=count, age_s=2.25)

    highest = 0xFF00
    counted = [stats(10, 1, 111), stats(OFPORT_LOCAL, highest, 222)]
    read = Replies().event("br0", reply(Asked.INBOUND, ofproto.OFPMP_FLOW, counted))
    assert read == InboundRead("br0", ((10, 1, 111), (OFPORT_LOCAL, highest, 222)))


@pytest.mark.parametrize(("ofports", "mask"), [((10,), 0xFFFFFFFF0000FFFF), ((10, 11), None)])
def test_of_one_vm_port_only_its_own_flows_are_asked_for(
    ofports: tuple[int, ...], mask: int | None
) -> None:
    (asked,) = codec.read_inbound(DATAPATH, ReadInbound("br0", ofports))
    value = cookie(Kind.INBOUND, 10 if mask else 0)
    assert (asked.cookie, asked.cookie_mask) == (value, mask or tables.COOKIE_KIND_MASK)
    assert asked.table_id == Table.INBOUND


def test_units_are_left_out_of_a_poll_that_does_not_ask_for_them() -> None:
    (ports,) = codec.read_stats(DATAPATH, ReadStats("br0", units=False))
    assert ports.xid == Asked.PORTS


def test_an_address_that_announced_itself_outside_is_elsewhere() -> None:
    entries = [
        learned(tables.ELSEWHERE, MAC, (7, 0xFFF), taught_by=0),
        learned(10, MAC, (8, 0xFFF)),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert read == LearnedRead("br0", ((10, MAC, 8),), elsewhere=((MAC, 7),))


def learned(
    ofport: int, mac: str, vlan: int | tuple[int, int] | None, taught_by: int | None = None
) -> bytes:
    fields: dict[str, Any] = {"eth_dst": mac}
    if vlan is not None:
        fields[Register.VLAN.field] = vlan
    match = specs.match(**fields)
    load = LoadBits(Register.TARGET.field, 0, 16, ofport)
    taught = cookie(Kind.LEARNED, ofport if taught_by is None else taught_by)
    return as_stats(FlowSpec(20, 10, match, (load,), cookie=taught), hard_timeout_s=300)


def test_learned_addresses_are_those_behind_vm_ports_once_each() -> None:
    other = "52:54:00:00:00:02"
    entries = [
        learned(10, MAC, (7, 0xFFF)),
        learned(10, MAC, (7, 0xFFF)),
        learned(OFPORT_LOCAL, other, None),
        learned(0, "52:54:00:00:00:03", 7),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert isinstance(read, LearnedRead)
    assert read.addresses == ((10, MAC, 7), (OFPORT_LOCAL, other, 0))


def test_what_unknown_ports_taught_comes_with_the_port_and_with_the_vlan_of_tagged_frames() -> None:
    entries = [
        learned(11, MAC, None, taught_by=tables.FROM_BENEATH | 0x1234),
        learned(10, MAC, (7, 0xFFF), taught_by=tables.FROM_BENEATH),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert read == LearnedRead("br0", (), ((10, MAC, 7), (11, MAC, None)))


def test_flows_of_others_are_told_and_the_default_flow_is_not() -> None:
    def foreign(priority: int, *actions: Any, **fields: Any) -> bytes:
        mod = parser.OFPFlowMod(
            DATAPATH,
            cookie=9,
            priority=priority,
            match=parser.OFPMatch(**fields),
            instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
        )
        mod.set_xid(1)
        return flow_stats(serialized([mod]))

    entries = [
        foreign(0),
        foreign(0, in_port=1, eth_dst=MAC),
        foreign(5, parser.OFPActionGroup(7), parser.OFPActionOutput(1)),
        learned(10, MAC, 7),
    ]
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, entries).body
    by_match = ForeignFlow(0, 0, 9, f"eth_dst={MAC},in_port=1")
    others = (by_match, ForeignFlow(0, 5, 9, "", (7,)))
    assert codec.installed_flows(codec.lasting(body)) == ((), others, True)


@pytest.mark.parametrize(
    ("table", "kind", "timeout_s"),
    [(20, Kind.LEARNED, 0), (0, Kind.LEARNED, 300), (0, 0x77, 0), (0, Kind.RESCUE, 0)],
)
def test_what_nobody_of_ours_has_put_in_our_place_is_found(
    table: int, kind: int, timeout_s: int
) -> None:
    """Under our cookie, but not as the switch learns: it is to go."""
    flow = FlowSpec(table, 9, (), cookie=specs.COOKIE_PREFIX | kind << 32)
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, [as_stats(flow, 0, 0, timeout_s)]).body
    assert codec.installed_flows(codec.lasting(body)) == ((flow,), (), False)


def test_a_flow_of_ours_that_does_more_than_it_should_is_not_ours() -> None:
    flow = next(iter(PIPELINE.flows.values()))
    (mod,) = wrapped(Changes(add_flows=(flow,)))
    clear_actions = struct.pack("!HH4x", ofproto.OFPIT_CLEAR_ACTIONS, 8)
    body = reply(Asked.FLOWS, ofproto.OFPMP_FLOW, [flow_stats(mod + clear_actions)]).body
    ((found,), _, _) = codec.installed_flows(codec.lasting(body))
    assert found.key == flow.key and found != flow


def test_groups_of_others_are_none_of_our_business() -> None:
    (mod,) = wrapped(Changes(add_groups=(GroupSpec(1, "all", (Bucket((Output(1),)),)),)))
    body = reply(Asked.GROUPS, ofproto.OFPMP_GROUP_DESC, [group_description(mod)]).body
    assert codec.installed_groups(framing.groups(body)) == ()


@pytest.mark.parametrize(
    ("state", "config", "up", "silent"),
    [
        (ofproto.OFPPS_LIVE, 0, True, False),
        (0, 0, False, True),
        (ofproto.OFPPS_LINK_DOWN, 0, False, False),
        (ofproto.OFPPS_LIVE | ofproto.OFPPS_LINK_DOWN, 0, False, False),
        (0, ofproto.OFPPC_PORT_DOWN, False, False),
    ],
)
def test_a_port_is_up_if_it_is_live_and_nobody_took_it_down(
    state: int, config: int, up: bool, silent: bool
) -> None:
    port = parser.OFPPort(0xFFFFFFFE, MAC, b"br0", config, state, 0, 0, 0, 0, 10_000_000, 0)
    seen = codec.port_state(port)
    assert (seen.ofport, seen.name, seen.up, seen.speed_bps) == (OFPORT_LOCAL, "br0", up, 10e9)
    assert seen.silent is silent


# ---- questions -------------------------------------------------------------------------


def test_what_is_asked_is_asked_by_the_xids_that_answers_are_known_by() -> None:
    messages = [
        *codec.read_installed(DATAPATH, ReadInstalled("br0")),
        *codec.read_stats(DATAPATH, ReadStats("br0")),
        *codec.read_learned(DATAPATH, ReadLearned("br0")),
    ]
    xids = [HEADER.unpack_from(message)[3] for message in split(serialized(messages))]
    assert xids == [
        Asked.FLOWS,
        Asked.GROUPS,
        Asked.PORTS,
        Asked.TO_VM,
        Asked.FROM_VM,
        Asked.LEARNED,
    ]


def test_buckets_are_asked_for_before_what_completes_the_answer() -> None:
    messages = codec.read_stats(DATAPATH, ReadStats("br0", buckets=True))
    xids = [HEADER.unpack_from(message)[3] for message in split(serialized(messages))]
    assert xids == [Asked.PORTS, Asked.BUCKETS, Asked.TO_VM, Asked.FROM_VM]


def test_so_are_addresses_behind_vm_ports() -> None:
    messages = codec.read_stats(DATAPATH, ReadStats("br0", stations=True))
    xids = [HEADER.unpack_from(message)[3] for message in split(serialized(messages))]
    addresses = [Asked.TO_ADDRESS, Asked.FROM_ADDRESS]
    assert xids == [Asked.PORTS, *addresses, Asked.TO_VM, Asked.FROM_VM]


def test_a_frame_goes_through_the_pipeline_as_if_its_port_had_sent_it() -> None:
    (out,) = codec.send_frame(DATAPATH, SendFrame("br0", OFPORT_LOCAL, b"frame"))
    out.set_xid(1)
    data = serialized([out])
    buffer_id, in_port, length = struct.unpack_from("!IIH", data, 8)
    assert (buffer_id, in_port, length) == (ofproto.OFP_NO_BUFFER, 0xFFFFFFFE, 16)
    assert struct.unpack_from("!HHI", data, 24) == (0, 16, ofproto.OFPP_TABLE)
    assert data.endswith(b"frame")


def test_a_frame_for_a_vm_port_goes_past_the_pipeline() -> None:
    (out,) = codec.deliver_frame(DATAPATH, DeliverFrame("br0", OFPORT_LOCAL, b"frame"))
    out.set_xid(1)
    data = serialized([out])
    assert struct.unpack_from("!IIH", data, 8) == (ofproto.OFP_NO_BUFFER, 0xFFFFFFFD, 16)
    assert struct.unpack_from("!HHI", data, 24) == (0, 16, 0xFFFFFFFE)
    assert data.endswith(b"frame")


def test_every_command_for_a_switch_has_an_encoder() -> None:
    read = {ReadInstalled, ReadStats, ReadInbound, ReadLearned}
    frames = {SendFrame, DeliverFrame}
    assert codec.ENCODERS.keys() == {*read, *frames, Renew, Apply}
