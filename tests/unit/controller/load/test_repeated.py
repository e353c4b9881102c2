"""The rate at which all members of a LAG bring the same broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.load.repeated import Repeated

Reading = dict[int, int]


def rate_of(readings: Sequence[Reading]) -> float:
    found = Repeated()
    for number, reading in enumerate(readings):
        found.take_flooded(reading, 10.0 * number)
    return found.pps


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([{1: 7, 2: 900}, {1: 207, 2: 1100}], 20.0),
        ([{1: 7, 2: 900}, {1: 207, 2: 1099}], 19.9),
        ([{1: 7, 2: 900}, {1: 207, 2: 1090}], 0.0),
        ([{1: 7, 2: 900}, {1: 67, 2: 960}, {1: 127, 2: 1020}], 6.0),
        ([{1: 7, 2: 900}, {1: 67, 2: 960}], 0.0),
        ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 500, 2: 200}], 0.0),
        ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 201, 2: 202}], 20.0),
        ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 5, 2: 5}], 0.0),
        ([{1: 0, 2: 0}, {1: 200, 2: 200}, {}], 0.0),
        ([{1: 0}, {1: 200}], 0.0),
    ],
    ids=[
        "the same",
        "one less",
        "more by one",
        "few at a time",
        "too few",
        "no more",
        "too few since",
        "counted anew",
        "no lag",
        "one member",
    ],
)
def test_it_is_what_all_members_bring_alike(readings: Sequence[Reading], expected: float) -> None:
    assert rate_of(readings) == expected
