"""What is sent for each command."""

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
from controller.dataplane import tables
from controller.dataplane.tables import Kind, Table, cookie
from controller.openflow import commands
from controller.openflow.framework import ofproto, serialized
from controller.openflow.messages import Asked
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import DATAPATH, HEADER, split

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
    messages = split(serialized(commands.encode(DATAPATH, command)))
    assert [HEADER.unpack_from(message)[3] for message in messages] == asked


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
