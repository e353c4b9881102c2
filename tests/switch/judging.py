"""Figures that depend on how busy the machine is, each with two bounds.

A test asserts the wide one, which a busy machine keeps and an outage does not: `make test` runs
several switches beside each other. `make bench-times` runs the same tests one after another with
nothing beside them, and holds each figure against its limit, which is what the documents promise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from tests.switch.waiting import HANG_S

# In tests that `make bench-times` runs.
judges_time = pytest.mark.times

# So much of a flow is lost only if nothing forwards it.
OUTAGE_S = 3.0
# As many as a port of a switch with a userspace datapath has room for while it does something
# else. Two ways that both stay open give more within a moment.
TWICE_WHILE_BUSY_MAX = 90


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a test, its limit in the bench, and whether it kept that."""

    test: str
    what: str
    found: float
    limit: float
    kept: bool

    def __str__(self) -> str:
        verdict = "PASS" if self.kept else "FAIL"
        return f"{verdict}  {self.test}: {self.what}: {self.found:.4g}, limit {self.limit:.4g}"


# Of this process, in the order in which they were found.
figures: list[Figure] = []


def at_most(what: str, found: float, limit: float, anywhere: float) -> None:
    """Note a figure and its limit for the bench; assert that it is at most `anywhere`."""
    _note(what, found, limit, found <= limit)
    assert found <= anywhere, f"{what}: {found:.4g} -> at most {anywhere:.4g} on any machine"


def at_least(what: str, found: float, limit: float, anywhere: float) -> None:
    """Note a figure and its limit for the bench; assert that it is at least `anywhere`."""
    _note(what, found, limit, found >= limit)
    assert found >= anywhere, f"{what}: {found:.4g} -> at least {anywhere:.4g} on any machine"


def soon(what: str, took_s: float, limit_s: float) -> None:
    """Note how long something took and its limit for the bench; assert that it did not hang."""
    at_most(f"{what}, s", took_s, limit_s, HANG_S)


def few_lost(lost: Mapping[str, int] | Iterable[int], limit: int, pps: float) -> None:
    """Note what flows of `pps` lost and its limit for the bench; assert that none had an outage."""
    counts = list(lost.values() if isinstance(lost, Mapping) else lost)
    at_most(f"frames lost of a flow of {pps:g} pps", max(counts, default=0), limit, OUTAGE_S * pps)


def few_twice(twice: Mapping[str, int], limit: int) -> None:
    """Note how many frames were heard twice, and assert that they are as few as a switch has room for.

    When a way changes, those frames are that are under way by the old one as well as by the new
    one: the more of them, the longer the switch had no time. `twice`: how many of each receiver.
    """
    worst = max(twice.values(), default=0)
    at_most("frames heard twice", worst, limit, TWICE_WHILE_BUSY_MAX)


def _note(what: str, found: float, limit: float, kept: bool) -> None:
    # `FILE::TEST (call)`
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].rpartition("/")[2]
    figures.append(Figure(test, what, found, limit, kept))
    print(figures[-1])
