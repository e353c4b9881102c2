"""Runs cases of a target, each in bounded time, and shows how they fail."""

from __future__ import annotations

import contextlib
import logging
import signal
import traceback
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import InMemoryExampleDatabase

from tests.unit.fuzz.targets import CASE_TIMEOUT_S, Target

# How much longer a case may take by the clock than by processor time.
BLOCKED_RATIO = 15
# Of a failure, as much as shows the case.
MOST_CHARACTERS = 4000


class Hangs(BaseException):
    """A case takes longer than any may; no handler of exceptions takes this one."""


@contextlib.contextmanager
def bounded(seconds: float = CASE_TIMEOUT_S) -> Iterator[None]:
    """Raises `Hangs` where it stands after so long; on the main thread only.

    It measures processor time, because a process that waits for a core does not hang. A case that
    is blocked uses none, and is ended after `BLOCKED_RATIO` times as long by the clock.
    """
    limits = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, BLOCKED_RATIO * seconds),
    }

    def ring(number: int, _frame: FrameType | None) -> None:
        timer, limit_s = limits[signal.Signals(number)]
        clock = "processor time" if timer == signal.ITIMER_PROF else "the clock"
        raise Hangs(f"longer than {limit_s:g} s by {clock}")

    before = {number: signal.signal(number, ring) for number in limits}
    for timer, limit_s in limits.values():
        signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        for number, (timer, _) in limits.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Nothing is logged meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def checked(target: Target, number: int | None = None, cases: int = 1) -> Any:
    """A test of the target: called, it runs so many cases, always the same of the same number.

    Its `hypothesis.fuzz_one_input` runs the case that is made of bytes. Without a number, the test remembers
    a case that failed so.
    """

    @settings(
        max_examples=cases,
        deadline=None,
        database=InMemoryExampleDatabase(),
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=target.cases)
    def check(case: object) -> None:
        with quietly(), bounded():
            target.check(case)

    return check if number is None else seed(number)(check)


def smallest(check: Any, error: BaseException) -> str:
    """How the smallest case fails that is like the last one, which has failed with this error."""
    try:
        check()
    except BaseException as smaller:
        error = smaller
    return shown(error)


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-6))[-MOST_CHARACTERS:]
