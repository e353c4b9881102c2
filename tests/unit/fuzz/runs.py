"""Runs cases of a target, each in bounded time, and shows how they fail."""

from __future__ import annotations

import contextlib
import logging
import signal
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import InMemoryExampleDatabase

from tests.unit.fuzz.targets import CASE_TIMEOUT_S, Target

# Of a failure, as much as shows the case.
MOST_CHARACTERS = 4000


class Hangs(BaseException):
    """A case takes longer than any may; no handler of exceptions takes this one."""


@contextlib.contextmanager
def bounded(seconds: float = CASE_TIMEOUT_S) -> Iterator[None]:
    """Raises `Hangs` where it stands after so much processor time; on the main thread only.

    A process that waits for a core does not hang. pytest and libFuzzer end a case that is blocked.
    """

    def ring(*_: object) -> None:
        raise Hangs(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


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
