"""What is sent for each command."""

from __future__ import annotations

import struct

import pytest

from controller.api.engine_commands import (
    Connect,
    DeliverFrame,
    ReadInbound,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    SendFrame,
)
from controller.dataplane import tables
from controller.dataplane.tables import Kind, Table, cookie
from controller.openflow import commands
from controller.openflow.framework import ofproto, serialized
from controller.openflow.messages import Asked
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import DATAPATH, HEADER, split


@pytest.mark.parametrize(("ofports", "mask"), [((10,), 0xFFFFFFFF0000FFFF), ((10, 11), None)])
def test_of_one_vm_port_only_its_own_flows_are_asked_for(
    ofports: tuple[int, ...], mask: int | None
) -> None:
    (asked,) = commands.encode(DATAPATH, ReadInbound("br0", ofports))
    value = cookie(Kind.INBOUND, 10 if mask else 0)
    assert (asked.cookie, asked.cookie_mask) == (value, mask or tables.COOKIE_KIND_MASK)
    assert asked.table_id == Table.INBOUND


def test_units_are_left_out_of_a_poll_that_does_not_ask_for_them() -> None:
    (ports,) = commands.encode(DATAPATH, ReadStats("br0", units=False))
    assert ports.xid == Asked.PORTS


def test_what_is_asked_is_asked_by_the_xids_that_answers_are_known_by() -> None:
    messages = [
        *commands.encode(DATAPATH, ReadInstalled("br0")),
        *commands.encode(DATAPATH, ReadStats("br0")),
        *commands.encode(DATAPATH, ReadLearned("br0")),
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
    messages = commands.encode(DATAPATH, ReadStats("br0", buckets=True))
    xids = [HEADER.unpack_from(message)[3] for message in split(serialized(messages))]
    assert xids == [Asked.PORTS, Asked.BUCKETS, Asked.TO_VM, Asked.FROM_VM]


def test_so_are_addresses_behind_vm_ports() -> None:
    messages = commands.encode(DATAPATH, ReadStats("br0", address_units=True))
    xids = [HEADER.unpack_from(message)[3] for message in split(serialized(messages))]
    addresses = [Asked.TO_ADDRESS, Asked.FROM_ADDRESS]
    assert xids == [Asked.PORTS, *addresses, Asked.TO_VM, Asked.FROM_VM]


def test_a_frame_goes_through_the_pipeline_as_if_its_port_had_sent_it() -> None:
    (out,) = commands.encode(DATAPATH, SendFrame("br0", OFPORT_LOCAL, b"frame"))
    out.set_xid(1)
    data = serialized([out])
    buffer_id, in_port, length = struct.unpack_from("!IIH", data, 8)
    assert (buffer_id, in_port, length) == (ofproto.OFP_NO_BUFFER, 0xFFFFFFFE, 16)
    assert struct.unpack_from("!HHI", data, 24) == (0, 16, ofproto.OFPP_TABLE)
    assert data.endswith(b"frame")


def test_a_frame_for_a_vm_port_goes_past_the_pipeline() -> None:
    (out,) = commands.encode(DATAPATH, DeliverFrame("br0", OFPORT_LOCAL, b"frame"))
    out.set_xid(1)
    data = serialized([out])
    assert struct.unpack_from("!IIH", data, 8) == (ofproto.OFP_NO_BUFFER, 0xFFFFFFFD, 16)
    assert struct.unpack_from("!HHI", data, 24) == (0, 16, 0xFFFFFFFE)
    assert data.endswith(b"frame")


def test_commands_for_others_than_a_switch_have_no_messages() -> None:
    with pytest.raises(TypeError):
        commands.encode(DATAPATH, Connect("br0"))
