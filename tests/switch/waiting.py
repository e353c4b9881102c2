"""Wait for what must come true, and watch what must stay so."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class NotThere(AssertionError):
    """What a test asks for is not there. Where a test waits, it is not there yet."""


# A fixed piece of work, and how long a slow machine takes for it.
WORK = 200_000
WORK_S = 0.06


def _slowness_ratio() -> float:
    """How much longer than a slow machine this one takes: 1, except where a machine is emulated.

    By processor time: a busy machine is not a slow one.
    """
    begin_s = time.process_time()
    sum(number * number for number in range(WORK))
    return max(1.0, (time.process_time() - begin_s) / WORK_S)


# Measured by each process, unless it was measured for all of them, as on kernels in QEMU.
SLOWNESS_RATIO = float(os.environ.get("OVS_LBT_SLOWNESS_RATIO") or _slowness_ratio())
# What has not happened by then does not happen at all, however busy the machine is.
HANG_S = 60.0 * SLOWNESS_RATIO


def wait_until(
    condition: Callable[[], T], story: str, timeout_s: float = HANG_S, interval_s: float = 0.03
) -> T:
    """The first true value of `condition`; the story says what should have come true.

    The timeout is for what does not happen at all. What must happen soon: `judging.soon`.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if value := condition():
                return value
            found = ""
        except NotThere as missing:
            found = f" ({missing})"
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {story}{found}"
        time.sleep(interval_s)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process hangs in this block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def holds(condition: Callable[[], object], story: str, for_s: float) -> None:
    """Assert that `condition` stays true for a time; the story says what should stay so."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        assert condition(), f"did not stay so: {story}"
        time.sleep(0.1)


if __name__ == "__main__":
    print(round(SLOWNESS_RATIO, 2))
