"""Runs a bench step by step, and ends a step that takes too long."""

from __future__ import annotations

import contextlib
import linecache
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import topologies
from topologies.network import processes

PACKAGE = Path(topologies.__file__).parent
# The interval at which a step that is not done reports that it continues.
TELL_INTERVAL_S = 10.0
# A step that continues anyway, in its clean-up or because it ignores the error, is ended again.
AGAIN_S = 30.0
CHILDREN_TOLD = 8
STATES = {"Z": "ended, but not reaped", "D": "in the kernel", "T": "stopped", "R": "running"}


class Overdue(RuntimeError):
    """A step was ended. The text says which, what it waited for, how long, and what to look at."""


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def in_silence(_text: str) -> None:
    """For a step that shows its own progress."""


@contextlib.contextmanager
def step(
    what: str, limit_s: float, look_at: str, say: Callable[[str], None] = tell
) -> Iterator[None]:
    """Do something with a time limit. Only for the main thread, which receives signals.

    Raises:
        Overdue: the step was not done in time.
        RuntimeError: a program that it needs failed or is missing.
    """
    begin_s = time.monotonic()
    told: list[Overdue] = []

    def look(_number: int, frame: FrameType | None) -> None:
        elapsed_s = time.monotonic() - begin_s
        # A timer may fire early by less than a tick of the clock.
        left_s = limit_s - elapsed_s
        if left_s > 0.001:
            signal.setitimer(signal.ITIMER_REAL, min(TELL_INTERVAL_S, left_s))
            say(f"{what}: not done after {elapsed_s:.0f} s of at most {limit_s:g} s")
            return
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        told.append(Overdue(_story(what, elapsed_s, limit_s, frame, look_at)))
        raise told[-1]

    before = signal.signal(signal.SIGALRM, look)
    outer_s, _ = signal.setitimer(signal.ITIMER_REAL, min(TELL_INTERVAL_S, limit_s))
    try:
        yield
        if told:
            raise told[0]
    except subprocess.TimeoutExpired as late:
        asked = " ".join(map(str, late.cmd)) if not isinstance(late.cmd, str) else late.cmd
        raise RuntimeError(
            f"{what}: {asked}: {round(late.timeout, 2):g} s -> an end; {look_at}"
        ) from late
    except (subprocess.CalledProcessError, OSError) as failure:
        raise RuntimeError(f"{what}: {failure}; {look_at}") from failure
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer_s:
            left_s = outer_s - (time.monotonic() - begin_s)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))


def _story(
    what: str, elapsed_s: float, limit_s: float, frame: FrameType | None, look_at: str
) -> str:
    return (
        f"{what}: not done after {elapsed_s:.1f} s -> done within {limit_s:g} s;"
        f" it waited {_place(frame)}; {_children()}; look at: {look_at}"
    )


def _place(frame: FrameType | None) -> str:
    """The place of a program in its code: the innermost line, and the innermost line of ours."""
    lines: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        is_ours = path.is_relative_to(PACKAGE)
        if is_ours or not lines:
            text = linecache.getline(str(path), frame.f_lineno).strip()
            lines.append(f"{path.parent.name}/{path.name}:{frame.f_lineno} `{text}`")
        if is_ours:
            break
        frame = frame.f_back
    return f"in {', called by '.join(lines)}" if lines else "nowhere"


def _children() -> str:
    """The child processes with their states, unusual states first."""
    found = [
        (state not in STATES, f"{name} {STATES.get(state, 'waits')}")
        for name, state in processes.states().items()
    ]
    words = [text for _, text in sorted(found)]
    if len(words) > CHILDREN_TOLD:
        words[CHILDREN_TOLD:] = [f"and {len(words) - CHILDREN_TOLD} more"]
    return f"its processes: {', '.join(words) or 'none'}"
