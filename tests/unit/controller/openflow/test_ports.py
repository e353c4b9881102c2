"""When a port is up."""

from __future__ import annotations

import pytest

from controller.openflow import ports
from controller.openflow.framework import ofproto, parser
from policies.model import OFPORT_LOCAL
from tests.unit.controller.openflow.switch_bytes import MAC


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
    seen = ports.port_state(port)
    assert (seen.ofport, seen.name, seen.up, seen.speed_bps) == (OFPORT_LOCAL, "br0", up, 10e9)
    assert seen.silent is silent
