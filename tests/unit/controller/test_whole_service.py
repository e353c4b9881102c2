"""A minute of the whole service in virtual time, by each of 50 seeds; `make test-all` runs ten minutes of others."""

from __future__ import annotations

import pytest

from tests.unit.controller.whole_service import Service


@pytest.mark.parametrize("seed", range(1, 51))
def test_frames_arrive_once_whatever_happens(seed: int) -> None:
    Service(seed).live(minutes=1)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(101, 121))
def test_frames_arrive_once_in_ten_minutes(seed: int) -> None:
    Service(seed).live(minutes=10)


def test_a_seed_is_the_same_each_time() -> None:
    one, again = Service(7), Service(7)
    for service in (one, again):
        service.live(minutes=1)
    assert one.told == again.told
    assert one.rows == again.rows
