"""A service that stands by, and what it does when it leads and when it does not any more."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.engine_commands import (
    Answer,
    Apply,
    Connect,
    Disconnect,
    Reply,
    Report,
    Setting,
    Write,
)
from controller.api.events import Challenged, DatabaseRead, Leading, Request, Tick, Written
from controller.engine import Engine
from tests.unit.fake_switch import World, world
from tests.unit.rows import host

WHO = "ovs-lbt-b@here"


def standing_by() -> Engine:
    """It has read the database, and another service leads."""
    engine = Engine(leads=False, name=WHO)
    assert engine.handle(DatabaseRead((host(),), "ovs-lbt@here"), 0.0) == ()
    (said,) = engine.handle(Leading(False), 0.0)
    assert said == Report("warning", "another service leads; this service is on standby")
    return engine


def led() -> World:
    made = world(host()).start().run_for(3)
    assert made.engine.fleet.leads
    return made


def test_who_stands_by_touches_nothing() -> None:
    engine = standing_by()
    moved = replace(host(), external_ids={**host().external_ids, "ovs-lbt-threshold": "60"})
    for event in (Tick(), DatabaseRead((moved,), "ovs-lbt@here"), Tick(), Challenged()):
        assert engine.handle(event, 1.0) == ()
    assert engine.deadline_s() == float("inf")
    assert engine.fleet.status() == ()


def test_who_stands_by_says_so_and_who_leads() -> None:
    engine = standing_by()
    (reply,) = engine.handle(Request(1, ("show", "--json")), 1.0)
    assert isinstance(reply, Reply) and not reply.refused
    told = {"bridges": [], "standby": True, "leader": "ovs-lbt@here"}
    assert json.loads(reply.text) == told
    said = (Reply(2, "on standby: ovs-lbt@here leads"),)
    assert engine.handle(Request(2, ("show",)), 1.0) == said
    engine.handle(DatabaseRead((host(),), "x\ny\x1b[2J"), 1.0)
    (reply,) = engine.handle(Request(3, ("move", "vnet0", "eth1")), 1.0)
    assert isinstance(reply, Reply) and reply.text.isprintable(), "in one line"


@pytest.mark.parametrize(
    "words", ["move vnet0 eth1", "show br0", "plan", "attach br1", "drain eth1"]
)
def test_who_stands_by_refers_operators_to_who_leads(words: str) -> None:
    engine = standing_by()
    text = "this service is on standby; ask the service that leads: ovs-lbt@here"
    asked = Request(1, tuple(words.split()))
    assert engine.handle(asked, 1.0) == (Reply(1, text, refused=True),)


def test_who_takes_the_lead_looks_after_every_bridge_as_it_is_now() -> None:
    engine = standing_by()
    other = replace(host(), name="br1")
    engine.handle(DatabaseRead((host(), other)), 1.0)
    said, *commands = engine.handle(Leading(True), 2.0)
    assert said == Report("warning", "this service leads now")
    assert commands == [Connect("br0"), Connect("br1")]
    assert engine.handle(Leading(True), 3.0) == ()


def test_who_leads_from_the_start_says_nothing_of_it() -> None:
    engine = Engine(leads=False, name=WHO)
    engine.handle(DatabaseRead((host(),)), 0.0)
    assert engine.handle(Leading(True), 0.0) == (Connect("br0"),)


def test_who_leads_answers_and_writes_its_name_until_it_is_there() -> None:
    engine = Engine(leads=False, name=WHO)
    engine.handle(DatabaseRead((), "ovs-lbt@here"), 0.0)
    engine.handle(Leading(True), 0.0)
    name = Write((Setting("Open_vSwitch", ".", "ovs-lbt-leader", WHO),))
    assert engine.handle(Challenged(), 1.0) == (Answer(), name)
    assert engine.handle(Challenged(), 1.2) == (Answer(), name)
    engine.handle(DatabaseRead((), WHO), 1.3)
    assert engine.handle(Challenged(), 1.5) == (Answer(),)


def test_who_was_stopped_and_has_lost_the_lead_refers_to_who_leads() -> None:
    engine = Engine(leads=False, name=WHO)
    engine.handle(DatabaseRead((), "ovs-lbt@here"), 0.0)
    engine.handle(Leading(True), 0.0)
    # It is asked before it hears that it has lost the lead, and its name never gets there.
    engine.handle(Challenged(), 1.0)
    engine.handle(Leading(False), 1.1)
    (reply,) = engine.handle(Request(1, ("show", "--json")), 1.2)
    assert isinstance(reply, Reply) and json.loads(reply.text)["leader"] == "ovs-lbt@here"


def test_who_loses_the_lead_lets_go_of_everything() -> None:
    here = led()
    commands = here.engine.handle(Leading(False), here.now_s)
    assert Disconnect("br0") in commands
    assert not [c for c in commands if isinstance(c, Write | Apply)]
    # What the switch and the database had under way comes to nothing.
    for event in (Tick(), Written(77), DatabaseRead(tuple(here.rows.values()), "other")):
        later = here.engine.handle(event, here.now_s + 60)
        assert not [c for c in later if not isinstance(c, Reply)]


def test_whoever_waits_for_who_loses_the_lead_is_told() -> None:
    here = led()
    here.switch.holds_answers = True
    assert here.ask("move", "vnet0", "eth2") is None
    assert here.ask("drain", "eth1") is None
    assert here.ask("detach", "br0") is None
    refused = [c for c in here.engine.handle(Leading(False), here.now_s) if isinstance(c, Reply)]
    assert sorted(reply.request_id for reply in refused) == [1, 2, 3]
    assert all(reply.refused for reply in refused)
    assert len({reply.text for reply in refused}) == 1


def test_a_lead_that_comes_back_is_as_after_a_start() -> None:
    here = led()
    bound = here.bindings()
    here.say(Leading(False)).run_for(5)
    here.log.clear()
    here.say(Leading(True)).run_for(5)
    assert here.bindings() == bound and here.applied() == []
