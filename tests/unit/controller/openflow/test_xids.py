"""OpenFlow errors in words."""

from __future__ import annotations

import struct

from controller.openflow import xids
from controller.openflow.framework import ofproto
from tests.unit.controller.openflow.switch_bytes import HEADER, parse


def test_an_error_of_an_experimenter_is_told_as_one() -> None:
    """Open vSwitch has those for bundles; they have no code."""
    body = struct.pack("!HHI", 0xFFFF, 2300, 0x4F4E4600) + bytes(16)
    header = HEADER.pack(4, ofproto.OFPT_ERROR, HEADER.size + len(body), xids.BUNDLE_XID | 7)
    message = parse(header + body)
    assert xids.error_text(message) == "experimenter 0x4f4e4600, error 2300"
    assert xids.bundle_number(message) == 7
