"""Wait for what must come true, and watch what must stay so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# What has not happened by then does not happen at all, however busy the machine is.
HANG_S = 60.0


def wait_until(
    condition: Callable[[], T], story: str, timeout_s: float = HANG_S, interval_s: float = 0.03
) -> T:
    """The first true value of `condition`; the story says what should have come true.

    The timeout is for what does not happen at all. What must happen soon: `judging.soon`.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {story}"
        time.sleep(interval_s)
    return value


def holds(condition: Callable[[], object], story: str, for_s: float) -> None:
    """Assert that `condition` stays true for a time; the story says what should stay so."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        assert condition(), f"did not stay so: {story}"
        time.sleep(0.1)
