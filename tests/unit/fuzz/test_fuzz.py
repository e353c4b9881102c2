"""A short run over everything that comes from outside; `make fuzz` is the long one."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.unit.fuzz.runs import Hangs, bounded, run
from tests.unit.fuzz.targets import TARGETS

# As often as that a property is tried.
CASES_FOR_EXAMPLE = 4


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_from_outside_does_harm(name: str) -> None:
    target = TARGETS[name]
    cases = CASES_FOR_EXAMPLE * settings().max_examples
    assert run(target, max(1, cases * target.weight // 100), number=10) > 0


def test_a_case_that_computes_for_too_long_is_ended() -> None:
    with pytest.raises(Hangs, match="processor time"), bounded(0.01):
        sum(iter(lambda: 1, 0))


def test_a_case_that_is_blocked_for_too_long_is_ended() -> None:
    reading, writing = os.pipe()
    with pytest.raises(Hangs, match="the clock"), bounded(0.001):
        os.read(reading, 1)
    os.close(reading)
    os.close(writing)
