"""Bundles: atomic, in an order that is always valid, and known by their number."""

from __future__ import annotations

import struct
from typing import Any

from controller.dataplane import pipeline
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, GroupSpec
from controller.dataplane.tables import Table
from controller.openflow import messages
from controller.openflow.framework import ofproto, parser, serialized
from controller.openflow.messages import Asked
from tests.unit.controller.openflow.switch_bytes import (
    DATAPATH,
    HEADER,
    PIPELINE,
    bundle,
    error,
    parse,
    wrapped,
)


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


def experimenter(kind: int, xid: int) -> Any:
    control = parser.ONFBundleCtrlMsg(DATAPATH, xid & 0xFFFFFF, kind, 0, [])
    control.set_xid(xid)
    return parse(serialized([control]))


def test_the_answer_to_a_commit_says_which_bundle() -> None:
    xid = messages.BUNDLE_XID | 77
    assert messages.bundle_outcome(experimenter(ofproto.ONF_BCT_COMMIT_REPLY, xid)) == 77
    assert messages.bundle_outcome(experimenter(ofproto.ONF_BCT_OPEN_REPLY, xid)) is None


def test_an_error_says_which_bundle_it_is_about_and_what_is_wrong() -> None:
    assert messages.bundle_number(error(messages.BUNDLE_XID | 77)) == 77
    assert messages.bundle_number(error(0x1234)) is None
    assert messages.bundle_number(error(Asked.FLOWS)) is None
    text = messages.error_text(error(1))
    assert "GROUP_MOD_FAILED" in text and "OUT_OF_GROUPS" in text
