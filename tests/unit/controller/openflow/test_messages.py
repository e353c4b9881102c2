"""OpenFlow errors in words; when a port is up."""

from __future__ import annotations

import struct

import pytest

from controller.openflow import messages
from controller.openflow.framework import ofproto, parser
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import HEADER, MAC, parse


def test_an_error_of_an_experimenter_is_told_as_one() -> None:
    """Open vSwitch has those for bundles; they have no code."""
    body = struct.pack("!HHI", 0xFFFF, 2300, 0x4F4E4600) + bytes(16)
    header = HEADER.pack(4, ofproto.OFPT_ERROR, HEADER.size + len(body), messages.BUNDLE_XID | 7)
    message = parse(header + body)
    assert messages.error_text(message) == "experimenter 0x4f4e4600, error 2300"
    assert messages.bundle_number(message) == 7


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
    seen = messages.port_state(port)
    assert (seen.ofport, seen.name, seen.up, seen.speed_bps) == (OFPORT_LOCAL, "br0", up, 10e9)
    assert seen.silent is silent
