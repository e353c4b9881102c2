"""An error of ours while one bridge is handled: this bridge keeps its flows, and the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.api.engine_commands import Apply, ReadInstalled
from controller.api.events import DatabaseRead
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import LONGEST_PAUSE_S, OVER_AFTER_S
from controller.bridge.handover import Handover
from controller.bridge.installation import Installation
from controller.dataplane.specs import EMPTY
from controller.features.polls import Polls
from controller.features.port_changes import PortChanges
from controller.text.wording import OUR_LOG
from tests.said import says
from tests.unit.controller.engine.told import desired, shown
from tests.unit.fake_switch import World, done, refusal, reports, world
from tests.unit.rows import host, ours, without_us

BROKEN = "KeyError: 'broken'"


def two_bridges(policy: str = "originating-port") -> World:
    """br0 and br1, with ports of the same numbers; errors are expected."""
    rows = host(policy), replace(host(policy, vms=("vnet4", "vnet5")), name="br1")
    here = world(rows[0])
    here.rows["br1"] = rows[1]
    here.switches["br1"] = world(rows[1]).switches["br1"]
    here.expects_failures = True
    return here.start().run_until(5)


def fails(*_: object) -> Any:
    raise KeyError("broken")


def breaks(
    monkeypatch: pytest.MonkeyPatch, method: str, of: type[Any] = Bridge
) -> Callable[[], None]:
    """Let a method of a bridge, or of a part of one, fail for br0. Returns what ends that."""
    made = getattr(of, method)

    def breaking(part: Any, *arguments: object) -> object:
        bridge = getattr(part, "bridge", part)
        return fails() if bridge.config.name == "br0" else made(part, *arguments)

    monkeypatch.setattr(of, method, breaking)
    return lambda: monkeypatch.setattr(of, method, made)


def found_by_check(here: World) -> list[tuple[str, str]]:
    found = json.loads(done(here.ask("check", "--json")))["findings"]
    return [(one["bridge"], one["text"]) for one in found if one["check"] == "fault"]


def test_a_bundle_that_cannot_be_encoded_concerns_its_bridge_only() -> None:
    here = two_bridges()
    before = here.switch.installed
    here.cannot_encode = lambda apply: apply.bridge == "br0"
    for bridge in ("br0", "br1"):
        here.set_link(1, up=False, bridge=bridge)
    here.run_for(20)
    assert set(here.bindings("br1").values()) == {"eth2"}
    assert here.switch.installed == before, "its last pipeline"
    text = "ValueError: a group is too long"
    assert shown(here)["failure"] == text and "failure" not in shown(here, "br1")
    assert text in done(here.ask("show", "br0"))
    ((of, why),) = found_by_check(here)
    assert of == "br0" and says(why, text, OUR_LOG)
    assert [one.again for one in here.failures][:3] == [False, True, True], "logged once"
    assert {one.of for one in here.failures} == {"bridge br0"}
    here.cannot_encode = lambda _: False
    here.run_for(LONGEST_PAUSE_S)
    assert set(here.bindings().values()) == {"eth2"}
    assert here.switch.installed == desired(here)
    assert here.switch.installed != before
    here.run_for(LONGEST_PAUSE_S + OVER_AFTER_S)
    assert "failure" not in shown(here) and not found_by_check(here)
    assert "br0: recovered from internal errors" in reports(here, "info")


def test_a_bridge_that_fails_again_and_again_is_tried_less_and_less_often() -> None:
    here = two_bridges()
    here.cannot_encode = lambda apply: apply.bridge == "br0"
    here.set_link(1, up=False).run_for(1)
    soon = len(here.commands(Apply))
    here.run_for(300)
    assert soon >= 3 and len(here.commands(Apply)) - soon < 15
    # It is still seen what the switch reports.
    here.set_link(1, up=True)
    assert shown(here)["uplinks"][0]["up"]


@pytest.mark.parametrize(
    ("of", "method"), [(Polls, "heard"), (Polls, "_decide"), (Polls, "_polled_all")]
)
def test_a_decision_that_fails_leaves_failovers_alone(
    monkeypatch: pytest.MonkeyPatch, of: type[Any], method: str
) -> None:
    here = two_bridges("load-based")
    ends = breaks(monkeypatch, method, of)
    here.run_for(30)
    assert shown(here)["failure"] == BROKEN
    here.set_link(1, up=False).run_for(1)
    assert set(here.bindings().values()) == {"eth2"}
    assert here.switch.installed == desired(here)
    ends()
    here.run_for(LONGEST_PAUSE_S + 60)
    assert len(here.failures) < 10


@pytest.mark.parametrize(
    ("of", "method"),
    [
        (Bridge, "tick"),
        (PortChanges, "heard"),
        (Installation, "heard"),
        (Bridge, "configure"),
        (Bridge, "connect"),
    ],
)
def test_whatever_fails_of_one_bridge_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, of: type[Any], method: str
) -> None:
    here = two_bridges()
    before = here.switch.installed
    ends = breaks(monkeypatch, method, of)
    here.disconnect().connect()
    for bridge in ("br0", "br1"):
        here.set_link(1, up=False, bridge=bridge)
        here.write(replace(here.rows[bridge], external_ids=ours(policy="explicit")))
    here.run_for(15)
    assert set(here.bindings("br1").values()) == {"eth2"}
    assert here.engine.fleet.bridges["br1"].config.policy == "explicit"
    assert shown(here)["failure"] == BROKEN and here.switch.installed.flows.keys()
    assert of is PortChanges or method == "configure" or here.switch.installed == before
    assert 0 < len(here.failures) < 12
    ends()
    here.disconnect().connect()
    here.say(DatabaseRead(tuple(here.rows.values()))).run_for(LONGEST_PAUSE_S)
    assert set(here.bindings().values()) == {"eth2"}
    assert here.bridge.config.policy == "explicit"


def test_who_waits_for_a_move_is_told() -> None:
    here = two_bridges()
    here.cannot_encode = lambda apply: apply.bridge == "br0"
    target = {"eth1": "eth2", "eth2": "eth1"}[here.bindings()["vnet0"]]
    text = refusal(here.ask("move", "vnet0", target))
    assert says(text, "a group is too long", OUR_LOG)


def test_a_request_that_fails_is_refused_and_its_bridge_is_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = two_bridges()
    ends = breaks(monkeypatch, "move")
    text = refusal(here.ask("move", "vnet0", "eth2"))
    assert says(text, "move: ", BROKEN, OUR_LOG)
    here.run_for(1)
    assert ReadInstalled("br0") in here.commands(ReadInstalled, here.now_s - 1.2)
    ends()
    assert done(here.ask("move", "vnet0", "eth2")) or here.bindings()["vnet0"] == "eth2"


def test_a_question_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = two_bridges()
    monkeypatch.setattr("controller.bridge.status.status", fails)
    assert json.loads(done(here.ask("show", "--json")))["bridges"] == []
    assert here.engine.fleet.status_after("") is None
    here.run_for(1)
    assert {one.of for one in here.failures} == {"bridge br0", "bridge br1"}
    assert [name for name, _ in found_by_check(here)] == ["br0", "br1"]
    assert not here.engine.fleet.failures


def test_an_attach_that_cannot_be_carried_out_is_undone_at_once() -> None:
    here = world(without_us(host()))
    here.expects_failures = True
    here.start().cannot_encode = lambda apply: bool(apply.changes.add_flows)
    text = refusal(here.ask("attach", "br0"))
    assert says(text, "bridge br0: ", "a group is too long", OUR_LOG)
    here.run_for(5)
    assert here.switch.installed == EMPTY and not here.engine.fleet.bridges
    assert not here.rows["br0"].attached


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("method", ["", "_restore", "desired.Team", "gather", "once"])
def test_a_detach_needs_nothing_of_what_it_removes(
    monkeypatch: pytest.MonkeyPatch, method: str, plain: bool
) -> None:
    here = world(host(plain=plain)).start().run_until(5)
    here.expects_failures = True
    assert here.switch.installed != EMPTY
    if "." in method:
        monkeypatch.setattr(f"controller.bridge.{method}", fails)
    elif method == "_restore":
        breaks(monkeypatch, method, Installation)
    elif method == "gather":
        # It does nothing where something has failed before.
        monkeypatch.setattr(Handover, method, lambda it, _: not it.bridge.interrupted and fails())
    else:
        here.cannot_encode = lambda apply: (
            not (method and here.failures) and not apply.changes.clear
        )
    here.set_link(1, up=False).run_for(60)
    here.ask("detach", "br0")
    here.run_for(5)
    assert not here.replies[1].refused, here.replies[1]
    assert here.switch.installed == EMPTY and not here.switch.no_flood
    assert not here.rows["br0"].attached and not here.engine.fleet.bridges


def test_a_drain_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = two_bridges()
    monkeypatch.setattr(Bridge, "at_rest", property(fails))
    assert says(refusal(here.ask("drain", "eth1")), BROKEN, OUR_LOG)
