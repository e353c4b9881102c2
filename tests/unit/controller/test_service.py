"""The service's shell, where no switch is needed to see it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from controller import service
from controller.api.events import Challenged, Leading, Tick
from controller.engine import Engine
from tests.unit.fuzz.rig import Rig


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
        answered: Any = SimpleNamespace(
            answer=lambda: self.answers.append(self._events.qsize()), write=lambda _: None
        )
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
    monkeypatch.setattr(service, "MOST_WAITING", 3)
    flooded = Rig()

    def say() -> None:
        for _ in range(9):
            flooded._submit_switch(Tick())

    said = threading.Thread(target=say, daemon=True)
    said.start()
    said.join(0.1)
    assert (said.is_alive(), flooded._events.qsize()) == (True, 3)
    for _ in range(9):
        flooded._events.get(timeout=5)
    said.join(5)
    assert not said.is_alive()


def test_eventlet_is_not_loaded_unless_ryu_needs_it() -> None:
    code = (
        "import sys, controller.cli, controller.service\n"
        "assert sys.modules['eventlet'] is None, sys.modules['eventlet']"
    )
    variables = {k: v for k, v in os.environ.items() if k != "OVS_LBT_FRAMEWORK"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=variables)
