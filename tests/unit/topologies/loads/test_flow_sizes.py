"""Distributions of flow sizes: their means, and samples that have exactly their mean."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.loads.flow_arrivals import DATA_MINING, PACKET_BYTES, WEB_SEARCH, SizeDistribution


@st.composite
def distributions(draw: st.DrawFn) -> SizeDistribution:
    """A table of up to eight points, some of them with the same size or the same probability."""
    count = draw(st.integers(2, 8))
    inner = draw(st.lists(st.floats(0, 1), min_size=count - 2, max_size=count - 2))
    sizes = draw(st.lists(st.floats(1, 1e9), min_size=count, max_size=count))
    points = zip(sorted([0.0, *inner, 1.0]), sorted(sizes), strict=True)
    return SizeDistribution("drawn", "nobody", tuple(points))


@pytest.mark.parametrize(
    ("distribution", "packets"),
    # The means that simulations with these tables give.
    [(WEB_SEARCH, 1138), (DATA_MINING, 5117)],
)
def test_means_are_those_of_the_literature(distribution: SizeDistribution, packets: int) -> None:
    assert distribution.mean_bytes == pytest.approx(packets * PACKET_BYTES, rel=0.003)
    assert distribution.scaled(0.1).mean_bytes == pytest.approx(distribution.mean_bytes / 10)


@given(distributions(), st.integers(1, 300))
def test_samples_have_the_mean_of_the_table(distribution: SizeDistribution, count: int) -> None:
    by_table = sum(
        (above - below) * (least + most) / 2
        for (below, least), (above, most) in pairwise(distribution.points)
    )
    sizes = distribution.sample_bytes(count)
    assert len(sizes) == count
    assert sizes == sorted(sizes)
    assert sum(sizes) / count == pytest.approx(by_table, rel=1e-6, abs=0.51)
