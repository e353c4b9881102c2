"""Runs programs of this host, and reports one way why they failed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial

from controller.text.wording import Refused, in_words

TIMEOUT_S = 10.0
# They know themselves how long they may wait.
TOOLS = ("ovs-appctl", "ovs-ofctl", "ovs-vsctl")
PACKAGES = {"tc": "the package iproute2"}


def run(
    *command: str,
    expected: str = "",
    stdin: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Run a program and return what it prints. It may take twice `timeout_s`.

    `expected`: what an error says that is expected; nothing if that is empty.

    Raises:
        Refused: the program is not installed, fails, or does not end.
    """
    program, *words = command
    timed = [f"--timeout={timeout_s:g}"] if program in TOOLS else []
    try:
        done = subprocess.run(
            [program, *timed, *words],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2 * timeout_s,
        )
        if not done.returncode:
            return done.stdout
        lines = (line.strip() for line in done.stderr.splitlines())
        why = "; ".join(filter(None, lines)) or f"exit status {done.returncode}"
    except FileNotFoundError:
        why, expected = "not installed", PACKAGES.get(program, expected)
    except OSError as error:
        why = in_words(error)
    except subprocess.TimeoutExpired:
        why = f"no answer within {2 * timeout_s:g} s"
    raise Refused(f"{' '.join(command)}: {why}{f' -> {expected}' if expected else ''}")


def wait_until(
    condition: Callable[[], bool], timeout_s: float, interval_s: float, late: str
) -> None:
    """Wait until a condition holds.

    Raises:
        Refused: it does not hold in time. The text is `late`.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise Refused(late)
        time.sleep(interval_s)


# Run a tool that changes the switch, or reads it for a change.
on_switch = partial(run, expected="a switch that accepts this command")
