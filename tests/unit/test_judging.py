"""A figure has a limit for the bench, and a wide bound that every test asserts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch import judging
from tests.switch.waiting import HANG_S


@pytest.fixture(autouse=True)
def _noted_nowhere_else() -> Iterator[None]:
    before = len(judging.figures)
    yield
    del judging.figures[before:]


def test_what_misses_its_limit_is_noted_and_passes() -> None:
    judging.at_most("taken over, s", 3.0, limit=2.0, anywhere=60.0)
    judging.at_least("Mbit/s", 9.0, limit=10.0, anywhere=1.0)
    judging.few_lost({"in": 3, "out": 7}, limit=0, pps=100)
    judging.few_twice({"vm0": 3}, limit=2)
    noted = judging.figures[-4:]
    assert [figure.kept for figure in noted] == [False] * 4
    assert [figure.found for figure in noted] == [3.0, 9.0, 7, 3]
    assert str(noted[0]).startswith("FAIL  test_judging.py::")


def test_an_outage_fails() -> None:
    with pytest.raises(AssertionError, match=f"taken over, s: {HANG_S + 1:.4g} -> at most"):
        judging.soon("taken over", HANG_S + 1, limit_s=2.0)
    with pytest.raises(AssertionError, match="frames lost"):
        judging.few_lost([0, 301], limit=0, pps=100)
    with pytest.raises(AssertionError, match="at least 1"):
        judging.at_least("Mbit/s", 0.5, limit=10.0, anywhere=1.0)
    with pytest.raises(AssertionError, match="heard twice"):
        judging.few_twice({"vm0": 91}, limit=2)
