"""What the app passes on while a connection is becoming live."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller.api.events import Event, PortChanged, SwitchConnected
from controller.openflow import framework
from controller.openflow.app import TeamingApp
from controller.openflow.framework import ofproto
from controller.openflow.framing import HEADER


def test_a_port_that_changes_just_before_its_connection_is_live_is_not_lost() -> None:
    """The framework notes the change first. The thread that makes the connection live reads it then."""
    submitted: list[Event] = []
    app = TeamingApp(
        submit=submitted.append, connections={}, caller=lambda _: "br0", confirm=lambda _: None
    )
    up = SimpleNamespace(port_no=1, name=b"eth1", config=0, state=ofproto.OFPPS_LIVE, curr_speed=0)
    connection = SimpleNamespace(
        bridge="br0",
        ports={1: up},
        claimed=1,
        is_active=True,
        refused=False,
        look_ahead=lambda: None,
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


def test_the_framework_handles_a_message_before_the_app() -> None:
    order: list[str] = []
    brick = SimpleNamespace(
        get_handlers=lambda *_: [lambda _: order.append("framework")],
        send_event_to_observers=lambda *_: order.append("app"),
    )
    connection: Any = SimpleNamespace(takes=lambda *_: True, state=None, ofp_brick=brick)
    kind = ofproto.OFPT_BARRIER_REPLY
    message = HEADER.pack(ofproto.OFP_VERSION, kind, HEADER.size, 1)
    connection._parsed = framework.Connection._parsed.__get__(connection)
    framework.Connection._handle(connection, ofproto.OFP_VERSION, kind, 1, message)
    assert order == ["framework", "app"]


def test_a_live_message_that_cannot_be_handled_closes_its_connection_only() -> None:
    refused: list[str] = []
    connection = SimpleNamespace(
        bridge="br1", refused=False, refuse_unread=lambda what, _: refused.append(what)
    )
    app = TeamingApp(
        submit=lambda _: None,
        connections={"br1": connection},
        caller=lambda _: "br1",
        confirm=lambda _: None,
    )
    message = SimpleNamespace(datapath=connection, reason=ofproto.OFPPR_MODIFY, desc=None)
    app.port_status(SimpleNamespace(msg=message))
    assert refused == ["port_status"]
