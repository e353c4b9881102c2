"""A step of a bench that exceeds its time limit is ended with a description."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from pathlib import Path

import pytest

from topologies.compare import steps
from topologies.compare.steps import Overdue, step

SHORT_S = 0.02


def test_overdue_step_describes_itself() -> None:
    with pytest.raises(Overdue) as caught, step("build the network", SHORT_S, "its log"):
        threading.Event().wait()
    assert isinstance(caught.value, RuntimeError), "it fails one run, and does not end the others"
    text = str(caught.value)
    # A busy machine is some tenths late.
    assert re.match(
        r"build the network: not done after \d\.\d s, over the limit of 0\.02 s; ", text
    )
    assert "waiting in threading.py" in text.replace(f"{Path(threading.__file__).parent.name}/", "")
    assert text.endswith("; check: its log")


def test_step_that_continues_is_ended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than it takes to describe a step, even on a busy machine.
    monkeypatch.setattr(steps, "REPEAT_S", 0.5)
    ended = []

    def go_on() -> None:
        for _ in range(3):
            with contextlib.suppress(Exception):
                threading.Event().wait()
            ended.append(True)

    with pytest.raises(Overdue), step("x", SHORT_S, "y"):
        go_on()
    assert len(ended) == 3


@pytest.mark.parametrize(
    ("command", "timeout_s", "text"),
    [
        (["sleep", "60"], SHORT_S, "x: sleep 60 timed out after 0.02 s; check: y"),
        (["false"], None, "x: Command '['false']' returned non-zero exit status 1.; check: y"),
        (["/no/such"], None, "No such file or directory: '/no/such'; check: y"),
    ],
)
def test_failed_program_fails_the_step(
    command: list[str], timeout_s: float | None, text: str
) -> None:
    with pytest.raises(RuntimeError) as caught, step("x", 60, "y"):
        subprocess.run(command, check=True, timeout=timeout_s)
    assert text in str(caught.value)
