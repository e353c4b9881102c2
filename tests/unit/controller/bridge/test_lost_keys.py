"""Keys that vanish from the database apply for some time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import Disconnect, Write
from controller.api.events import DatabaseRead
from controller.config.rows import PREFIX
from tests.unit.controller.engine.told import shown
from tests.unit.fake_switch import World, done, refusal, reports, world
from tests.unit.rows import bridge, host, ours, plain_uplinks, port, without_us


def attached() -> World:
    here = world(plain_uplinks("standalone")).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    here.run_for(1)
    here.log.clear()
    return here


def errors(here: World) -> list[str]:
    return shown(here)["config_errors"]


def test_the_service_goes_on_and_says_so() -> None:
    here = attached()
    before = here.bindings()
    here.write(without_us(here.rows["br0"]))
    assert here.commands(Disconnect) == []
    (told, bad) = reports(here, "warning")
    assert told.startswith("Bridge br0 ovs-lbt-policy: removed; the service continues")
    assert bad.startswith("Bridge br0 ovs-lbt-policy: vanished from the database; the keys from")
    assert errors(here) == [bad]
    assert f"key lost   {bad}" in done(here.ask("show")) and "bad value" not in done(
        here.ask("show")
    )
    here.write(replace(here.rows["br0"], fail_mode="standalone"))
    assert here.rows["br0"].fail_mode == "secure", "although the key that says so has vanished"
    here.run_for(25)
    assert here.bindings() == before and here.commands(Disconnect) == []
    here.run_for(6)
    assert here.commands(Disconnect) == [Disconnect("br0")]
    assert here.engine.fleet.status() == ()
    assert {p.name for p in here.rows["br0"].ports if p.protected} == {"eth1", "eth2"}


def test_keys_that_return_are_followed_and_those_of_the_service_written_again() -> None:
    here = attached()
    before = here.rows["br0"]
    here.write(without_us(before))
    ids = ours(policy="load-based", threshold="50", uplinks="eth1,eth2")
    here.write(replace(here.rows["br0"], external_ids=ids))
    assert here.rows["br0"].external_ids == ids | ours(before='{"fail_mode": "standalone"}')
    assert errors(here) == []
    assert here.engine.fleet.bridges["br0"].config.threshold_ratio == 0.5
    here.run_for(60)
    assert here.commands(Disconnect) == []
    here.write(without_us(here.rows["br0"]))
    here.run_for(25)
    assert here.commands(Disconnect) == [], "the time begins again"


def test_detach_does_not_wait() -> None:
    here = attached()
    here.write(without_us(here.rows["br0"]))
    done(here.ask("detach", "br0"))
    row = here.rows["br0"]
    assert (row.fail_mode, row.external_ids) == ("standalone", {})
    assert not any(p.protected or p.external_ids for p in row.ports)
    assert here.engine.fleet.bridges == {} and here.engine.deadline_s() == float("inf")


def test_attach_does_not_wait_either() -> None:
    here = attached()
    before = here.rows["br0"]
    here.write(without_us(before))
    assert "eth9" in refusal(here.ask("attach", "br0", "uplinks=eth1,eth9"))
    assert errors(here) and here.commands(Disconnect) == [], "the keys from before apply"
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    assert here.rows["br0"] == before
    done(here.ask("detach", "br0"))
    assert here.rows["br0"].fail_mode == "standalone"


def test_an_interface_that_may_be_an_uplink_waits_for_the_keys() -> None:
    here = world(host()).start()
    row = here.rows["br0"]
    here.write(without_us(row))
    here.add_port(port("new0", 20)).add_port(port("tap0", 21, {"iface-id": "a"}))
    assert "new0" not in here.bindings() and "tap0" in here.bindings()
    here.write(replace(here.rows["br0"], external_ids=row.external_ids))
    assert "new0" in here.bindings()


def test_a_third_uplink_that_nobody_named_is_no_vm_port() -> None:
    here = attached()
    here.add_port(port("eth3", 3))
    assert "eth3" not in here.bindings()
    assert "eth3, new, and named like eth1, is missing" in errors(here)[0]
    (eth3,) = (p for p in here.rows["br0"].ports if p.name == "eth3")
    assert eth3.protected


def test_vm_ports_may_be_named_like_uplinks() -> None:
    ports = [port(f"s1-eth{i}", i) for i in range(1, 5)]
    here = world(bridge(*ports, ids={})).start()
    done(here.ask("attach", "br0", "uplinks=s1-eth1,s1-eth2"))
    here.add_port(port("s1-eth5", 5))
    assert here.bindings().keys() == {"s1-eth3", "s1-eth4", "s1-eth5"}
    here.restart_service()
    assert here.bindings().keys() == {"s1-eth3", "s1-eth4", "s1-eth5"}


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("0", 0), ("much", 30), (None, 30)])
def test_the_time_is_the_operator_s(text: str | None, seconds: float) -> None:
    here = world(host()).start()
    read = DatabaseRead(tuple(here.rows.values()), key_loss_grace_s=text)
    here.say(read, read)
    told = [f"Open_vSwitch . {PREFIX}key-loss-grace-s: much -> seconds from 0 to 86400"]
    assert reports(here, "warning") == (told if text == "much" else [])
    assert here.engine.fleet.lost_keys.grace_s == seconds


def test_ports_that_others_protect_are_left_alone() -> None:
    row = plain_uplinks("secure")
    ports = tuple(replace(p, protected=p.name == "vnet0") for p in row.ports)
    here = world(replace(row, ports=ports)).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2"))
    assert [p.name for p in here.rows["br0"].ports if p.protected] == ["vnet0"]
    assert not [w for w in here.commands(Write) if "protected" in str(w)]
