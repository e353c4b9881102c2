"""Runs a bench in steps with time limits, and ends a step that exceeds its limit."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import topologies

PACKAGE = Path(topologies.__file__).parent
# An overdue step may ignore the error or hang in its clean-up, and a signal that comes just before the interpreter
# blocks does not interrupt it, so the error is raised again.
REPEAT_S = 30.0


class Overdue(RuntimeError):
    """A step exceeded its limit. The text names the step, what it waited for, and what to check."""


@contextlib.contextmanager
def step(what: str, limit_s: float, look_at: str) -> Iterator[None]:
    """Run the body with a time limit. Only the main thread can use this, as it receives signals.

    Raises:
        Overdue: the step exceeded its limit.
        RuntimeError: a program that the step needs failed or is missing.
    """
    begin_s = time.monotonic()
    raised: list[Overdue] = []

    def on_alarm(_number: int, frame: FrameType | None) -> None:
        found = (
            f"{what}: not done after {time.monotonic() - begin_s:.1f} s, over the limit of {limit_s:g} s;"
            f" waiting {_place(frame)}; check: {look_at}"
        )
        raised.append(Overdue(found))
        raise raised[-1]

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, limit_s, REPEAT_S)
    try:
        yield
        if raised:
            raise raised[0]
    except subprocess.TimeoutExpired as late:
        command = late.cmd if isinstance(late.cmd, str) else " ".join(map(str, late.cmd))
        raise RuntimeError(
            f"{what}: {command} timed out after {round(late.timeout, 2):g} s; check: {look_at}"
        ) from late
    except (subprocess.CalledProcessError, OSError) as failure:
        raise RuntimeError(f"{what}: {failure}; check: {look_at}") from failure
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(frame: FrameType | None) -> str:
    """The innermost line of a stack, and the innermost line in this package."""
    stack = traceback.extract_stack(frame) if frame else []
    ours = [one for one in stack if Path(one.filename).is_relative_to(PACKAGE)]
    lines = dict.fromkeys(
        f"{'/'.join(Path(one.filename).parts[-2:])}:{one.lineno} `{one.line}`"
        for one in (*stack[-1:], *ours[-1:])
    )
    return f"in {', called by '.join(lines)}" if lines else "in an unknown place"
