"""What operators are told when something of ours has failed: not that the switch does not answer."""

from __future__ import annotations

import json
import re

import pytest

from controller.api.engine_commands import Apply, Command, ReadForwarding, ReadInstalled, Write
from controller.api.events import Faulted, Leading, Request
from controller.engine import Engine
from controller.operations.attach import ATTACH_TIMEOUT_S
from controller.operations.detach import DETACH_TIMEOUT_S
from controller.text.wording import OUR_LOG, UNREACHED
from tests.said import says
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host, without_us

ITSELF = f"because ovs-lbt itself failed: line br0: KeyError: 'x'; {OUR_LOG}"


def fault(part: str = "lines", at_s: float = 3.0, count: int = 1) -> Faulted:
    return Faulted(part, "line br0: KeyError: 'x'", at_s, count)


def attaching() -> World:
    """An attach to a switch that does not answer."""
    here = World(without_us(host())).start()
    assert here.ask("attach", "br0") is None
    return here


def test_an_attach_is_not_the_switchs_fault_when_a_part_of_ours_has_failed() -> None:
    here = attaching().run_until(3).say(fault()).run_until(ATTACH_TIMEOUT_S)
    text = refusal(here.replies[1])
    assert says(text, "bridge br0: ", "10 s", ITSELF)


@pytest.mark.parametrize(
    "unrelated",
    [
        pytest.param(fault("history"), id="a part that no switch is reached by"),
        pytest.param(fault("metrics"), id="another"),
        pytest.param(fault(at_s=-31.0), id="long ago"),
    ],
)
def test_it_is_the_switchs_when_what_failed_has_nothing_to_do_with_it(unrelated: Faulted) -> None:
    here = attaching().say(unrelated).run_until(ATTACH_TIMEOUT_S)
    assert f"within 10 s, because {UNREACHED}" in refusal(here.replies[1])


def test_a_detach_is_not_either() -> None:
    here = world(host()).start().disconnect()
    assert here.ask("detach", "br0") is None
    here.say(fault(at_s=0.0)).run_for(DETACH_TIMEOUT_S)
    told = refusal(here.replies[1])
    assert says(told, "bridge br0: ", "ovs-lbt itself failed", "line br0: KeyError: 'x'", OUR_LOG)


@pytest.mark.parametrize("connected", [True, False])
def test_a_drain_is_not_either(connected: bool) -> None:
    here = world(host()).start()
    here.switch.holds_answers = True
    assert here.ask("drain", "eth1") is None
    if not connected:
        here.disconnect()
    here.say(fault()).run_for(11)
    assert refusal(here.replies[1]).endswith(ITSELF)


class Obstacle(World):
    """One that never carries out the first command of a kind."""

    def __init__(self, kind: type[Command]) -> None:
        super().__init__(without_us(host()))
        self.switches = world(without_us(host())).switches
        self._kind = kind
        self._is_held = False

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, self._kind) and not self._is_held:
            self._is_held = True
        else:
            super()._carry_out(command)


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (Write, ("database", "; ", "ovsdb-server")),
        (ReadForwarding, ("ovs-vswitchd", "fdb/show")),
        (ReadInstalled, (", because the switch did not answer",)),
        (Apply, (", because the switch did not answer",)),
    ],
)
def test_an_attach_says_who_has_not_answered(held: type[Command], why: tuple[str, ...]) -> None:
    here = Obstacle(held).start()
    assert here.ask("attach", "br0") is None
    here.run_until(ATTACH_TIMEOUT_S)
    assert says(refusal(here.replies[1]), "bridge br0: ", "10 s", *why)


def test_show_tells_of_a_fault_for_a_day_the_last_first() -> None:
    here = world(host()).start()
    here.say(fault("metrics", 1.0), fault("lines", 2.0, count=4))
    assert json.loads(done(here.ask("show", "--json")))["faults"] == [
        {"part": "lines", "count": 4, "last_at": 2.0, "found": "line br0: KeyError: 'x'"},
        {"part": "metrics", "count": 1, "last_at": 1.0, "found": "line br0: KeyError: 'x'"},
    ]
    shown = done(here.ask("show"))
    assert "ovs-lbt fault  line br0: KeyError: 'x' (in lines: 4 in total)\n" in shown
    assert shown.endswith(f"\n  {OUR_LOG}")
    here.now_s = 86_402.5
    assert "faults" not in json.loads(done(here.ask("show", "--json")))
    assert "fault" not in done(here.ask("show"))


@pytest.mark.parametrize("words", [("show",), ("show", "--json")])
def test_who_stands_by_tells_of_its_own_too(words: tuple[str, ...]) -> None:
    engine = Engine(leads=False)
    engine.handle(Leading(False), 0.0)
    engine.handle(fault(), 3.0)
    (reply,) = engine.handle(Request(1, words), 4.0)
    assert re.search("line br0: KeyError: 'x'", reply.text)  # type: ignore[attr-defined]
