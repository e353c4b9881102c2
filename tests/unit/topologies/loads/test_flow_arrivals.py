"""The plan of an open loop of flows: its load, its starts, its VMs."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.loads.flow_plan import (
    DATA_MINING,
    WEB_SEARCH,
    SizeDistribution,
    Span,
    flows_for,
    offered_bps,
    plan_flows,
    popularity,
    wire_bytes,
)

SPANS = [Span(0.0, 20.0), Span(20.0, 50.0)]
SHARES = popularity(8, 1)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [WEB_SEARCH.scaled(0.1), DATA_MINING.scaled(0.1)])
@given(seed=st.integers(0, 1000), ratio=st.floats(0.3, 1.0))
@settings(max_examples=20, deadline=None)
def test_every_span_offers_the_load(
    distribution: SizeDistribution, seed: int, ratio: float
) -> None:
    load_bps = ratio * 200e6
    flows = plan_flows(distribution, load_bps, SPANS, SHARES, seed)
    for span in SPANS:
        one_flow = 1 / flows_for(distribution, load_bps, span.duration_s)
        assert offered_bps(flows, span) == pytest.approx(load_bps, rel=one_flow + 0.002)


def test_flows_start_at_random_and_vms_have_their_shares_of_them() -> None:
    flows = plan_flows(WEB_SEARCH.scaled(0.01), 140e6, SPANS, SHARES, 1)
    starts_s = [one.start_s for one in flows]
    assert starts_s == sorted(starts_s)
    assert starts_s[0] >= 0 and starts_s[-1] < SPANS[-1].end_s
    gaps_s = [after - before for before, after in pairwise(starts_s)]
    # Of an exponential distribution, the standard deviation is the mean.
    assert statistics.stdev(gaps_s) == pytest.approx(statistics.fmean(gaps_s), rel=0.05)
    counts = Counter(one.vm for one in flows)
    for vm, share in enumerate(SHARES):
        assert counts[vm] / len(flows) == pytest.approx(share, rel=0.1)


def test_wire_bytes_count_headers_of_every_segment() -> None:
    assert wire_bytes(1) == 1 + 66 + 206
    assert wire_bytes(1448) == 1514 + 206
    assert wire_bytes(1449) == 1514 + 67 + 206
