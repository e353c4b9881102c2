"""The rate at which all members of a LAG bring the same broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.load.flooded import Repeated

Reading = dict[int, int]


READINGS: dict[str, tuple[Sequence[Reading], float]] = {
    "the same": ([{1: 7, 2: 900}, {1: 207, 2: 1100}], 20.0),
    "one less": ([{1: 7, 2: 900}, {1: 207, 2: 1099}], 19.9),
    "more by one": ([{1: 7, 2: 900}, {1: 207, 2: 1090}], 0.0),
    "few at a time": ([{1: 7, 2: 900}, {1: 67, 2: 960}, {1: 127, 2: 1020}], 6.0),
    "too few": ([{1: 7, 2: 900}, {1: 67, 2: 960}], 0.0),
    "no more": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 500, 2: 200}], 0.0),
    "too few since": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 201, 2: 202}], 20.0),
    "counted anew": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 5, 2: 5}], 0.0),
    "no lag": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {}], 0.0),
    "one member": ([{1: 0}, {1: 200}], 0.0),
}


@pytest.mark.parametrize(("readings", "expected"), READINGS.values(), ids=list(READINGS))
def test_it_is_what_all_members_bring_alike(readings: Sequence[Reading], expected: float) -> None:
    found = Repeated()
    for number, reading in enumerate(readings):
        found.take_flooded(reading, 10.0 * number)
    assert found.pps == expected
