"""Scenarios that have a process of their own; each is a function of a module, and of a directory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
Scenario = Callable[[Path], None]


def expect(found: object, expected: object) -> None:
    """Assert that both are equal, and say what they are."""
    assert found == expected, f"{found} -> {expected}"


def start(scenario: Scenario) -> None:
    """Run a scenario; in a short path, as a socket's has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="ovs-lbt-") as directory:
        command = [sys.executable, "-m", scenario.__module__, scenario.__name__, directory]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def run(scenarios: Iterable[Scenario]) -> None:
    """In the process itself: the scenario that the arguments name."""
    status = 1
    try:
        (scenario,) = (one for one in scenarios if one.__name__ == sys.argv[1])
        scenario(Path(sys.argv[2]))
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)  # the framework's threads would keep the process
