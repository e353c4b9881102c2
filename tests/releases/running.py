"""One step of a run: its command, its log, its limit, and what came of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.releases import result
from tests.releases.steps import Step, counted

TELL_INTERVAL_S = 30.0
LAST_WORDS = 100


def run(
    step: Step,
    command: Sequence[str],
    log: Path,
    say: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What came of a step; a line of its log is said now and then."""
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"{step.name}: {step.command}")
    started = datetime.now(UTC)
    begin_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = _watched(process, step, log, begin_s, say)
    finally:
        _end(process)
    seconds = time.monotonic() - begin_s
    counts = counted(log.read_text(errors="replace"))
    if status is None:
        verdict = f"{result.ENDED}: {seconds:.0f} s -> at most {step.limit_s:g} s"
    else:
        verdict = result.PASSED if status == 0 and not counts["failed"] else result.FAILED
    say(f"{step.name}: {verdict} after {seconds:.0f} s, log: {log}")
    return {
        "name": step.name,
        "what": step.what,
        "command": step.command,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "status": status,
        "verdict": verdict,
        **counts,
    }


def _watched(
    process: subprocess.Popen[bytes],
    step: Step,
    log: Path,
    begin_s: float,
    say: Callable[[str], None],
) -> int | None:
    """The exit status; None if it was not done in time."""
    while True:
        elapsed_s = time.monotonic() - begin_s
        if elapsed_s >= step.limit_s:
            return None
        try:
            return process.wait(min(TELL_INTERVAL_S, step.limit_s - elapsed_s))
        except subprocess.TimeoutExpired:
            said = log.read_text(errors="replace").strip().rpartition("\n")[2]
            words = said.rpartition("\r")[2][-LAST_WORDS:]
            say(f"{step.name}: {time.monotonic() - begin_s:.0f} s of {step.limit_s:g} s: {words}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and everything that it has started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
