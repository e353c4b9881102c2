"""A short run over everything that comes from outside; `make fuzz` is the long one."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.unit.fuzz import corpus
from tests.unit.fuzz.runs import Hangs, bounded, checked
from tests.unit.fuzz.targets import TARGETS

# As often as that a property is tried.
CASES_FOR_EXAMPLE = 4


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_from_outside_does_harm(name: str) -> None:
    target = TARGETS[name]
    cases = CASES_FOR_EXAMPLE * settings().max_examples
    checked(target, 10, max(1, cases * target.weight // 100))()


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_cases_that_reached_new_code_do_no_harm(name: str) -> None:
    """Those that searches have found; `make fuzz ARGS=--keep` stores them."""
    stored, take = corpus.read(name), checked(TARGETS[name]).hypothesis.fuzz_one_input
    taken = [take(data) for data in stored]
    assert len([one for one in taken if one is not None]) > len(stored) / 2


def test_the_stored_cases_are_of_all_targets_and_few() -> None:
    files = set(corpus.STORED.iterdir())
    assert files == {corpus.path(name) for name in TARGETS}
    assert sum(file.stat().st_size for file in files) <= corpus.MOST_BYTES


def test_a_case_that_computes_for_too_long_is_ended() -> None:
    with pytest.raises(Hangs), bounded(0.1):
        sum(iter(lambda: 1, 0))
