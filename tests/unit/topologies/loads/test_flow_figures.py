"""Completion times: classes, percentiles, slowdowns, and what is not measured."""

from __future__ import annotations

import pytest

from topologies.loads.flow_load import Completion, figures
from topologies.loads.flow_plan import ideal_s

LINK_BPS = 100e6


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
