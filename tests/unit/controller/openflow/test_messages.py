"""OpenFlow errors in words; which bundle a message is about; when a port is up."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from controller.openflow import messages
from controller.openflow.framework import ofproto, parser, serialized
from controller.openflow.messages import Asked
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow import switch_bytes
from tests.unit.controller.openflow.switch_bytes import MAC, error, parse


def test_an_error_of_an_experimenter_is_told_as_one() -> None:
    """Open vSwitch has those for bundles; they have no code."""
    body = struct.pack("!HHI", 0xFFFF, 2300, 0x4F4E4600) + bytes(16)
    message = parse(switch_bytes.message(ofproto.OFPT_ERROR, messages.BUNDLE_XID | 7, body))
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


def experimenter(kind: int, xid: int) -> Any:
    control = parser.ONFBundleCtrlMsg(switch_bytes.DATAPATH, xid & 0xFFFFFF, kind, 0, [])
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
