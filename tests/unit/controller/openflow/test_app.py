"""What the app passes on while a connection is becoming live."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from controller.api.events import Event, PortChanged, SwitchConnected
from controller.openflow.app import TeamingApp
from controller.openflow.framework import ofproto


def test_a_port_that_changes_just_before_its_connection_is_live_is_not_lost() -> None:
    """The thread that makes the connection live may run before the framework notes the change."""
    submitted: list[Event] = []
    app = TeamingApp(
        submit=submitted.append, connections={}, caller=lambda _: "br0", confirm=lambda _: None
    )
    down, up = (
        SimpleNamespace(port_no=1, name=b"eth1", config=0, state=state, curr_speed=0)
        for state in (ofproto.OFPPS_LINK_DOWN, ofproto.OFPPS_LIVE)
    )
    connection = SimpleNamespace(
        bridge="br0", ports={1: down}, claimed=1, is_active=True, refused=False
    )
    changed = SimpleNamespace(
        msg=SimpleNamespace(datapath=connection, reason=ofproto.OFPPR_MODIFY, desc=up)
    )
    app.port_status(changed)
    app.granted(connection)
    app.port_status(changed)
    connected, told = submitted
    assert isinstance(connected, SwitchConnected) and isinstance(told, PortChanged)
    assert connected.ports == (told.port,) and told.port.up


def test_a_port_status_is_noted_before_its_connection_is_live() -> None:
    """Otherwise its connection goes on: what cannot be noted closes it, as a switch may send anything."""
    connection = SimpleNamespace(bridge="br1", ports={}, refused=False)
    app = TeamingApp(
        submit=lambda _: None, connections={}, caller=lambda _: "br1", confirm=lambda _: None
    )
    message = SimpleNamespace(datapath=connection, reason=ofproto.OFPPR_MODIFY, desc=None)
    with pytest.raises(AttributeError):
        app.port_status(SimpleNamespace(msg=message))
    assert not app.turns["br1"].locked()
