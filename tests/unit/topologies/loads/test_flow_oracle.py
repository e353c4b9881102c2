"""The oracle: what it expects of a link that flows share, and where it places flows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.loads.flow_arrivals import FlowPlan, wire_bytes
from topologies.loads.flow_oracle import place, shared_equally_s

LINK_BPS = 100e6
SIZE_BYTES = 1_000_000
ALONE_S = wire_bytes(SIZE_BYTES) * 8 / LINK_BPS
plans = st.lists(
    st.tuples(st.floats(0, 5), st.integers(1, 5_000_000)), min_size=1, max_size=40
).map(lambda rows: [FlowPlan(start_s, 0, size) for start_s, size in sorted(rows)])


def _flows(*starts_s: float, size_bytes: int = SIZE_BYTES) -> list[FlowPlan]:
    return [FlowPlan(start_s, 0, size_bytes) for start_s in starts_s]


def test_flows_that_start_together_share_a_link_equally() -> None:
    assert shared_equally_s(_flows(0, 0), LINK_BPS, LINK_BPS) == pytest.approx([2 * ALONE_S] * 2)
    # The second one starts when half of the first has been sent.
    found = shared_equally_s(_flows(0, ALONE_S / 2), LINK_BPS, LINK_BPS)
    assert found == pytest.approx([1.5 * ALONE_S] * 2)


@given(plans)
@settings(deadline=None)
def test_link_is_never_faster_than_its_capacity(flows: list[FlowPlan]) -> None:
    found = shared_equally_s(flows, LINK_BPS, LINK_BPS)
    for flow, duration_s in zip(flows, found, strict=True):
        assert duration_s >= wire_bytes(flow.size_bytes) * 8 / LINK_BPS * (1 - 1e-6)
    last_s = max(flow.start_s + one for flow, one in zip(flows, found, strict=True))
    sent_s = sum(wire_bytes(flow.size_bytes) for flow in flows) * 8 / LINK_BPS
    assert last_s >= sent_s * (1 - 1e-6)
    assert last_s <= flows[-1].start_s + sent_s * (1 + 1e-6)


def test_large_flows_go_to_different_uplinks_and_small_ones_beside_the_fewest() -> None:
    flows = [FlowPlan(0.0, 0, 9_000_000), FlowPlan(0.01, 0, 9_000_000)]
    assert place(flows, [LINK_BPS] * 2) == [0, 1]
    flows = [FlowPlan(0.0, 0, 9_000_000), *(FlowPlan(0.1 * n, 0, 5_000) for n in range(1, 5))]
    assert place(flows, [LINK_BPS] * 2) == [0, 1, 1, 1, 1]


def test_flow_avoids_an_uplink_that_is_about_to_fail() -> None:
    closes_s = [1.0, math.inf]
    assert place(_flows(0.5, 0.5), [LINK_BPS] * 2, closes_s) == [1, 0]
    assert place(_flows(0.95, 0.95), [LINK_BPS] * 2, closes_s) == [1, 1]
    assert place(_flows(2.0), [LINK_BPS] * 2, [1.0, 0.99]) == [0], "the last one to fail"
