"""The service's shell, where no switch is needed to see it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller import inbox, service
from controller.api.engine_commands import Apply, Prepare, ReadStats
from controller.api.events import (
    Challenged,
    CommandFailed,
    DatabaseRead,
    Leading,
    PortChanged,
    PortStatsRead,
    SwitchConnected,
    Tick,
)
from controller.bridge.installation import REVALIDATED_AFTER_S
from controller.dataplane import pipeline
from controller.dataplane.specs import EMPTY, Changes
from controller.engine import Engine
from controller.inbox import Inbox
from controller.openflow.framework import ofproto
from controller.openflow.messages import BUNDLE_XID
from tests.unit.controller.openflow.switch_bytes import (
    DATAPATH,
    HEADER,
    PIPELINE,
    bundle,
    split,
)
from tests.unit.fake_switch import FakeSwitch, world
from tests.unit.fuzz.rig import Rig
from tests.unit.rows import host


@pytest.mark.parametrize(
    ("epoch_s", "told_s"),
    [
        pytest.param(1000.4, 1000.0, id="drift is not followed"),
        pytest.param(50_000.0, 50_000.0, id="set forwards"),
        pytest.param(900.0, 900.0, id="set backwards"),
    ],
)
def test_times_follow_a_wall_clock_that_is_set(
    monkeypatch: pytest.MonkeyPatch, epoch_s: float, told_s: float
) -> None:
    running = object.__new__(service.Service)
    running._engine = Engine(epoch_s=1000.0)
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    monkeypatch.setattr("time.time", lambda: epoch_s + 7.0)
    running._follow_clock()
    assert running._engine.fleet.epoch_s == told_s


class Asked(Rig):
    """A service that is asked whether it lives; `answers` are the events it had left then."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[int] = []
        replica = SimpleNamespace(answer=lambda: self.answers.append(len(self._events)))
        answered: Any = SimpleNamespace(replica=replica, write=lambda _: None)
        self._database = answered


def test_who_has_much_to_do_says_that_it_lives_before_that_is_done() -> None:
    asked = Asked()
    for _ in range(9):
        asked._submit_database(Tick())
    asked._submit_database(Challenged())
    asked.proceed()
    assert asked.answers == [9]


def test_a_question_that_comes_with_the_lead_is_answered_when_that_is_taken() -> None:
    asked = Asked()
    asked._submit_database(Leading(False))
    asked.proceed()
    for event in (Tick(), Leading(True), Challenged()):
        asked._submit_database(event)
    asked.proceed()
    assert asked.answers == [0]


def test_who_does_not_lead_does_not_answer_later_either() -> None:
    asked = Asked()
    for event in (Leading(False), Challenged(), Leading(True), Tick()):
        asked._submit_database(event)
        asked.proceed()
    assert asked.answers == []


def test_a_switch_that_says_more_than_is_taken_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_OF_A_BRIDGE", 3)
    flooded = Rig()

    def say() -> None:
        for _ in range(9):
            flooded._submit_switch(PortStatsRead("br0", ()))

    said = threading.Thread(target=say, daemon=True)
    said.start()
    said.join(0.1)
    assert (said.is_alive(), len(flooded._events)) == (True, 3)
    flooded._submit_switch(PortStatsRead("br1", ()))
    assert len(flooded._events) == 4, "another switch does not wait"
    for _ in range(10):
        flooded._events.next_item(time.monotonic() + 5)
    said.join(5)
    assert not said.is_alive()


class Many(Rig):
    """A service on many bridges whose polls are not answered until `answer_polls`.

    Time passes only by `now_s`. `applied`: to which bridges bundles were sent.
    """

    def __init__(self, bridges: int) -> None:
        self.now_s, self.steps = 0.0, 0
        self.applied = set[str]()
        self.asked_of: list[ReadStats] = []
        self.switches: dict[str, FakeSwitch] = {}
        super().__init__()
        self.asked_of.clear()
        self._engine, self._events = Engine(), Inbox()
        rows = [replace(host(), name=f"br{number}") for number in range(bridges)]
        self.switches = {row.name: world(row).switches[row.name] for row in rows}
        self._events.put(DatabaseRead(tuple(rows)))
        for name, switch in self.switches.items():
            self._events.put(SwitchConnected(name, tuple(switch.ports.values())))
        self.proceed()

    def proceed(self) -> None:
        while len(self._events) or self._engine.deadline_s() <= self.now_s:
            self.step()

    def step(self) -> None:
        self.steps += 1
        self._step()

    def _carry_out(self, command: Any) -> None:
        if isinstance(command, ReadStats):
            self.asked_of.append(command)
            return
        if isinstance(command, Apply):
            self.applied.add(command.bridge)
        if (switch := self.switches.get(getattr(command, "bridge", ""))) is not None:
            for event in switch.carry_out(command):
                self._events.put(event)

    def answer_polls(self) -> int:
        """Answer all polls at once, and return with how many messages."""
        asked, self.asked_of = self.asked_of, []
        for poll in asked:
            for event in self.switches[poll.bridge].carry_out(poll):
                self._events.put(event)
        return len(self._events)

    def fail(self) -> None:
        """An uplink of br20."""
        self._events.put(PortChanged("br20", replace(self.switches["br20"].ports[1], up=False)))

    def steps_until_applied(self, at_once: int, wait_s: float) -> int:
        """The steps until br20, and no other, is sent a bundle: some at once, the rest after a wait."""
        before = self.steps
        for _ in range(at_once):
            self.step()
        self.now_s += wait_s
        while not self.applied and self.steps - before < 45:
            self.step()
        assert self.applied == {"br20"}
        return self.steps - before


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Many:
    """All of 40 bridges serve, and each has been asked for counters."""
    made: list[Many] = []
    monkeypatch.setattr("time.monotonic", lambda: made[0].now_s if made else 0.0)
    made.append(Many(40))
    made[0].now_s = 1.0
    made[0].proceed()
    made[0].applied.clear()
    return made[0]


@pytest.mark.parametrize("wait_s", [REVALIDATED_AFTER_S, 1.0], ids=["at once", "polls are due"])
def test_a_failover_does_not_wait_for_the_polls_of_other_bridges(many: Many, wait_s: float) -> None:
    assert many.answer_polls() == 80
    many.fail()
    # Its own counters, the failure, whom to announce; the switch leaves the link by itself; what is due.
    assert many.steps_until_applied(4, wait_s) == 5
    assert len(many._events) >= 78, "the others have not had their turn"


def test_nor_for_other_bridges_that_should_have_been_asked_before(many: Many) -> None:
    many.answer_polls()
    many.proceed()
    # The service is late: the polls of all bridges are due before the failure.
    many.now_s += 1.0
    many.fail()
    # The failure, and whom to announce.
    assert many.steps_until_applied(2, REVALIDATED_AFTER_S) == 3
    assert len(many.asked_of) == 1, "the others have not had their turn"


def test_who_is_due_has_a_turn_of_its_own_and_is_sent_for_at_once(many: Many) -> None:
    many.answer_polls()
    many.proceed()
    many.now_s += 1.0
    asked = []
    for _ in range(3):
        many.step()
        asked.append([poll.bridge for poll in many.asked_of])
    first, second, third, *_ = many._engine.fleet.bridges
    assert asked == [[first], [first, second], [first, second, third]]


ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("process", "not_loaded"),
    [
        pytest.param("controller.cli, controller.service", "eventlet", id="only Ryu needs it"),
        pytest.param("controller.cli, controller.service", "controller.replay", id="replay"),
        # It may replace threads.
        pytest.param("tests.switch.conftest", "controller.openflow.framework", id="tests"),
    ],
)
def test_a_process_does_not_load_what_it_does_not_need(process: str, not_loaded: str) -> None:
    code = (
        f"import sys, {process}\n"
        f"assert not [n for n, m in sys.modules.items() if m and n.startswith('{not_loaded}')]"
    )
    variables = {k: v for k, v in os.environ.items() if k != "OVS_LBT_FRAMEWORK"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=variables, cwd=ROOT)


# ---- the end of a process that holds the lead, whoever reads its output ------------------

# A thread of the framework's, which nobody ends; and what the process still has to say.
PROGRAM = """
import threading, time
from controller.service import serve_and_exit
threading.Thread(target=time.sleep, args=(60,)).start()
class Made:
    def run(self):
        print("an answer")
        {body}
serve_and_exit(Made, print)
"""
DONE, FAILS = "return 3", "raise KeyError('nobody expects this')"
each = pytest.mark.parametrize(("body", "status"), [(DONE, 3), (FAILS, 1)], ids=["done", "fails"])


def ended(body: str, stdout: int) -> tuple[int, str]:
    """The exit status, and what went to stderr."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        cwd=ROOT,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@each
def test_it_ends_though_nobody_reads_its_answer(body: str, status: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(body, writing)[0] == status
    finally:
        os.close(writing)


@pytest.mark.slow
@each
def test_an_error_that_nobody_expects_is_told_and_nothing_else(body: str, status: int) -> None:
    found, said = ended(body, subprocess.DEVNULL)
    assert found == status
    assert "KeyError: 'nobody expects this'" in said if body == FAILS else said == ""


# ---- a bundle that is sent ahead --------------------------------------------------------

CHANGES = pipeline.changes(PIPELINE, EMPTY)


class Switch:
    """A connection that keeps what is sent by it."""

    ofproto, ofproto_parser = DATAPATH.ofproto, DATAPATH.ofproto_parser

    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: bytes) -> None:
        self.sent += data


def sent(running: service.Service, *commands: Any) -> list[list[bytes]]:
    """The messages that each command is sent as, by one connection."""
    found = []
    for command in commands:
        switch: Any = running._connections["br1"]
        switch.sent = b""
        service.Service._carry_out(running, command)
        found.append(list(split(switch.sent)))
    return found


def connected() -> Rig:
    running = Rig()
    switch: Any = Switch()
    running._connections["br1"] = switch
    return running


def test_of_a_bundle_that_was_sent_ahead_only_the_commit_is_left() -> None:
    apply = Apply("br1", 5, CHANGES)
    ahead, left = sent(connected(), Prepare(apply), apply)
    assert ahead + left == bundle(CHANGES, number=5)
    assert len(left) == 1


def test_another_bundle_takes_the_place_of_one_that_was_sent_ahead() -> None:
    """The switch would refuse to open a second one of the same number."""
    other = Changes(delete_flows=CHANGES.add_flows[:1])
    running = connected()
    ahead, left, again = sent(
        running,
        Prepare(Apply("br1", 5, CHANGES)),
        Apply("br1", 5, other),
        Apply("br1", 6, other),
    )
    assert ahead == bundle(CHANGES, number=5)[:-1]
    assert kind(left[0]) == ofproto.ONF_BCT_DISCARD_REQUEST
    # What the switch says of the discarded one is not said of its successor.
    assert HEADER.unpack_from(left[0])[3] & BUNDLE_XID != BUNDLE_XID
    assert left[1:] == bundle(other, number=5)
    assert again == bundle(other, number=6)
    ahead, anew = sent(
        running, *[Prepare(Apply("br1", 7, changes)) for changes in (CHANGES, other)]
    )
    assert kind(anew[0]) == ofproto.ONF_BCT_DISCARD_REQUEST
    assert anew[1:] == bundle(other, number=7)[:-1]


def test_what_cannot_be_encoded_concerns_its_bridge_only(monkeypatch: pytest.MonkeyPatch) -> None:
    running = connected()
    monkeypatch.setattr("controller.openflow.commands.encode", None)
    running._carry_out = functools.partial(service.Service._carry_out, running)  # type: ignore[method-assign]
    running._carry_out_all([Apply("br1", 5, CHANGES)])
    failed = running._events.next_item(time.monotonic())
    assert isinstance(failed, CommandFailed) and failed.bridge == "br1"
    with pytest.raises(AttributeError):
        running._carry_out_all([None])  # type: ignore[list-item]


class SwitchWithThread(Switch):
    """Keeps what its sender thread would make; `is_free`: whether no such thread runs."""

    def __init__(self, is_free: bool = True) -> None:
        super().__init__()
        self.is_free = is_free
        self.made: list[Callable[[], bytes]] = []

    def send_made(self, make: Callable[[], bytes]) -> bool:
        self.made += [make] * self.is_free
        return self.is_free


def test_a_large_change_is_encoded_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LARGE_CHANGES", len(CHANGES))
    running, apply = connected(), Apply("br1", 5, CHANGES)
    free, busy = SwitchWithThread(), SwitchWithThread(is_free=False)
    connections: dict[str, Any] = running._connections
    connections["br1"] = busy
    assert sent(running, apply) == [bundle(CHANGES, number=5)]
    connections["br1"] = free
    assert sent(running, Prepare(apply), apply)[1] == bundle(CHANGES, number=5)[-1:]
    assert free.made == []
    assert sent(running, apply, Apply("br1", 6, Changes())) == [[], bundle(Changes(), number=6)]
    (make,) = free.made
    assert list(split(make())) == bundle(CHANGES, number=5)
    monkeypatch.setattr("controller.openflow.commands.encode", None)
    assert make() == b""
    failed = running._events.next_item(time.monotonic())
    assert isinstance(failed, CommandFailed) and failed.bridge == "br1"


def test_a_bundle_that_the_switch_may_have_forgotten_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, apply = connected(), Apply("br1", 5, CHANGES)
    sent(running, Prepare(apply))
    monkeypatch.setattr(service, "STAGED_FOR_S", 0.0)
    ((discarded, *rest),) = sent(running, apply)
    assert kind(discarded) == ofproto.ONF_BCT_DISCARD_REQUEST
    assert rest == bundle(CHANGES, number=5)


def test_a_new_connection_knows_nothing_of_what_was_sent_ahead() -> None:
    running, apply = connected(), Apply("br1", 5, CHANGES)
    sent(running, Prepare(apply))
    switch: Any = Switch()
    running._connections["br1"] = switch
    assert sent(running, apply) == [bundle(CHANGES, number=5)]


def kind(message: bytes) -> int:
    return int.from_bytes(message[20:22], "big")


def test_threads_that_compute_let_others_run_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    before_s, found_s = sys.getswitchinterval(), list[float]()

    def serve(going_on: Callable[[], bool]) -> int:
        found_s.append(sys.getswitchinterval())
        return 0

    running = Rig()
    monkeypatch.setattr("controller.host.garbage.search_new_objects", lambda: None)
    monkeypatch.setattr("controller.host.faults.vital", lambda *_: None)
    control: Any = SimpleNamespace(serve=serve)
    running._control = control
    supervisor: Any = SimpleNamespace(stopping=lambda: None)
    running._supervisor = supervisor
    try:
        assert running.run() == 0
    finally:
        sys.setswitchinterval(before_s)
    assert found_s == pytest.approx([service.TURN_S])
