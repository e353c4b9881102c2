"""A bridge may allow only versions of OpenFlow that the service does not speak."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.config import openflow_version
from controller.config.rows import BridgeRow
from tests.said import says
from tests.unit.fake_switch import done, world
from tests.unit.rows import host, without_us


@pytest.mark.parametrize(
    "allowed", [(), ("OpenFlow13",), ("OpenFlow10", "OpenFlow13", "OpenFlow15")]
)
def test_nothing_is_said_of_a_bridge_that_allows_ours_or_all(allowed: tuple[str, ...]) -> None:
    row = BridgeRow("br0", protocols=allowed)
    assert openflow_version.is_allowed(row)
    assert openflow_version.refusal(row) is None
    assert openflow_version.not_done(row) == ()


def test_attach_is_refused_with_the_command_that_allows_it_and_nothing_changes() -> None:
    row = replace(without_us(host()), protocols=("OpenFlow10", "OpenFlow14"))
    here = world(row).start()
    reply = here.ask("attach", "br0", "policy=load-based")
    assert reply and reply.refused
    command = "ovs-vsctl add bridge br0 protocols OpenFlow13"
    assert says(reply.text, "bridge br0: protocols OpenFlow10, OpenFlow14 -> ", command)
    assert here.rows["br0"] == row
    assert not here.dialled


def test_an_attached_bridge_tells_it_and_keeps_what_it_has() -> None:
    here = world(host()).start()
    here.write(replace(here.rows["br0"], protocols=("OpenFlow10",)))
    here.disconnect()
    (shown,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    (told,) = shown["not_done"]
    assert says(told, "Bridge br0 protocols: OpenFlow10", "OpenFlow13")
    findings = json.loads(done(here.ask("check", "br0", "--json")))["findings"]
    (away,) = (one for one in findings if one["check"] == "not-connected")
    assert says(away["text"], "not connected -> OpenFlow13")
    here.write(replace(here.rows["br0"], protocols=()))
    here.connect()
    (shown,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    assert shown["connected"] and shown["not_done"] == []
