"""Which scrapes a test may count on, by what Prometheus says of them."""

from __future__ import annotations

import pytest

from tests.switch.prometheus import in_a_row


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ([], 0),
        ([(10.0, 1.0)], 1),
        ([(10.0, 1.0), (10.5, 1.0), (11.01, 1.0)], 3),
        # A scrape that fails has a sample, too.
        ([(10.0, 1.0), (10.5, 1.0), (11.0, 0.0)], 0),
        ([(10.0, 1.0), (10.5, 0.0), (11.0, 1.0)], 1),
        # One that Prometheus was too late for has none.
        ([(10.0, 1.0), (11.0, 1.0), (11.5, 1.0)], 2),
    ],
)
def test_counts_scrapes_without_a_gap(made: list[tuple[float, float]], count: int) -> None:
    assert in_a_row(made) == count
