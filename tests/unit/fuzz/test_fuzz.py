"""A short run over everything that comes from outside; `make fuzz` is the long one."""

from __future__ import annotations

import pytest

from tests.unit.fuzz.runs import run
from tests.unit.fuzz.targets import TARGETS

CASES = 400


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_from_outside_does_harm(name: str) -> None:
    target = TARGETS[name]
    assert run(target, CASES * target.weight // 100, number=10) > 0
