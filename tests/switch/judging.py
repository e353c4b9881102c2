"""Figures that depend on how busy the machine is, each with two bounds.

A test asserts the wide one, which a busy machine keeps and an outage does not: `make test` runs
several switches beside each other. `make bench-times` runs the same tests one after another with
nothing beside them, and holds each figure against its limit, which is what the documents promise. It
repeats more often, and measures cases for which `make test` has no time.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.switch.waiting import HANG_S

# In tests that `make bench-times` runs.
judges_time = pytest.mark.times
# These it runs for what they try only there.
in_bench = pytest.mark.times

# So much of a flow is lost only if nothing forwards it.
OUTAGE_S = 3.0
# Whether this is `make bench-times`; tests/conftest.py sets it before it collects tests.
benching = False
# As many as a port of a switch with a userspace datapath has room for while it does something
# else. Two ways that both stay open give more within a moment.
TWICE_WHILE_BUSY_MAX = 90


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a test, its limit in the bench, and whether it kept that.

    `runs`: the values that it was made of, in turn. `load_average`: of the machine, over the minute
    before.
    """

    test: str
    what: str
    found: float
    limit: float
    kept: bool
    runs: tuple[float, ...] = ()
    load_average: float = 0.0

    def __str__(self) -> str:
        verdict = "PASS" if self.kept else "FAIL"
        of = ""
        if len(self.runs) > 1:
            middle, least, most = statistics.median(self.runs), min(self.runs), max(self.runs)
            of = f" (n = {len(self.runs)}, median {middle:.4g}, {least:.4g} to {most:.4g})"
        found = f"{self.found:.4g}, limit {self.limit:.4g}{of}"
        return f"{verdict}  {self.test}: {self.what}: {found}"


# Of this process, in the order in which they were found.
figures: list[Figure] = []


def repetitions(usually: int, in_bench: int) -> int:
    """How often something is measured."""
    return in_bench if benching else usually


def at_most(
    what: str, found: float, limit: float, anywhere: float, runs: Sequence[float] = ()
) -> None:
    """Note a figure and its limit for the bench; assert that it is at most `anywhere`."""
    _note(what, found, limit, found <= limit, runs)
    assert found <= anywhere, f"{what}: {found:.4g}; expected at most {anywhere:.4g} on any machine"


def at_least(
    what: str, found: float, limit: float, anywhere: float, runs: Sequence[float] = ()
) -> None:
    """Note a figure and its limit for the bench; assert that it is at least `anywhere`."""
    _note(what, found, limit, found >= limit, runs)
    assert found >= anywhere, (
        f"{what}: {found:.4g}; expected at least {anywhere:.4g} on any machine"
    )


def soon(what: str, took_s: float, limit_s: float) -> None:
    """Note how long something took and its limit for the bench; assert that it did not hang."""
    at_most(f"{what}, s", took_s, limit_s, HANG_S)


def few_lost(
    lost: Mapping[str, int] | Iterable[int], limit: int, pps: float, when: str = ""
) -> None:
    """Note what flows of `pps` lost and its limit for the bench; assert that none had an outage."""
    counts = list(lost.values() if isinstance(lost, Mapping) else lost)
    what = f"frames lost of a flow of {pps:g} pps{when and ', '}{when}"
    at_most(what, max(counts, default=0), limit, OUTAGE_S * pps, counts)


def lost_for_want_of_room(lost: int, no_room: int, pps: float) -> None:
    """Assert that a flow of `pps` lost only what a switch that stood still had no room for.

    In the bench, no frame may find no room. `no_room`: how many did, as `Bed.turned_away` counts.
    """
    assert lost <= no_room, f"{lost} were lost, {no_room} had no room"
    at_most("frames that had no room", lost, 0, OUTAGE_S * pps)


def few_twice(twice: Mapping[str, int], limit: int, when: str = "") -> None:
    """Note how many frames were heard twice, and assert that they are as few as a switch has room for.

    When a way changes, those frames are that are under way by the old one as well as by the new
    one: the more of them, the longer the switch had no time. `twice`: how many of each receiver.
    """
    worst = max(twice.values(), default=0)
    what = f"frames heard twice{when and ', '}{when}"
    at_most(what, worst, limit, TWICE_WHILE_BUSY_MAX, list(twice.values()))


def _note(what: str, found: float, limit: float, kept: bool, runs: Sequence[float]) -> None:
    # `FILE::TEST (call)`
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].rpartition("/")[2]
    load_average = round(os.getloadavg()[0], 2)
    figures.append(Figure(test, what, found, limit, kept, tuple(runs), load_average))
    print(figures[-1])
