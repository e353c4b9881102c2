"""Runs programs on this host with a time limit, and reports why they failed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from controller.text.wording import Refused, in_words

TIMEOUT_S = 10.0
# These tools have a timeout option.
TOOLS = ("ovs-appctl", "ovs-ofctl", "ovs-vsctl")
PACKAGES = {"tc": "install the package iproute2"}


def run(
    *command: str,
    remedy: str = "",
    stdin: str | None = None,
    timeout_s: float = TIMEOUT_S,
    named: str = "",
) -> str:
    """Run a program and return its output. The program is killed after twice `timeout_s`.

    `remedy`: the action that the error text recommends; empty for none. `named`: the name of the
    command in the error text; empty: the command itself.

    Raises:
        Refused: the program is not installed, fails, or does not end in time.
    """
    program, *words = command
    timed = [f"--timeout={timeout_s:g}"] if program in TOOLS else []
    database = os.environ.get("OVS_LBT_OVSDB", "")
    if program == "ovs-vsctl" and database.startswith("unix:"):
        timed.append(f"--db={database}")
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
        why, remedy = "not installed", PACKAGES.get(program, remedy)
    except OSError as error:
        why = in_words(error)
    except subprocess.TimeoutExpired:
        why = f"no answer within {2 * timeout_s:g} s"
    raise Refused(f"{named or ' '.join(command)}: {why}{f'; {remedy}' if remedy else ''}")


def wait_until(
    condition: Callable[[], bool], timeout_s: float, interval_s: float, late: str
) -> None:
    """Wait until `condition` returns True.

    Raises:
        Refused: `condition` is still False after `timeout_s`. The error text is `late`.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise Refused(late)
        time.sleep(interval_s)
