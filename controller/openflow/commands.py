"""Encodes the engine's commands as OpenFlow messages.

Changes to flows and groups are sent as a bundle, which the switch applies completely or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from controller.api import engine_commands
from controller.dataplane.specs import FlowSpec, GroupSpec, flow
from controller.dataplane.tables import (
    COOKIE_KIND_MASK,
    COOKIE_PREFIX_MASK,
    Kind,
    Table,
    cookie,
    openflow_port,
)
from controller.openflow.codec import CONTROLLER_ID, flow_mod, group_mod
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser
from controller.openflow.messages import BUNDLE_XID, Asked, numbered, with_xid

BUNDLE_FLAGS = ofp.ONF_BF_ATOMIC | ofp.ONF_BF_ORDERED
ALL_BITS = 0xFFFFFFFFFFFFFFFF
# The tables to clear, in order: the first table, then all tables.
CLEARED = Table.CLASSIFY, ofp.OFPTT_ALL
# Numbers of Open vSwitch's extensions, as in its nicira-ext.h.
NX_VENDOR = 0x00002320
NXT_SET_CONTROLLER_ID = 20
SET_CONTROLLER_ID = struct.Struct("!6xH")
# For each statistics request, the kind (in cookies) and the table of the requested flows.
FLOWS = {
    Asked.BUCKETS: (Kind.BUCKET, Table.BUCKET),
    Asked.TO_ADDRESS: (Kind.TO_ADDRESS, Table.EGRESS),
    Asked.FROM_ADDRESS: (Kind.FROM_ADDRESS, Table.HASH),
    Asked.TO_VM: (Kind.TO_VM, Table.EGRESS),
    Asked.FROM_VM: (Kind.FROM_VM, Table.UPLINK_OUT),
    Asked.LEARNED: (Kind.LEARNED, Table.LOCATION),
    Asked.INBOUND: (Kind.INBOUND, Table.INBOUND),
}


def set_async(datapath: Any) -> list[Any]:
    """Return requests that limit asynchronous messages to port status and frames of our flows.

    Other programs' flows send us no frames, because they do not contain our controller ID. The
    switch sends no flow-removed messages.
    """
    all_reasons, by_action = 7, 1 << ofp.OFPR_ACTION
    named = parser.OFPExperimenter(
        datapath, NX_VENDOR, NXT_SET_CONTROLLER_ID, SET_CONTROLLER_ID.pack(CONTROLLER_ID)
    )
    return [
        named,
        parser.OFPSetAsync(
            datapath,
            packet_in_mask=[by_action, 0],
            port_status_mask=[all_reasons, all_reasons],
            flow_removed_mask=[0, 0],
        ),
    ]


def encode(datapath: Any, command: Any) -> list[Any]:
    """Return a command's messages. If the switch replies, the last reply completes the answer."""
    match command:
        case engine_commands.Apply():
            return apply_changes(datapath, command)
        case engine_commands.ReadInstalled(number=number):
            groups = parser.OFPGroupDescStatsRequest(datapath, 0)
            flows = _flow_stats(datapath, Asked.FLOWS + numbered(number), 0, 0, ofp.OFPTT_ALL)
            return [flows, with_xid(groups, Asked.GROUPS + numbered(number))]
        case engine_commands.ReadStats():
            ports = with_xid(parser.OFPPortStatsRequest(datapath, 0, ofp.OFPP_ANY), Asked.PORTS)
            counted = [
                *([Asked.BUCKETS] if command.buckets else []),
                *([Asked.TO_ADDRESS, Asked.FROM_ADDRESS] if command.address_units else []),
                *(Asked.TO_VM, Asked.FROM_VM),
            ]
            return [ports, *(_counters(datapath, a) for a in counted if command.units)]
        case engine_commands.ReadInbound(ofports=(ofport,)):
            # Read only the flows of this VM port.
            value, mask = cookie(Kind.INBOUND, ofport), COOKIE_KIND_MASK | 0xFFFF
            return [_flow_stats(datapath, Asked.INBOUND, value, mask, Table.INBOUND)]
        case engine_commands.ReadInbound():
            return [_counters(datapath, Asked.INBOUND)]
        case engine_commands.ReadLearned():
            return [_counters(datapath, Asked.LEARNED)]
        case engine_commands.Renew(flows=flows):
            # This command restarts the timeouts of flows, and does not add flows.
            modify = ofp.OFPFC_MODIFY_STRICT
            return [flow_mod(datapath, modify, flow, cookie_mask=ALL_BITS) for flow in flows]
        case engine_commands.SendFrame(ofport=ofport, frame=frame):
            # Process the frame in the pipeline, as if the port had received it.
            return [_packet_out(datapath, openflow_port(ofport), ofp.OFPP_TABLE, frame)]
        case engine_commands.DeliverFrame(ofport=ofport, frame=frame):
            # Send the frame out on a port, without the pipeline.
            return [_packet_out(datapath, ofp.OFPP_CONTROLLER, openflow_port(ofport), frame)]
    raise TypeError(f"no messages for {command!r}")


def _packet_out(datapath: Any, in_port: int, to: int, frame: bytes) -> Any:
    actions = [parser.OFPActionOutput(to)]
    return parser.OFPPacketOut(datapath, ofp.OFP_NO_BUFFER, in_port, actions, frame)


def _counters(datapath: Any, asked: Asked) -> Any:
    kind, table = FLOWS[asked]
    return _flow_stats(datapath, asked, cookie(kind, 0), COOKIE_KIND_MASK, table)


def _flow_stats(datapath: Any, asked: int, value: int, mask: int, table: int) -> Any:
    request = parser.OFPFlowStatsRequest(
        datapath, table_id=int(table), cookie=value, cookie_mask=mask
    )
    return with_xid(request, asked)


def apply_changes(datapath: Any, command: engine_commands.Apply) -> list[Any]:
    """Encode changes as one atomic bundle, with messages in an order that is safe without atomicity.

    Before it acquires a lock, Open vSwitch computes the version in which a bundle becomes visible. If
    Open vSwitch learns a flow in between, this version is already in use, and each message takes effect
    immediately (do_bundle_commit in ofproto/ofproto.c, 2.17 to 3.7). So groups and flows are added
    before other flows or groups refer to them: groups, then flows (those of the first table last), then
    changes of groups. Groups and flows are removed when no other flows or groups refer to them.
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
        # Delete all our flows, including learned flows.
        tables = (flow(table, ofp.OFP_DEFAULT_PRIORITY, {}) for table in CLEARED)
        mods += [flow_mod(datapath, ofp.OFPFC_DELETE, one, COOKIE_PREFIX_MASK) for one in tables]
    emptied = (GroupSpec(group_id, "all", ()) for group_id in changes.delete_groups)
    mods += [group_mod(datapath, ofp.OFPGC_DELETE, group) for group in emptied]
    messages = [
        control(ofp.ONF_BCT_OPEN_REQUEST),
        *map(add, mods),
        control(ofp.ONF_BCT_COMMIT_REQUEST),
    ]
    return [with_xid(message, BUNDLE_XID | command.bundle_id) for message in messages]


def _entry_last(flows: Sequence[FlowSpec]) -> list[FlowSpec]:
    """Sort flows so that those of the first table (CLASSIFY) are last."""
    return sorted(flows, key=lambda flow: flow.table == Table.CLASSIFY)


def discard(datapath: Any, command: engine_commands.Apply) -> list[Any]:
    """Return messages, with transaction ID 0, that discard an uncommitted bundle."""
    kind = ofp.ONF_BCT_DISCARD_REQUEST
    message = parser.ONFBundleCtrlMsg(datapath, command.bundle_id, kind, BUNDLE_FLAGS, [])
    return [with_xid(message, 0)]
