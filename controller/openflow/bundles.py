"""Bundles: changes that the switch applies as a whole or not at all, and their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.api.engine_commands import Apply
from controller.dataplane.specs import COOKIE_PREFIX, FlowSpec
from controller.dataplane.tables import COOKIE_PREFIX_MASK, Table
from controller.openflow.codec import flow_mod, group_mod
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser
from controller.openflow.messages import BUNDLE_XID, bundle_number, with_xid

BUNDLE_FLAGS = ofp.ONF_BF_ATOMIC | ofp.ONF_BF_ORDERED


def apply_changes(datapath: Any, command: Apply) -> list[Any]:
    """Encode changes as one atomic bundle, whose messages are harmless one by one, too.

    Open vSwitch computes the version in which a bundle becomes visible before it takes its lock. If it
    learns a flow in between, that version is in force already, and each message is visible at once
    (do_bundle_commit in ofproto/ofproto.c, 2.17 to 3.7). So a way is complete before anything leads to
    it: groups first, then flows, those of the table that frames enter by last, then changed groups. And
    nothing leads to a way any more when it is removed.
    """

    def control(kind: int) -> Any:
        return parser.ONFBundleCtrlMsg(datapath, command.bundle_id, kind, BUNDLE_FLAGS, [])

    def add(message: Any) -> Any:
        return parser.ONFBundleAddMsg(datapath, command.bundle_id, BUNDLE_FLAGS, message, [])

    changes = command.changes
    mods = [group_mod(datapath, ofp.OFPGC_ADD, group) for group in changes.add_groups]
    mods += [flow_mod(datapath, ofp.OFPFC_ADD, flow) for flow in _entry_last(changes.add_flows)]
    mods += [group_mod(datapath, ofp.OFPGC_MODIFY, group) for group in changes.modify_groups]
    gone = reversed(_entry_last(changes.delete_flows))
    mods += [flow_mod(datapath, ofp.OFPFC_DELETE_STRICT, flow) for flow in gone]
    if changes.clear:
        mods += [_clear(datapath, table) for table in (Table.CLASSIFY, ofp.OFPTT_ALL)]
    mods += [
        parser.OFPGroupMod(datapath, ofp.OFPGC_DELETE, ofp.OFPGT_ALL, group_id, [])
        for group_id in changes.delete_groups
    ]
    messages = [
        control(ofp.ONF_BCT_OPEN_REQUEST),
        *map(add, mods),
        control(ofp.ONF_BCT_COMMIT_REQUEST),
    ]
    return [with_xid(message, BUNDLE_XID | command.bundle_id) for message in messages]


def _entry_last(flows: Sequence[FlowSpec]) -> list[FlowSpec]:
    """Flows, those of the table that frames enter by behind all others."""
    return sorted(flows, key=lambda flow: flow.table == Table.CLASSIFY)


def discard(datapath: Any, command: Apply) -> list[Any]:
    """Drop a bundle that was not committed. No error about this concerns the bundle itself."""
    kind = ofp.ONF_BCT_DISCARD_REQUEST
    message = parser.ONFBundleCtrlMsg(datapath, command.bundle_id, kind, BUNDLE_FLAGS, [])
    return [with_xid(message, 0)]


def _clear(datapath: Any, table: int) -> Any:
    """Delete all our flows of a table, or of all tables, also those that the switch has learned."""
    return parser.OFPFlowMod(
        datapath,
        cookie=COOKIE_PREFIX,
        cookie_mask=COOKIE_PREFIX_MASK,
        table_id=int(table),
        command=ofp.OFPFC_DELETE,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=parser.OFPMatch(),
    )


def bundle_outcome(message: Any) -> int | None:
    """Return the number of the bundle that the switch has committed.

    None: the message confirms no commit.
    """
    return bundle_number(message) if message.type == ofp.ONF_BCT_COMMIT_REPLY else None
