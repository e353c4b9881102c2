"""From recorded samples to phases, figures, expectations and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from topologies import expectations, figures, phases, report, vmware_lbt
from topologies.console import contender_table, phase_table, verdicts
from topologies.pace import ACCELERATED
from topologies.run import Observed
from topologies.samples import Sample, mean_utilization, move_times_s, utilizations
from topologies.service import parse_metrics
from topologies.web_load import Direction

CAPACITY_BPS = 100_000_000
RAMP_S, LOAD_S = 40, 60
LAYOUT = vmware_lbt.layout()


def _shares(at_s: float, moves: tuple[float, float]) -> tuple[float, float]:
    """The uplinks' shares by the arithmetic of four equal loads."""
    total = 1.3 * min(1.0, at_s / RAMP_S)
    if at_s < moves[0]:
        return total, 0.0
    if at_s < moves[1]:
        return total * 3 / 4, total / 4
    return total / 2, total / 2


def _observed(
    contender: str = "load-based",
    moves: tuple[float, float] = (25.0, 33.0),
    qos_met: int = 1000,
    received_bytes: int = 600_000,
    cpu_s: float = 30.0,
) -> Observed:
    sent = {"uplink1": 0.0, "uplink2": 0.0}
    samples = []
    for at_s in range(LOAD_S + 1):
        if at_s:
            for uplink, share in zip(sent, _shares(at_s - 0.5, moves), strict=True):
                sent[uplink] += share * CAPACITY_BPS / 8
        samples.append(
            Sample(
                at_s=float(at_s),
                sent_bytes={uplink: int(count) for uplink, count in sent.items()},
                received_bytes={uplink: int(count / 50) for uplink, count in sent.items()},
                moves=sum(at_s > move for move in moves),
            )
        )
    downloads: list[dict[str, Any]] = [
        {
            "server": "10.1.0.1",
            "size_bytes": received_bytes,
            "received_bytes": received_bytes,
            "start_s": number * LOAD_S / 1000,
            # Just fast enough, or clearly too slow.
            "end_s": number * LOAD_S / 1000
            + received_bytes * 8 / 800_000 * (1.05 if number < qos_met else 1.5),
            "complete": True,
        }
        for number in range(1000)
    ]
    return Observed(
        contender,
        samples,
        downloads,
        LOAD_S,
        {"ovs-vswitchd": cpu_s - 1, "ovs-lbt": 1.0},
        1000,
        990,
    )


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


def test_a_mean_weighs_intervals_by_their_overlap() -> None:
    samples = [Sample(t, {"u": b}, {"u": 0}) for t, b in ((0.0, 0), (1.0, 12_500_000), (2.0, 0))]
    samples[2] = Sample(2.0, {"u": 12_500_000}, {"u": 0})
    spans = utilizations(samples, {"u": CAPACITY_BPS})
    assert mean_utilization(spans, 0.5, 2.0)["u"] == pytest.approx(1 / 3)


def test_two_moves_cut_the_load_into_the_published_phases() -> None:
    found = figures.phases_of(LAYOUT, _observed(), RAMP_S)
    assert [phase.name for phase in found] == ["phase 1", "phase 2", "phase 3", "phase 4"]
    assert [phase.start_s for phase in found] == [0.0, 26.0, 34.0, 40.0]
    assert found[-1].end_s == LOAD_S
    assert found[0].uplink_utilization["uplink2"] < 0.05
    assert found[3].uplink_utilization == pytest.approx(
        {"uplink1": 0.65, "uplink2": 0.65}, abs=0.001
    )
    assert phases.in_order(found)


def test_moves_that_did_not_happen_leave_their_phase_out() -> None:
    never = float("inf")
    found = figures.phases_of(LAYOUT, _observed(moves=(25.0, never)), RAMP_S)
    assert [phase.name for phase in found] == ["phase 1", "phase 2", "phase 4"]
    assert not phases.in_order(found)
    late = figures.phases_of(LAYOUT, _observed(moves=(25.0, 50.0)), RAMP_S)
    assert not phases.in_order(late)


def test_two_moves_between_two_samples_are_two() -> None:
    samples = [Sample(0.0, {}, {}), Sample(1.0, {}, {}, moves=2), Sample(2.0, {}, {}, moves=2)]
    assert move_times_s(samples) == [1.0, 1.0]


def test_figures_of_a_run() -> None:
    found = figures.figures(LAYOUT, _observed(), RAMP_S)
    assert found["throughput_bps"] == pytest.approx(1000 * 600_000 * 8 / LOAD_S)
    assert found["share_of_limit"] == pytest.approx(found["throughput_bps"] / LAYOUT.limit_bps)
    assert found["moves"] == 2
    assert found["spread_cv"] == pytest.approx(0, abs=0.001)
    assert found["qos_ratio"] == 1.0
    assert found["loss_ratio"] == pytest.approx(0.01)
    assert found["cpu_s"] == 30.0
    never = float("inf")
    colliding = figures.figures(LAYOUT, _observed(moves=(never, never), qos_met=400), RAMP_S)
    assert colliding["spread_cv"] == pytest.approx(1.0)
    assert colliding["qos_ratio"] == pytest.approx(0.4)


def test_what_was_not_measured_is_absent() -> None:
    nothing = Observed("manual", _observed().samples, [], LOAD_S, {"ovs-vswitchd": 1.0}, 0, 0)
    assert "qos_ratio" not in figures.figures(LAYOUT, nothing, RAMP_S)
    alone = {"load-based": figures.figures(LAYOUT, _observed(), RAMP_S)}
    assert "cpu_ratio" not in figures.with_cpu_ratio(alone, "manual")["load-based"]


def test_an_unfinished_download_counts_its_bytes_but_not_as_a_broken_promise() -> None:
    observed = _observed()
    observed.downloads[-1].update(complete=False, received_bytes=1000)
    assert figures.qos_ratio(observed.downloads) == 1.0
    found = figures.figures(LAYOUT, observed, RAMP_S)
    assert found["throughput_bps"] == pytest.approx((999 * 600_000 + 1000) * 8 / LOAD_S)


def test_cpu_is_compared_per_bit() -> None:
    runs = {
        "manual": figures.figures(LAYOUT, _observed("manual", cpu_s=30.0), RAMP_S),
        "load-based": figures.figures(
            LAYOUT, _observed(cpu_s=30.0, received_bytes=300_000), RAMP_S
        ),
    }
    compared = figures.with_cpu_ratio(runs, "manual")
    assert compared["manual"]["cpu_ratio"] == 1.0
    assert compared["load-based"]["cpu_ratio"] == pytest.approx(2.0)


def test_medians_take_each_figure_where_it_was_measured() -> None:
    assert figures.medians([{"a": 1.0, "b": 5.0}, {"a": 3.0}, {"a": 2.0}]) == {"a": 2.0, "b": 5.0}


def _runs(**changed: Observed) -> dict[str, figures.Figures]:
    never = float("inf")
    observed = {
        "manual": _observed("manual"),
        "originating-port": _observed(
            "originating-port", moves=(never, never), qos_met=400, received_bytes=450_000
        ),
        "load-based": _observed(),
        **{name.replace("_", "-"): one for name, one in changed.items()},
    }
    return {name: figures.figures(LAYOUT, one, RAMP_S) for name, one in observed.items()}


def test_the_published_outcome_meets_every_expectation() -> None:
    found = figures.phases_of(LAYOUT, _observed(), RAMP_S)
    checked = expectations.check(_runs(), found, least_downloads=1000)
    assert [one for one in checked if not one.met] == []
    assert len(checked) == 7


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        (_observed(moves=(25.0, float("inf"))), {"four phases", "exactly 2", "uplinks within"}),
        (_observed(received_bytes=580_000), {"load-based: at least 0.98"}),
        (_observed(qos_met=998), {"load-based: quality"}),
    ],
)
def test_each_miss_is_named(changed: Observed, missed: set[str]) -> None:
    found = figures.phases_of(LAYOUT, changed, RAMP_S)
    checked = expectations.check(_runs(load_based=changed), found, least_downloads=0)
    conditions = [one.condition for one in checked if not one.met]
    assert len(conditions) == len(missed)
    assert all(any(c.startswith(start) for c in conditions) for start in missed)
    assert "FAIL" in verdicts(checked)


def test_the_report_has_the_contract_s_shape(tmp_path: Path) -> None:
    runs = figures.with_cpu_ratio(_runs(), "manual")
    found = figures.phases_of(LAYOUT, _observed(), RAMP_S)
    checked = expectations.check(runs, found, least_downloads=0)
    made = report.build(
        LAYOUT,
        report.environment(ACCELERATED, Direction.SEND),
        {name: [one] for name, one in runs.items()},
        found,
        checked,
    )
    path = report.write(made, [_observed()], tmp_path / LAYOUT.name)
    read = json.loads(path.read_text())
    assert path.name == "report.json"
    assert read["layout"] == "vmware_lbt"
    assert read["limit_bps"] == 200_000_000
    assert {"published", "environment", "contenders", "phases"} <= set(read)
    for name in ("manual", "originating-port", "load-based"):
        one = read["contenders"][name]
        assert {
            *("throughput_bps", "share_of_limit", "spread_cv", "loss_ratio"),
            *("moves", "qos_ratio", "cpu_ratio", "runs"),
        } <= set(one)
        assert "failover_ms" not in one, "not measured here"
        assert len(one["runs"]) == 1
    assert read["contenders"]["load-based"]["moves"] == 2
    for phase in read["phases"]:
        assert set(phase) == {"name", "start_s", "end_s", "uplink_utilization"}
        assert set(phase["uplink_utilization"]) == {"uplink1", "uplink2"}
    lines = (path.parent / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["contender"] for line in lines] == ["load-based"]
    assert "phase 4" in phase_table(found, LAYOUT.published)
    assert "load-based" in contender_table(runs, LAYOUT.limit_bps)


def test_metrics_are_read_from_the_text_format() -> None:
    page = (
        "# HELP ovslbt_port_binding which uplink\n# TYPE ovslbt_port_binding gauge\n"
        'ovslbt_port_binding{bridge="b",port="p",uplink="u"} 1.0\n'
        'ovslbt_moves_applied_total{bridge="b",reason="threshold"} 2.0\n'
        "ovslbt_config_errors 0\n"
    )
    binding, moves, errors = parse_metrics(page)
    assert binding.labels == {"bridge": "b", "port": "p", "uplink": "u"}
    assert (moves.name, moves.value) == ("ovslbt_moves_applied_total", 2.0)
    assert (errors.labels, errors.value) == ({}, 0.0)
