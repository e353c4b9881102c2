"""Encodes the engine's commands as OpenFlow messages.

A command that changes flows and groups becomes a bundle (`bundles`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.api.events import (
    Apply,
    DeliverFrame,
    ReadInbound,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    Renew,
    SendFrame,
)
from controller.dataplane.tables import COOKIE_KIND_MASK, Kind, Table, cookie, openflow_port
from controller.openflow.bundles import apply_changes
from controller.openflow.encode import (
    CONTROLLER_ID,
    NX_VENDOR,
    NXT_SET_CONTROLLER_ID,
    SET_CONTROLLER_ID,
    flow_mod,
)
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser
from controller.openflow.xids import Asked, with_xid

ALL_BITS = 0xFFFFFFFFFFFFFFFF


def set_async(datapath: Any) -> list[Any]:
    """Have the switch send port status messages and the frames that our flows give us, and no more.

    The switch gives us no frame by a flow of another program, because such a flow does not name our
    controller id. No flow-removed messages come.
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


def read_installed(datapath: Any, _command: ReadInstalled) -> list[Any]:
    """Request the flows, then the groups. The group reply completes the answer."""
    groups = parser.OFPGroupDescStatsRequest(datapath, 0)
    return [_flow_stats(datapath, Asked.FLOWS, 0, 0), with_xid(groups, Asked.GROUPS)]


def read_stats(datapath: Any, command: ReadStats) -> list[Any]:
    """Request the counters of ports, buckets, address units and VM ports, in this order.

    Which of them the switch is asked for, `command` says. The last reply completes the answer.
    """
    buckets = _unit_stats(datapath, Asked.BUCKETS, Kind.BUCKET, Table.BUCKET)
    address_units = [
        _unit_stats(datapath, Asked.TO_ADDRESS, Kind.TO_ADDRESS, Table.EGRESS),
        _unit_stats(datapath, Asked.FROM_ADDRESS, Kind.FROM_ADDRESS, Table.HASH),
    ]
    units = [
        *([buckets] if command.buckets else []),
        *(address_units if command.address_units else []),
        _unit_stats(datapath, Asked.TO_VM, Kind.TO_VM, Table.EGRESS),
        _unit_stats(datapath, Asked.FROM_VM, Kind.FROM_VM, Table.UPLINK_OUT),
    ]
    ports = with_xid(parser.OFPPortStatsRequest(datapath, 0, ofp.OFPP_ANY), Asked.PORTS)
    return [ports, *units] if command.units else [ports]


def read_inbound(datapath: Any, command: ReadInbound) -> list[Any]:
    """Request the counters of what each uplink has brought for VM ports.

    For one VM port, the switch is asked for its flows only; for several, for the flows of all.
    """
    value, mask = cookie(Kind.INBOUND, 0), COOKIE_KIND_MASK
    if len(command.ofports) == 1:
        value, mask = value | command.ofports[0], mask | 0xFFFF
    return [_flow_stats(datapath, Asked.INBOUND, value, mask, Table.INBOUND)]


def read_learned(datapath: Any, _command: ReadLearned) -> list[Any]:
    """Request the flows that the switch has learned for addresses."""
    return [_unit_stats(datapath, Asked.LEARNED, Kind.LEARNED, Table.LOCATION)]


def send_frame(datapath: Any, command: SendFrame) -> list[Any]:
    """Send a frame through the pipeline, as if the port had received it."""
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
    """Restart the timeouts of flows. OFPFC_MODIFY_STRICT does that, and adds no flow."""
    return [
        flow_mod(datapath, ofp.OFPFC_MODIFY_STRICT, flow, cookie_mask=ALL_BITS)
        for flow in command.flows
    ]


def deliver_frame(datapath: Any, command: DeliverFrame) -> list[Any]:
    """Output a frame to a port, without the pipeline."""
    return [
        parser.OFPPacketOut(
            datapath,
            buffer_id=ofp.OFP_NO_BUFFER,
            in_port=ofp.OFPP_CONTROLLER,
            actions=[parser.OFPActionOutput(openflow_port(command.ofport))],
            data=command.frame,
        )
    ]


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
    return with_xid(request, asked)


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
