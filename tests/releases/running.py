"""One step of a run: its command, its log, its limit, and what came of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.releases import result
from tests.releases.steps import Step, counted, skips

TELL_INTERVAL_S = 30.0
LAST_WORDS = 100
# Of the fields of /proc/PID/stat, counted behind the command's name.
SESSION = 3
_running: set[subprocess.Popen[bytes]] = set()


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
    _running.add(process)
    try:
        status, waited_s = _watched(process, step, log, begin_s, say)
    finally:
        _end(process)
        _running.discard(process)
    seconds = time.monotonic() - begin_s
    text = log.read_text(errors="replace")
    counts = counted(text)
    if status is None:
        own_s = seconds - waited_s
        verdict = f"{result.ENDED}: {own_s:.0f} s, over the limit of {step.limit_s:g} s"
    elif status or counts["failed"]:
        verdict = result.FAILED
    else:
        verdict = result.PASSED if counts["passed"] or not step.tests else result.NO_TEST
    say(f"{step.name}: {verdict} after {seconds:.0f} s, log: {log}")
    return {
        "name": step.name,
        "what": step.what,
        "command": step.command,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "waited_s": round(waited_s, 1),
        "status": status,
        "verdict": verdict,
        **counts,
        "skips": skips(text),
    }


def end_all() -> None:
    """End the steps that other threads run."""
    for process in tuple(_running):
        _end(process)


def _watched(
    process: subprocess.Popen[bytes],
    step: Step,
    log: Path,
    begin_s: float,
    say: Callable[[str], None],
) -> tuple[int | None, float]:
    """The exit status; None if it was not done in time. And how long it waited for a processor, in seconds.

    That does not count: a busy machine makes a step late, and does not end it.
    """
    waited_s, before_s = 0.0, waits_s(process.pid)
    while True:
        left_s = step.limit_s - (time.monotonic() - begin_s - waited_s)
        if left_s <= 0:
            return None, waited_s
        told_s = time.monotonic()
        try:
            return process.wait(min(TELL_INTERVAL_S, left_s)), waited_s
        except subprocess.TimeoutExpired:
            now_s = waits_s(process.pid)
            longest_s = max((s - before_s.get(one, 0.0) for one, s in now_s.items()), default=0.0)
            waited_s += min(longest_s, time.monotonic() - told_s)
            before_s = now_s
            said = log.read_text(errors="replace").strip().rpartition("\n")[2]
            words = said.rpartition("\r")[2][-LAST_WORDS:]
            say(f"{step.name}: {time.monotonic() - begin_s:.0f} s of {step.limit_s:g} s: {words}")


def waits_s(session: int) -> dict[str, float]:
    """How long each thread of a session has waited for a processor since it began, by its number."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[SESSION]) == session:
                for thread in stat.parent.glob("task/*/schedstat"):
                    found[thread.parent.name] = int(thread.read_text().split()[1]) / 1e9
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and everything that it has started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
