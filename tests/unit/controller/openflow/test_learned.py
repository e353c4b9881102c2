"""Addresses that the switch has learned, and where each of them is."""

from __future__ import annotations

from controller.api.events import LearnedRead
from controller.dataplane import tables
from controller.openflow.framework import ofproto
from controller.openflow.messages import Asked
from controller.openflow.replies import Replies
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import MAC, learned, reply


def test_an_address_that_announced_itself_outside_is_elsewhere() -> None:
    entries = [
        learned(tables.ELSEWHERE, MAC, (7, 0xFFF), taught_by=0),
        learned(10, MAC, (8, 0xFFF)),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert read == LearnedRead("br0", ((10, MAC, 8),), elsewhere=((MAC, 7),))


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
        learned(11, MAC, None, taught_by=tables.FROM_NORMAL | 0x1234),
        learned(10, MAC, (7, 0xFFF), taught_by=tables.FROM_NORMAL),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert read == LearnedRead("br0", (), ((10, MAC, 7), (11, MAC, None)))
