"""Distributions of flow sizes: their tables, their quantiles, and their samples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.loads.flow_sizes import DATA_MINING, PACKET_BYTES, WEB_SEARCH, SizeDistribution

PUBLISHED = pytest.mark.parametrize("distribution", [WEB_SEARCH, DATA_MINING])
shares = st.floats(0, 1)


@st.composite
def distributions(draw: st.DrawFn) -> SizeDistribution:
    """A table of up to eight points, some of them with the same size or the same probability."""
    count = draw(st.integers(2, 8))
    inner = draw(st.lists(shares, min_size=count - 2, max_size=count - 2))
    sizes = draw(st.lists(st.floats(1, 1e9), min_size=count, max_size=count))
    points = zip(sorted([0.0, *inner, 1.0]), sorted(sizes), strict=True)
    return SizeDistribution("drawn", "nobody", tuple(points))


@PUBLISHED
def test_tables_grow_from_nothing_to_everything(distribution: SizeDistribution) -> None:
    probabilities, sizes = zip(*distribution.points, strict=True)
    assert (probabilities[0], probabilities[-1]) == (0.0, 1.0)
    assert all(before < after for before, after in pairwise(probabilities))
    assert all(before <= after for before, after in pairwise(sizes))


@pytest.mark.parametrize(
    ("distribution", "packets"),
    # The means that simulations with these tables give.
    [(WEB_SEARCH, 1138), (DATA_MINING, 5117)],
)
def test_means_are_those_of_the_literature(distribution: SizeDistribution, packets: int) -> None:
    assert distribution.mean_bytes == pytest.approx(packets * PACKET_BYTES, rel=0.003)


def test_half_of_the_data_mining_flows_are_one_packet_and_few_are_large() -> None:
    assert DATA_MINING.quantile_bytes(0.5) == PACKET_BYTES
    assert DATA_MINING.quantile_bytes(0.9) < 400_000
    carried = 0.05 * DATA_MINING.mean_between_bytes(0.95, 1.0) / DATA_MINING.mean_bytes
    assert carried > 0.95
    assert WEB_SEARCH.quantile_bytes(0.5) < 100_000 < WEB_SEARCH.quantile_bytes(0.6)


@given(distributions(), shares, shares)
def test_quantiles_are_monotone(distribution: SizeDistribution, one: float, other: float) -> None:
    low, high = sorted((one, other))
    least, most = distribution.points[0][1], distribution.points[-1][1]
    found = distribution.quantile_bytes(low), distribution.quantile_bytes(high)
    slack = 1e-9 * most
    assert least - slack <= found[0] <= found[1] + slack <= most + 2 * slack


@PUBLISHED
def test_quantiles_hit_every_point_of_the_table(distribution: SizeDistribution) -> None:
    for probability, size in distribution.points:
        assert distribution.quantile_bytes(probability) == pytest.approx(size)


@given(distributions())
def test_mean_is_that_of_the_quantiles(distribution: SizeDistribution) -> None:
    count = 4000
    middle = [distribution.quantile_bytes((number + 0.5) / count) for number in range(count)]
    # A jump between two points with the same probability is at most one of the values off.
    most = distribution.points[-1][1] / count
    by_table = sum(
        (above - below) * (least + high) / 2
        for (below, least), (above, high) in pairwise(distribution.points)
    )
    assert distribution.mean_bytes == pytest.approx(by_table, rel=1e-6)
    assert sum(middle) / count == pytest.approx(by_table, abs=9 * most)


@given(distributions(), st.integers(1, 300))
def test_samples_have_the_mean_of_the_table(distribution: SizeDistribution, count: int) -> None:
    sizes = distribution.sample_bytes(count)
    assert len(sizes) == count
    assert sizes == sorted(sizes)
    assert sum(sizes) / count == pytest.approx(distribution.mean_bytes, rel=1e-6, abs=0.51)


@given(st.floats(0.01, 10), shares)
def test_scaling_scales_every_size(factor: float, share: float) -> None:
    scaled = WEB_SEARCH.scaled(factor)
    expected = factor * WEB_SEARCH.quantile_bytes(share)
    assert scaled.quantile_bytes(share) == pytest.approx(expected)
    assert scaled.mean_bytes == pytest.approx(factor * WEB_SEARCH.mean_bytes)
    assert scaled.source == WEB_SEARCH.source


def test_probability_must_be_one() -> None:
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match=f"probability: {wrong} -> 0 to 1"):
            WEB_SEARCH.quantile_bytes(wrong)
