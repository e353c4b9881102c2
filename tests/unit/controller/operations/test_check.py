"""What `check` finds, driven through the engine: of attached bridges, and of one that is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from controller.api.status import UPLINK_METRICS
from controller.config.rows import InterfaceRow
from controller.dataplane.drops import Drop
from tests.unit.controller.engine.told import offer, shown
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import (
    host,
    ours,
    port,
    with_interface,
    without_us,
)


def asked(here: World, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(done(here.ask("check", *words, "--json")))
    return answer


def found(here: World, *words: str) -> dict[str, str]:
    """What asks for something, by its kind."""
    findings = asked(here, *words)["findings"]
    return {one["check"]: one["text"] for one in findings if one["severity"] != "note"}


def notes(here: World, *words: str) -> dict[str, str]:
    findings = asked(here, *words)["findings"]
    return {one["check"]: one["text"] for one in findings if one["severity"] == "note"}


# ---- attached ---------------------------------------------------------------------------


def test_a_bridge_without_findings_is_well() -> None:
    here = world(host()).start()
    assert done(here.ask("check")) == "br0: no problems found"
    assert asked(here) == asked(here, "br0")
    (team,) = asked(here)["bridges"]
    assert (team["name"], team["attached"], team["teaming"]) == ("br0", True, "switch-independent")
    assert [u["name"] for u in team["uplinks"]] == ["eth1", "eth2"]


def test_frames_that_are_dropped_on_purpose_are_reported_by_port_and_reason() -> None:
    mac = "52:54:00:00:00:01"
    here = world(host().with_interfaces(lambda one: with_mac(one, "vnet1", mac)))
    switch = here.switches["br0"]
    switch.dropped = {(11, Drop.ADDRESS): 5, (10, Drop.VLAN): 1}
    here.start().run_for(20)
    assert found(here) == {} and "dropped" not in notes(here), "when that was is not known"
    assert "vnet1: dropped 5 frames from addresses that its" in done(here.ask("show"))
    switch.dropped = {(11, Drop.ADDRESS): 7, (mac, Drop.CLAIMED): 2, (10, Drop.VLAN): 4}
    here.run_for(20)
    told = [one["text"] for one in asked(here)["findings"] if one["check"] == "dropped"]
    assert [text.split(" (")[0].split("dropped ")[1] for text in told] == [
        "frames in VLANs that the port does not carry",
        "frames from addresses that its attached-mac does not list",
        "frames that other VM ports sent from its own address",
    ]
    assert len(notes(here)) == len(found(here)) == 1
    assert shown(here)["ports"][1]["dropped_on_purpose"] == {"address": 7, "claimed-address": 2}
    assert "dropped 7 frames" in " ".join(done(here.ask("explain", "vnet1")).split())
    # The flow was installed again.
    switch.dropped = {(11, Drop.ADDRESS): 3}
    here.run_for(20)
    assert shown(here)["ports"][1]["dropped_on_purpose"]["address"] == 10
    reject = ours(forged_transmits="reject")
    here.write(here.rows["br0"].with_interfaces(lambda one: with_mac(one, "vnet1", mac, reject)))
    assert found(here).keys() == {"dropped"} and "claimed" not in notes(here)["dropped"]
    accept = ours(forged_transmits="accept")
    here.write(here.rows["br0"].with_interfaces(lambda one: with_mac(one, "vnet1", mac, accept)))
    assert found(here) == {} and "vnet1" not in notes(here)["dropped"]
    here.run_for(1000)
    assert "dropped" not in notes(here)
    here.remove_port("vnet1")
    assert "dropped" not in done(here.ask("show")).replace("vnet0: dropped", "")


def test_ports_with_names_that_do_not_last_and_without_an_id_are_reported() -> None:
    row, known = host(vms=()), {"iface-id": "i1"}
    made_up = port("veth1a2b3c4d", 10), port("tap00ff00ff", 11), port("mac99999999", 12, known)
    row = replace(row, ports=(*row.ports, *made_up, port("vnet3", 13)))
    told = "veth1a2b3c4d, tap00ff00ff: external_ids has no iface-id or vm-id, so bindings"
    assert notes(world(row).start())["no-id"].startswith(told)
    here = world(without_us(row)).start()
    assert notes(here, "br0")["no-id"].startswith(told) and found(here, "br0") == {}
    assert told in done(here.ask("attach", "br0"))
    assert "no-id" not in notes(world(host()).start())


def test_a_split_that_spreads_nothing_is_reported() -> None:
    here = world(host("adaptive"))
    offer(here, [14e9]).start().run_for(20)
    assert shown(here)["ports"][0]["split"]
    assert "most sent frames are not IP" in notes(here)["not-spread"]
    here.switches["br0"].connections = {10: dict.fromkeys(range(256), 1 / 256)}
    here.run_for(20)
    assert shown(here)["ports"][0]["split"] and "not-spread" not in notes(here)


def test_a_port_with_as_many_addresses_as_the_switch_learns_is_reported() -> None:
    here = world(host())
    learned = tuple((10, f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", 0) for n in range(1024))
    here.switches["br0"].learned = learned[1:]
    here.start().run_for(1)
    assert "addresses" not in notes(here)
    here.switches["br0"].learned = learned
    here.run_for(20)
    assert "has learned 1024 addresses" in notes(here)["addresses"]


def with_mac(
    one: InterfaceRow, name: str, mac: str, ids: Mapping[str, str] = MappingProxyType({})
) -> InterfaceRow:
    return replace(one, external_ids={"attached-mac": mac, **ids}) if one.name == name else one


def test_a_capacity_that_nobody_knows_is_called_a_guess() -> None:
    here = world(with_interface(host(), "eth1", capacity_mbps="100"))
    ports = here.switches["br0"].ports
    ports[2] = replace(ports[2], speed_bps=0.0)
    here.start()
    assert found(here) == {}
    guess = "its link speed is unknown, and 100 Mbit/s is a guess"
    assert notes(here)["capacity"].startswith(f"uplink eth2: {guess}; to set it: ovs-lbt set")
    assert f"eth2: {guess}" in done(here.ask("show")) and " 100? " in done(here.ask("show"))
    assert ["capacity_guessed" in uplink for uplink in shown(here)["uplinks"]] == [False, True]
    (status,) = here.engine.fleet.status()
    guessed = UPLINK_METRICS["uplink_capacity_guessed"]
    assert [guessed.read(uplink) for uplink in status.uplinks] == [False, True]
    here.write(with_interface(here.rows["br0"], "eth2", capacity_mbps="2500"))
    assert notes(here) == {} and "guess" not in done(here.ask("show"))


# ---- not attached -----------------------------------------------------------------------


@pytest.mark.parametrize("listens_at", ["192.0.2.9", "0.0.0.0", "192.0.2.8"])
def test_a_bridge_that_dials_the_service_can_be_attached(listens_at: str) -> None:
    row = replace(without_us(host()), controllers=("ssl:192.0.2.9:6653",), unanswered=True)
    here = world(row).start()
    here.engine.fleet.listens_on = listens_at, 6653
    dials_another = listens_at == "192.0.2.8"
    assert ("unfit" in found(here, "br0")) == dials_another
    switch = here.switches.pop("br0")
    here.ask("attach", "br0")
    if dials_another:
        here.run_for(10)
    else:
        # The switch tries again after 8 s, and the flows take longer than 2 s.
        here.run_for(8)
        here.switches["br0"], switch.holds_answers = switch, True
        here.connect()
        here.run_for(3)
        here.answer_held()
        switch.holds_answers = False
        here.run_for(3)
    assert here.rows["br0"].attached != dials_another
    if not dials_another:
        here.write(replace(here.rows["br0"], unanswered=False))
        assert found(here) == {}, "the service is no other program"
        here.disconnect()
        here.ask("detach", "br0")
        here.run_for(12)
        here.connect()
        here.run_for(3)
        assert not here.rows["br0"].attached and not switch.installed.flows
