"""Figures of `make bench-scale`: histograms as Prometheus gives them."""

from __future__ import annotations

import pytest

from topologies.network.service import parse_metrics
from topologies.scale.measuring import histogram

PAGE = """\
took_seconds_bucket{bridge="a",le="0.001"} 4
took_seconds_bucket{bridge="a",le="0.003"} 10
took_seconds_bucket{bridge="a",le="+Inf"} 10
took_seconds_sum{bridge="a"} 0.012
took_seconds_bucket{bridge="b",le="0.001"} 6
took_seconds_bucket{bridge="b",le="0.003"} 8
took_seconds_bucket{bridge="b",le="+Inf"} 10
took_seconds_sum{bridge="b"} 0.05
"""


def test_quantiles_of_all_bridges_are_interpolated_within_their_bucket() -> None:
    found = histogram(parse_metrics(PAGE), "took_seconds")

    assert found.count == 20 and found.total_s == pytest.approx(0.062)
    assert found.quantile(0.25) == pytest.approx(0.0005)
    assert found.quantile(0.7) == pytest.approx(0.002)
    assert found.quantile(0.99) == 0.003, "beyond the last bound, the quantile is unknown"


def test_since_has_only_later_observations() -> None:
    before = histogram(parse_metrics(PAGE), "took_seconds")
    more = PAGE.replace('le="+Inf"} 10', 'le="+Inf"} 12').replace(
        'sum{bridge="a"} 0.012', 'sum{bridge="a"} 0.112'
    )
    since = histogram(parse_metrics(more), "took_seconds").since(before)

    assert since.count == 4
    assert since.total_s == pytest.approx(0.1)
    assert since.since(since).quantile(0.5) is None
