"""Runs cases of a target, each in bounded time."""

from __future__ import annotations

import contextlib
import logging
import signal
import warnings
from collections.abc import Iterator
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.unit.fuzz.targets import CASE_TIMEOUT_S, Target


class Hangs(BaseException):
    """A case takes longer than any may; no handler of exceptions takes this one."""


@contextlib.contextmanager
def bounded(seconds: float = CASE_TIMEOUT_S) -> Iterator[None]:
    """Raises `Hangs` where it stands after so long; on the main thread only."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Hangs(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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


def run(target: Target, cases: int, number: int) -> int:
    """How many cases were run, always the same of the same number.

    Raises:
        BaseException: what the smallest case that fails raises.
    """
    done = 0

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=target.cases)
    def check(case: object) -> None:
        nonlocal done
        done += 1
        with bounded():
            target.check(case)

    with quietly():
        check()
    return done
