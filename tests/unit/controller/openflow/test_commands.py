"""What is sent for each command; a bundle is atomic, in an order that is always valid."""

from __future__ import annotations

import struct

import pytest

from controller.api.engine_commands import (
    Command,
    Connect,
    DeliverFrame,
    ReadInbound,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    SendFrame,
)
from controller.dataplane import pipeline, tables
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, GroupSpec
from controller.dataplane.tables import Kind, Table, cookie
from controller.openflow import commands, messages
from controller.openflow.framework import ofproto, serialized
from controller.openflow.messages import Asked
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import (
    DATAPATH,
    HEADER,
    PIPELINE,
    bundle,
    split,
    wrapped,
)

UNITS, ADDRESSES = (Asked.TO_VM, Asked.FROM_VM), (Asked.TO_ADDRESS, Asked.FROM_ADDRESS)


@pytest.mark.parametrize(("ofports", "mask"), [((10,), 0xFFFFFFFF0000FFFF), ((10, 11), None)])
def test_of_one_vm_port_only_its_own_flows_are_asked_for(
    ofports: tuple[int, ...], mask: int | None
) -> None:
    (asked,) = commands.encode(DATAPATH, ReadInbound("br0", ofports))
    value = cookie(Kind.INBOUND, 10 if mask else 0)
    assert (asked.cookie, asked.cookie_mask) == (value, mask or tables.COOKIE_KIND_MASK)
    assert asked.table_id == Table.INBOUND


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (ReadInstalled("br0"), [Asked.FLOWS, Asked.GROUPS]),
        (ReadInstalled("br0", 7), [Asked.FLOWS + 0x700, Asked.GROUPS + 0x700]),
        (ReadInstalled("br0", 0x10002), [Asked.FLOWS + 0x200, Asked.GROUPS + 0x200]),
        (ReadLearned("br0"), [Asked.LEARNED]),
        (ReadStats("br0"), [Asked.PORTS, *UNITS]),
        (ReadStats("br0", units=False), [Asked.PORTS]),
        # What completes the answer comes last.
        (ReadStats("br0", buckets=True), [Asked.PORTS, Asked.BUCKETS, *UNITS]),
        (ReadStats("br0", address_units=True), [Asked.PORTS, *ADDRESSES, *UNITS]),
    ],
    ids=str,
)
def test_what_is_asked_is_asked_by_the_xids_that_answers_are_known_by(
    command: Command, asked: list[int]
) -> None:
    sent = split(serialized(commands.encode(DATAPATH, command)))
    assert [HEADER.unpack_from(message)[3] for message in sent] == asked


LOCAL, CONTROLLER = 0xFFFFFFFE, 0xFFFFFFFD


@pytest.mark.parametrize(
    ("command", "in_port", "output"),
    [
        pytest.param(SendFrame, LOCAL, ofproto.OFPP_TABLE, id="as if its port had sent it"),
        pytest.param(DeliverFrame, CONTROLLER, LOCAL, id="to a VM port, past the pipeline"),
    ],
)
def test_a_frame_is_sent(
    command: type[SendFrame | DeliverFrame], in_port: int, output: int
) -> None:
    (out,) = commands.encode(DATAPATH, command("br0", OFPORT_LOCAL, b"frame"))
    out.set_xid(1)
    data = serialized([out])
    assert struct.unpack_from("!IIH", data, 8) == (ofproto.OFP_NO_BUFFER, in_port, 16)
    assert struct.unpack_from("!HHI", data, 24) == (0, 16, output)
    assert data.endswith(b"frame")


def test_commands_for_others_than_a_switch_have_no_messages() -> None:
    with pytest.raises(TypeError):
        commands.encode(DATAPATH, Connect("br0"))


# ---- bundles ------------------------------------------------------------------------------


def test_a_bundle_is_atomic_ordered_and_opened_before_it_is_committed() -> None:
    sent = bundle(pipeline.changes(PIPELINE, EMPTY), number=77)
    assert len(sent) == len(PIPELINE.flows) + len(PIPELINE.groups) + 2
    kinds = [struct.unpack_from("!IHH", message, 16) for message in (sent[0], sent[-1])]
    flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED
    assert kinds == [
        (77, ofproto.ONF_BCT_OPEN_REQUEST, flags),
        (77, ofproto.ONF_BCT_COMMIT_REQUEST, flags),
    ]


def test_all_messages_of_a_bundle_have_one_xid_also_those_inside() -> None:
    """Open vSwitch refuses a message whose xid is not that of what wraps it."""
    changes = pipeline.changes(PIPELINE, EMPTY)
    outside = {HEADER.unpack_from(message)[3] for message in bundle(changes)}
    inside = {HEADER.unpack_from(message)[3] for message in wrapped(changes)}
    assert outside == inside == {messages.BUNDLE_XID | 5}


def test_changes_go_in_an_order_in_which_each_is_harmless() -> None:
    """A way is complete before anything leads to it, and is removed when nothing does any more."""
    old, new = GroupSpec(0x6C000001, "all", ()), GroupSpec(0x6C000002, "all", ())
    entry, way = FlowSpec(Table.CLASSIFY, 1, ()), FlowSpec(Table.BUCKET, 1, ())
    flows = entry, way
    mods = wrapped(Changes((new,), (old,), flows, flows[::-1], (0x6C000003,), clear=True))
    group, flow = ofproto.OFPT_GROUP_MOD, ofproto.OFPT_FLOW_MOD
    found = [(group, m[9]) if m[1] == group else (m[1], m[25], m[24]) for m in mods]
    assert found == [
        (group, ofproto.OFPGC_ADD),
        (flow, ofproto.OFPFC_ADD, Table.BUCKET),
        (flow, ofproto.OFPFC_ADD, Table.CLASSIFY),
        (group, ofproto.OFPGC_MODIFY),
        (flow, ofproto.OFPFC_DELETE_STRICT, Table.CLASSIFY),
        (flow, ofproto.OFPFC_DELETE_STRICT, Table.BUCKET),
        (flow, ofproto.OFPFC_DELETE, Table.CLASSIFY),
        (flow, ofproto.OFPFC_DELETE, ofproto.OFPTT_ALL),
        (group, ofproto.OFPGC_DELETE),
    ]
    cleared = struct.unpack_from("!QQB", mods[7], 8)
    assert cleared == (0x6C62740000000000, 0xFFFFFF0000000000, ofproto.OFPTT_ALL)
