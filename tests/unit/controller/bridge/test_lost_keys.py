"""Keys that vanish from the database apply for some time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.engine_commands import Disconnect, Write
from controller.api.events import DatabaseRead, Leading
from controller.config.kept_keys import KEYS_COPY, UPLINK_KEYS_COPY
from controller.config.rows import PREFIX, BridgeRow
from controller.dataplane.specs import EMPTY
from policies.model import OFPORT_LOCAL
from tests.unit.controller.engine.told import shown
from tests.unit.fake_switch import World, done, refusal, reports, world
from tests.unit.rows import (
    bond,
    bridge,
    host,
    interface,
    ours,
    plain_uplinks,
    port,
    with_ids,
    with_interface,
    without_us,
)

WORDS = "uplinks=eth1,eth2 threshold=50"
PLAIN = plain_uplinks("standalone")
ON_PLAIN = replace(PLAIN, ports=(port("br0", OFPORT_LOCAL), *PLAIN.ports))


def attached() -> World:
    here = world(ON_PLAIN).start().do(f"attach br0 {WORDS}").run_for(1)
    here.log.clear()
    return here


def loses(here: World) -> World:
    """The bridge's keys vanish."""
    return here.write(without_us(here.rows["br0"]))


def errors(here: World) -> list[str]:
    return shown(here)["config_errors"]


def test_the_service_goes_on_and_says_so() -> None:
    here = attached()
    before = here.bindings()
    loses(here)
    assert here.commands(Disconnect) == []
    (told, bad) = reports(here, "warning")
    assert told.startswith(
        "Bridge br0 ovs-lbt-policy: the key was removed from the database, and the service continues"
    )
    assert bad.startswith("Bridge br0 ovs-lbt-policy: the key has disappeared from the database")
    assert errors(here) == [bad]
    assert found(here) == found(here, "br0") == [bad, *found(here)[1:]], "it is managed"
    text = done(here.ask("show"))
    assert f"key lost   {bad}" in text and "bad value" not in text
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
    ids = ours(policy="load-based", threshold="60", uplinks="eth1,eth2")
    here.write(replace(here.rows["br0"], external_ids=ids))
    assert here.rows["br0"].external_ids == ids | ours(before='{"fail_mode": "standalone"}')
    assert errors(here) == []
    assert here.bridge.config.threshold_ratio == 0.6
    here.run_for(60)
    assert here.commands(Disconnect) == []
    loses(here).run_for(25)
    assert here.commands(Disconnect) == [], "the time begins again"


@pytest.mark.parametrize("how", ["at once", "in steps", "while the service is stopped"])
def test_keys_of_an_uplink_that_is_created_again_are_restored(how: str) -> None:
    here = world(with_uuids(host(uplinks=3), "a")).start()
    here.write_keys_of("eth2", role="standby", capacity_mbps="500").run_for(1)
    stored, before = here.rows["br0"].external_ids[UPLINK_KEYS_COPY], here.bindings()
    assert set(before.values()) == {"eth1", "eth3"}
    again = with_uuids(with_interface(here.rows["br0"], "eth2"), "b")
    here.log.clear()
    if how == "in steps":
        here.write(replace(again, ports=tuple(p for p in again.ports if p.name != "bond0")))
        again = replace(again, external_ids=here.rows["br0"].external_ids)
    if how == "while the service is stopped":
        here.rows["br0"] = again
        here.restart_service()
    else:
        here.write(again)
    here.run_for(60)
    (eth2,) = (i for i in here.rows["br0"].interfaces if i.name == "eth2")
    assert eth2.external_ids == ours(role="standby", capacity_mbps="500")
    assert here.rows["br0"].external_ids[UPLINK_KEYS_COPY] == stored.replace("eth2-a", "eth2-b")
    assert here.bindings() == before
    told = "Interface eth2: another program has created the record again"
    assert any(told in one for one in reports(here, "info"))
    here.write_keys_of("eth2", capacity_mbps="500").run_for(60)
    assert shown(here)["uplinks"][1]["role"] == "active", "what an operator removes stays removed"
    here.do("detach br0")
    assert here.rows["br0"].external_ids == {}


def with_uuids(row: BridgeRow, life: str) -> BridgeRow:
    return row.with_interfaces(lambda one: replace(one, uuid=f"{one.name}-{life}"))


@pytest.mark.parametrize("text", ["x", "[]", '{"eth2": 1}', '{"eth2": ["", {"a": "b"}]}', "{" * 9])
def test_a_copy_of_uplinks_keys_that_is_none_is_written_anew(text: str) -> None:
    here = world(with_ids(host(), uplink_keys=text)).start()
    assert UPLINK_KEYS_COPY not in here.rows["br0"].external_ids and errors(here) == []


def test_detach_does_not_wait() -> None:
    here = loses(attached()).do("detach br0")
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
    here.do("attach br0 uplinks=eth1,eth2")
    assert here.rows["br0"] == before
    here.do("detach br0")
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
    assert "eth3, a new interface named like eth1, is missing" in errors(here)[0]
    (eth3,) = (p for p in here.rows["br0"].ports if p.name == "eth3")
    assert eth3.protected


def test_vm_ports_may_be_named_like_uplinks() -> None:
    ports = [port(f"s1-eth{i}", i) for i in range(1, 5)]
    here = world(bridge(*ports, ids={})).start()
    here.do("attach br0 uplinks=s1-eth1,s1-eth2").add_port(port("s1-eth5", 5))
    assert here.bindings().keys() == {"s1-eth3", "s1-eth4", "s1-eth5"}
    here.restart_service()
    assert here.bindings().keys() == {"s1-eth3", "s1-eth4", "s1-eth5"}


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("0", 0), ("much", 30), (None, 30)])
def test_the_time_is_the_operator_s(text: str | None, seconds: float) -> None:
    here = world(host()).start()
    read = DatabaseRead(tuple(here.rows.values()), key_loss_grace_s=text)
    here.say(read, read)
    told = [
        f"Open_vSwitch . {PREFIX}key-loss-grace-s: much is invalid; expected a number of seconds from 0 to 86400"
    ]
    assert reports(here, "warning") == (told if text == "much" else [])
    assert here.engine.fleet.lost_keys.grace_s == seconds


def test_ports_that_others_protect_are_left_alone() -> None:
    row = plain_uplinks("secure")
    ports = tuple(replace(p, protected=p.name == "vnet0") for p in row.ports)
    here = world(replace(row, ports=ports)).start()
    here.do("attach br0 uplinks=eth1,eth2")
    assert [p.name for p in here.rows["br0"].ports if p.protected] == ["vnet0"]
    assert not [w for w in here.commands(Write) if "protected" in str(w)]


# ---- the copy of the keys --------------------------------------------------------------


def left() -> World:
    """A bridge whose keys vanish, and the service lets it go."""
    here = loses(attached()).run_for(40)
    assert here.engine.fleet.bridges == {}
    return here


def found(here: World, *words: str) -> list[str]:
    answer = json.loads(done(here.ask("check", *words, "--json")))
    return [f["text"] for f in answer["findings"] if f["severity"] != "note"]


def test_keys_that_vanish_later_can_be_given_back() -> None:
    here = left()
    assert here.switch.installed != EMPTY
    for words in ((), ("br0",)):
        (first, *more) = found(here, *words)
        assert first.startswith("ovs-lbt-policy has disappeared") and "detach br0" in first
        assert [text.partition(",")[0] for text in more] == ["the ovs-lbt flows forward"] * len(
            words
        )
    here.do("detach br0")
    assert here.rows["br0"] == ON_PLAIN and here.switch.installed == EMPTY
    here.run_for(1)
    assert here.engine.fleet.bridges == {} and here.engine.deadline_s() == float("inf")
    assert found(here, "br0", "uplinks=eth1,eth2") == []
    assert "not attached" in refusal(here.ask("detach", "br0"))


def test_attach_restores_them() -> None:
    here = left()
    text = done(here.ask("attach", "br0", "policy=explicit"))
    assert text.startswith("br0: explicit over eth1, eth2")
    here.run_for(1)
    before = '{"fail_mode": "standalone"}'
    kept = {"policy": "explicit", "threshold": "50", "uplinks": "eth1,eth2", "before": before}
    assert here.rows["br0"].external_ids.items() >= ours(**kept).items()
    kept_copy = here.rows["br0"].ports[0].external_ids[KEYS_COPY]
    assert json.loads(kept_copy) == here.rows["br0"].external_ids


def test_an_operator_may_restore_them_in_the_database() -> None:
    here = left()
    ids = ours(policy="load-based", uplinks="eth1,eth2")
    here.write(replace(here.rows["br0"], external_ids=ids, fail_mode="standalone")).run_for(1)
    assert here.rows["br0"].fail_mode == "secure"
    here.do("detach br0")
    assert here.rows["br0"].fail_mode == "standalone"


@pytest.mark.parametrize("while_stopped", [True, False])
def test_the_time_is_not_lost_with_a_restart(while_stopped: bool) -> None:
    here = attached()
    before, row = here.bindings(), here.rows["br0"]
    if not while_stopped:
        loses(here)
    here.rows["br0"] = without_us(here.rows["br0"])
    here.restart_service().run_for(25)
    assert here.bindings() == before and errors(here)
    here.write(replace(here.rows["br0"], external_ids=row.external_ids))
    assert errors(here) == [] and here.rows["br0"] == row
    loses(here).run_for(40)
    assert here.engine.fleet.bridges == {}


def test_the_time_is_not_lost_with_the_lead() -> None:
    here = attached()
    here.say(Leading(False)).write(without_us(here.rows["br0"]))
    assert here.engine.fleet.bridges == {}
    here.say(Leading(True)).run_for(1)
    assert here.bindings() and errors(here)


def test_a_detach_is_not_cut_short_when_the_time_ends() -> None:
    here = loses(attached()).run_for(28)
    here.switch.holds_answers = True
    assert here.ask("detach", "br0") is None
    here.run_for(4)
    here.answer_held().run_for(1)
    done(here.replies[2])
    assert here.rows["br0"] == ON_PLAIN


def test_whoever_makes_a_bond_of_plain_uplinks_goes_on_without_us() -> None:
    here = left()
    kept, *others = here.rows["br0"].ports
    vnet0 = others[-1]
    here.rows["br0"] = bridge(kept, bond(interface("eth1", 1), interface("eth2", 2)), vnet0, ids={})
    here.switch.flows.clear()
    here.switch.groups.clear()
    here.restart_service().run_for(5)
    assert here.engine.fleet.bridges == {} and here.switch.installed == EMPTY


@pytest.mark.parametrize("text", ["", "[1]", "{", "7", '{"ovs-lbt-policy": 5}', "[" * 100_000])
def test_what_others_write_in_its_place_is_no_copy(text: str) -> None:
    here = left()
    own, *others = here.rows["br0"].ports
    here.write(
        replace(here.rows["br0"], ports=(replace(own, external_ids={KEYS_COPY: text}), *others))
    )
    assert "not attached" in refusal(here.ask("detach", "br0"))
    (only,) = found(here, "br0", *WORDS.split())
    assert only.startswith("the ovs-lbt flows forward")
