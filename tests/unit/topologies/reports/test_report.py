"""From recorded samples to phases, figures, expectations and the report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topologies import bench_runs
from topologies import layouts
from topologies.benches import steering
from topologies.compare import figures
from topologies.compare.figures import Result, mean_utilization, utilizations
from topologies.compare.plan import Options
from topologies.compare.run import Observed, Sample
from topologies.graph.layout import Role
from topologies.loads import web_load
from topologies.loads.load import Outcome
from topologies.loads.pace import ACCELERATED
from topologies.reports import report

CAPACITY_BPS = 100_000_000
RAMP_S, LOAD_S = 40, 60
NEVER = float("inf")
OPTIONS = Options(replace(ACCELERATED, ramp_s=RAMP_S, steady_s=LOAD_S - RAMP_S))
PLAN = steering.VMWARE_LBT
SCENARIO, _ = PLAN.scenarios(OPTIONS)
LAYOUT = SCENARIO.layout


def _shares(at_s: float, moves: tuple[float, float]) -> tuple[float, float]:
    """The uplinks' shares for four equal loads, after the given moves."""
    total = 1.3 * min(1.0, at_s / RAMP_S)
    if at_s < moves[0]:
        return total, 0.0
    if at_s < moves[1]:
        return total * 3 / 4, total / 4
    return total / 2, total / 2


def _observed(
    contender: str = "load-based",
    moves: tuple[float, float] = (25.0, 33.0),
    qos_ratio: float = 1.0,
    throughput_bps: float = 80e6,
) -> Observed:
    def used(at_s: float) -> dict[str, float]:
        return dict(zip(("uplink1", "uplink2"), _shares(at_s - 0.5, moves), strict=True))

    figures = {"qos_ratio": qos_ratio, "downloads": 1000.0, "steady_share_of_limit": 0.6}
    return Observed(
        scenario=SCENARIO.name,
        contender=contender,
        samples=bench_runs.samples(LAYOUT, LOAD_S, used, moves),
        outcome=Outcome(int(throughput_bps * LOAD_S / 8), throughput_bps, figures),
        load_s=LOAD_S,
        measured_s=(0.0, LOAD_S),
        steady_s=(RAMP_S, LOAD_S),
        cpu_s={"ovs-vswitchd": 29.0, "ovs-lbt": 1.0},
        entered_packets=1000,
        delivered_packets=990,
    )


def test_quality_of_service_is_of_complete_downloads() -> None:
    def download(start_s: float, rate_bps: float, complete: bool = True) -> dict[str, Any]:
        end_s = start_s + 600_000 * 8 / rate_bps
        size = {"size_bytes": 600_000, "received_bytes": 600_000}
        return {**size, "start_s": start_s, "end_s": end_s, "complete": complete}

    # Just fast enough, too slow, and not complete; half of the first one is within the steady state.
    downloads = [
        download(37.0, 800e3),
        download(44.0, 700e3),
        download(50.0, 700e3, complete=False),
    ]
    found = web_load.figures(downloads, RAMP_S, LOAD_S, LAYOUT.limit_bps)
    assert (found["downloads"], found["qos_ratio"]) == (2, 0.5)
    assert found["steady_throughput_bps"] == pytest.approx(2.5 * 600_000 * 8 / 20)
    assert found["steady_share_of_limit"] * LAYOUT.limit_bps == found["steady_throughput_bps"]
    assert "qos_ratio" not in web_load.figures([], RAMP_S, LOAD_S, LAYOUT.limit_bps)


def test_utilization_is_the_busier_direction() -> None:
    samples = [
        Sample(0.0, {"u": 0}, {"u": 0}),
        Sample(1.0, {"u": 1_000_000}, {"u": 5_000_000}),
        Sample(3.0, {"u": 11_000_000}, {"u": 5_000_000}),
    ]
    spans = utilizations(samples, {"u": CAPACITY_BPS})
    assert [span.ratio["u"] for span in spans] == pytest.approx([0.4, 0.4])
    assert mean_utilization(spans, 0.0, 3.0) == pytest.approx({"u": 0.4})
    assert mean_utilization(spans, 5.0, 6.0) == {}


def test_two_moves_cut_the_load_into_the_published_phases() -> None:
    found = figures.phases_of(LAYOUT, _observed(), RAMP_S)
    assert [phase.name for phase in found] == ["phase 1", "phase 2", "phase 3", "phase 4"]
    assert [phase.start_s for phase in found] == [0.0, 26.0, 34.0, 40.0]
    assert found[-1].end_s == LOAD_S
    assert found[0].uplink_utilization["uplink2"] < 0.05
    assert found[3].uplink_utilization == pytest.approx(
        {"uplink1": 0.65, "uplink2": 0.65}, abs=0.001
    )
    assert figures.in_order(found)


def test_figures_of_a_run() -> None:
    found = figures.figures(LAYOUT, _observed())
    assert found["throughput_bps"] == 80e6
    assert found["share_of_limit"] == pytest.approx(0.4)
    assert found["moves"] == 2
    assert found["spread_cv"] == pytest.approx(0, abs=0.001)
    assert found["loss_ratio"] == pytest.approx(0.01)
    assert found["cpu_s"] == 30.0
    assert (found["cpu_s_ovs-vswitchd"], found["cpu_s_ovs-lbt"]) == (29.0, 1.0)
    assert found["downloads"] == 1000
    colliding = figures.figures(LAYOUT, _observed(moves=(NEVER, NEVER)))
    assert colliding["spread_cv"] == pytest.approx(1.0)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=2), st.floats(0, 1))
def test_spread_is_0_if_even_and_1_if_one_of_two_is_idle(
    shares: list[float], receiving: float
) -> None:
    layout = layouts.live_migration()
    senders = layout.sending_uplinks()
    receivers = [up for up in layout.nodes(Role.UPLINK) if up not in senders]
    used = dict(zip(senders, shares, strict=True)) | {receivers[0]: receiving}
    found = figures.spread_cv(layout, bench_runs.observed(layout, "manual", used))
    assert found == pytest.approx(abs(shares[0] - shares[1]) / sum(shares), abs=1e-4)
    idle = bench_runs.observed(layout, "manual", {senders[0]: shares[0], receivers[0]: receiving})
    assert figures.spread_cv(layout, idle) == pytest.approx(1)
    nothing = bench_runs.observed(layout, "manual", {receivers[0]: receiving})
    assert figures.spread_cv(layout, nothing) == 0


def test_cpu_time_is_per_received_bit() -> None:
    observed = [
        bench_runs.observed(LAYOUT, name, {}, throughput_bps=bps, cpu_s=3.0)
        for name, bps in (("manual", 1e6), ("set", 0.5e6), ("dynamic", 0.0))
    ]
    runs = {one.contender: figures.figures(LAYOUT, one) for one in observed}
    assert runs["manual"]["cpu_s_per_gbit"] == pytest.approx(3.0 / 0.02)
    assert "cpu_s_per_gbit" not in runs["dynamic"], "absent where nothing was received"
    compared = figures.with_cpu_ratio(runs, "manual")
    ratios = {name: one.get("cpu_ratio") for name, one in compared.items()}
    assert ratios == {"manual": 1.0, "set": pytest.approx(2.0), "dynamic": None}
    for baseline in ("dynamic", "load-based"):
        assert figures.with_cpu_ratio(runs, baseline) == runs


def _result(load_based: Observed | None = None) -> Result:
    static = _observed("originating-port", (NEVER, NEVER), 0.4, 60e6)
    return bench_runs.result(SCENARIO, [_observed("manual"), static, load_based or _observed()])


@pytest.mark.parametrize(
    ("changed", "least_downloads", "missed"),
    [
        (None, 1000, set()),
        (None, 1001, {"at least 1001 downloads for each contender"}),
        (_observed(moves=(25.0, NEVER)), 0, {"four phases", "exactly 2", "uplinks within"}),
        (_observed(throughput_bps=78e6), 0, {"load-based: at least 0.98"}),
        (_observed(qos_ratio=0.998), 0, {"load-based: quality"}),
    ],
)
def test_each_unmet_condition_is_named(
    changed: Observed | None, least_downloads: int, missed: set[str]
) -> None:
    options = replace(OPTIONS, pace=replace(OPTIONS.pace, least_downloads=least_downloads))
    checked = PLAN.expectations(options, [_result(changed)])
    assert len(checked) == (7 if least_downloads else 6), "there is no peer to compare with"
    conditions = [one.condition for one in checked if not one.met]
    assert len(conditions) == len(missed)
    assert all(any(text in c for c in conditions) for text in missed)


def test_report_has_the_documented_shape() -> None:
    result = _result()
    found, checked = PLAN.phases(OPTIONS, result), PLAN.expectations(OPTIONS, [result])
    made = report.build(report.environment(OPTIONS), [result], found, checked)
    read = json.loads(json.dumps(made))
    assert read["layout"] == "vmware_lbt"
    assert read["limit_bps"] == 200_000_000
    keys = ["layout", "limit_bps", "published", "environment"]
    assert list(read) == [*keys, "contenders", "scenarios", "phases", "expectations"]
    assert read["environment"]["pace"]["name"] == "accelerated"
    assert read["environment"]["direction"] == "send"
    for name in ("manual", "originating-port", "load-based"):
        one = read["contenders"][name]
        assert {
            *("throughput_bps", "share_of_limit", "spread_cv", "loss_ratio"),
            *("moves", "cpu_s", "cpu_s_per_gbit", "cpu_ratio", "runs"),
            *("steady_share_of_limit", "qos_ratio", "downloads"),
        } <= set(one)
        assert "failover_ms" not in one, "not measured here"
        assert len(one["runs"]) == 1
    assert read["contenders"]["load-based"]["moves"] == 2
    for phase in read["phases"]:
        assert set(phase) == {"name", "start_s", "end_s", "uplink_utilization"}
        assert set(phase["uplink_utilization"]) == {"uplink1", "uplink2"}
    for one in read["expectations"]:
        assert set(one) == {"condition", "found", "met"}
