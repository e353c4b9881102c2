"""The oracle: what it expects of a link that flows share, and where it places flows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.loads.flow_plan import FlowPlan, SharedLink, ideal_s, place, wire_bytes

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
