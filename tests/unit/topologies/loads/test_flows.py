"""Flows of published sizes: their plan, the oracle that places them, and their figures."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import layouts
from topologies.graph.layout import Layout, Role
from topologies.loads.flow_load import Completion, FlowLoad, figures
from topologies.loads.flow_plan import (
    DATA_MINING,
    PLACES,
    WEB_SEARCH,
    FlowPlan,
    SharedLink,
    SizeDistribution,
    client_ports,
    flows_for,
    ideal_s,
    offered_bps,
    place,
    plan_flows,
    popularity,
    wire_bytes,
)
from topologies.loads.load import Stage
from topologies.network.private_ovs import PrivateOvs

SPANS = [(0.0, 20.0), (20.0, 50.0)]
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
        one_flow = 1 / flows_for(distribution, load_bps, span[1] - span[0])
        assert offered_bps(flows, span) == pytest.approx(load_bps, rel=one_flow + 0.002)


def test_flows_start_at_random_and_vms_have_their_shares_of_them() -> None:
    flows = plan_flows(WEB_SEARCH.scaled(0.01), 140e6, SPANS, SHARES, 1)
    starts_s = [one.start_s for one in flows]
    assert starts_s == sorted(starts_s)
    assert starts_s[0] >= 0 and starts_s[-1] < SPANS[-1][1]
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


LINK_BPS = 100e6
SIZE_BYTES = 1_000_000
ALONE_S = wire_bytes(SIZE_BYTES) * 8 / LINK_BPS
plans = st.lists(
    st.tuples(st.floats(0, 5), st.integers(1, 5_000_000)), min_size=1, max_size=40
).map(lambda rows: [FlowPlan(start_s, 0, size) for start_s, size in sorted(rows)])


def test_flows_that_start_together_share_a_link_equally() -> None:
    link = SharedLink(LINK_BPS)
    link.advance(0.0)
    alone = link.cost(SIZE_BYTES)
    assert alone == pytest.approx(ALONE_S / ideal_s(SIZE_BYTES, LINK_BPS))
    link.add(SIZE_BYTES)
    # Each of the two takes twice as long.
    assert link.cost(SIZE_BYTES) == pytest.approx(3 * alone)
    link.advance(ALONE_S / 2)
    assert link.cost(SIZE_BYTES) == pytest.approx(2 * alone), "half of the first is left"
    link.advance(ALONE_S)
    assert link.cost(SIZE_BYTES) == pytest.approx(alone), "the first one has ended"


@given(plans)
@settings(deadline=None)
def test_flow_costs_at_least_as_much_as_on_an_idle_link(flows: list[FlowPlan]) -> None:
    busy, idle = SharedLink(LINK_BPS), SharedLink(LINK_BPS)
    for flow in flows:
        busy.advance(flow.start_s)
        idle.advance(flow.start_s)
        assert busy.cost(flow.size_bytes) >= idle.cost(flow.size_bytes) * (1 - 1e-6)
        busy.add(flow.size_bytes)


def test_large_flows_go_to_different_uplinks_and_small_ones_beside_the_fewest() -> None:
    flows = [FlowPlan(0.0, 0, 9_000_000), FlowPlan(0.01, 0, 9_000_000)]
    assert place(flows, [LINK_BPS] * 2) == [0, 1]
    flows = [FlowPlan(0.0, 0, 9_000_000), *(FlowPlan(0.1 * n, 0, 5_000) for n in range(1, 5))]
    assert place(flows, [LINK_BPS] * 2) == [0, 1, 1, 1, 1]


def _load(directory: Path, layout: Layout, repetition: int = 1) -> FlowLoad:
    names = (*layout.nodes(Role.VM), *layout.nodes(Role.CLIENT))
    pids = {name: number for number, name in enumerate(names, start=100)}
    nothing_is_up = cast(PrivateOvs, None)
    stage = Stage(layout, "lbt-", pids, {}, nothing_is_up, directory, repetition=repetition)
    return FlowLoad(stage, WEB_SEARCH.scaled(0.1), 70e6, warm_up_s=2.0, watched_s=8.0, drain_s=3.0)


def test_flows_are_the_same_for_every_contender_and_others_in_every_run(tmp_path: Path) -> None:
    first, second = (_load(tmp_path, layouts.flows(), repetition=number).flows for number in (1, 2))
    assert _load(tmp_path, layouts.flows(uplinks=3)).flows == first
    assert {one.start_s for one in first}.isdisjoint(one.start_s for one in second)
    assert sorted(one.size_bytes for one in first) == sorted(one.size_bytes for one in second)
    by_vm = [Counter(one.vm for one in planned).most_common() for planned in (first, second)]
    assert by_vm[0][0][0] != by_vm[1][0][0], "another VM is the busiest"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, PLACES - 1)), max_size=200))
def test_port_tells_the_place_and_is_not_used_twice(drawn: list[tuple[int, int]]) -> None:
    clients, places = [client for client, _ in drawn], [place for _, place in drawn]
    found = client_ports(clients, places)
    assert [port % PLACES for port in found] == places
    assert len(set(zip(clients, found, strict=True))) == len(found)


def _flows(size_bytes: int, durations_s: list[float]) -> list[Completion]:
    return [Completion(size_bytes, 0.0, 0.0, duration_s) for duration_s in durations_s]


def test_ideal_is_the_wire_time_and_the_base_latency() -> None:
    assert ideal_s(1_448_000, LINK_BPS) == pytest.approx(0.001 + (1_514_000 + 206) * 8 / 100e6)


def test_figures_are_of_each_class() -> None:
    hundred_ms = [number / 1000 for number in range(1, 201)]
    flows = _flows(1000, hundred_ms) + _flows(20_000, [0.5, 0.25]) + _flows(2_000_000, [3.0] * 60)
    found = figures(flows, LINK_BPS)
    assert (found["flows_small"], found["flows_middle"], found["flows_large"]) == (200, 2, 60)
    assert found["fct_small_p50_ms"] == pytest.approx(100)
    assert found["fct_small_p95_ms"] == pytest.approx(190)
    assert found["fct_small_p99_ms"] == pytest.approx(198)
    assert found["slowdown_small_p50"] == pytest.approx(0.1 / ideal_s(1000, LINK_BPS))
    assert found["fct_middle_p50_ms"] == pytest.approx(250)
    assert "fct_middle_p95_ms" not in found, "two flows have no p95"
    assert found["fct_large_p95_ms"] == pytest.approx(3000)
    assert "fct_large_p99_ms" not in found
    assert found["unfinished_ratio"] == 0


def test_flows_that_were_given_up_count_with_the_time_they_had() -> None:
    done = _flows(1000, [0.01] * 3)
    given_up = [Completion(1000, 0.0, 0.0, 9.0, complete=False)] * 3
    found = figures(done + given_up, LINK_BPS)
    assert found["unfinished_ratio"] == 0.5
    assert found["fct_small_p50_ms"] == pytest.approx(10)
    assert found["slowdown_p50"] == found["slowdown_small_p50"]
    assert figures(given_up, LINK_BPS)["fct_small_p50_ms"] == pytest.approx(9000)
