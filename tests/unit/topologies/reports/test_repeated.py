"""A report beside the published one: what differs by more than the ranges, and what chance gives."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.topologies import bench_reports as bench
from topologies.layouts import LAYOUTS
from topologies.reports.benchmarks import of_bench
from topologies.reports.comparison import Pair, Side
from topologies.reports.known_figures import figure
from topologies.reports.repeated import PUBLISHED, published, repeated, sentences


def _report(*shares: float, contender: str = "dynamic", name: str = "here") -> dict[str, Any]:
    runs = [bench.figures(share) for share in sorted(shares)]
    return bench.report(bench.scenario({contender: bench.contender(*runs)}, name=name))


def _different(here: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [one.figure.name for one in repeated(here, before).different]


def test_disjoint_ranges_differ() -> None:
    before = _report(0.5, 0.52, 0.54)
    assert _different(_report(0.6, 0.62, 0.64), before) == ["throughput_bps", "share_of_limit"]
    assert _different(_report(0.53, 0.62, 0.64), before) == []
    assert _different(_report(0.55), before) == ["throughput_bps", "share_of_limit"]
    assert _different(_report(0.53), before) == []


def test_equal_texts_do_not_differ() -> None:
    assert _different(_report(0.500001, 0.500002), _report(0.5, 0.5)) == []


def test_single_published_runs_are_counted_instead() -> None:
    found = repeated(_report(0.6, 0.7), _report(0.5))
    assert found.pairs == []
    assert found.single > 3
    assert f"{found.single} figures are not compared" in sentences(found)[-1]


def test_ratio_to_manual_is_compared_by_the_time_per_bit_of_the_runs() -> None:
    names = {one.figure.name for one in repeated(_report(0.5), _report(0.5, 0.6)).pairs}
    assert "cpu_s_per_gbit" in names
    assert "cpu_ratio" not in names


def test_what_was_not_published_is_named() -> None:
    before = _report(0.5, 0.6)
    assert repeated(_report(0.5, name="there"), before).missing == ["there"]
    assert repeated(_report(0.5, contender="set"), before).missing == ["here, set"]
    other = copy.deepcopy(before)
    other["scenarios"][0]["limit_bps"] *= 2
    assert repeated(_report(0.5), other).missing == ["here"]


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ({"pace": {"name": "quick", "window_s": 1}}, "pace accelerated, published quick"),
        ({"pace": {"name": "accelerated", "window_s": 1}}, "window 3 s, published 1 s"),
        ({"direction": "receive"}, "direction send, published receive"),
    ],
)
def test_other_settings_are_not_compared(change: dict[str, Any], obstacle: str) -> None:
    here, before = _report(0.5), _report(0.5, 0.6)
    same: dict[str, Any] = {"pace": {"name": "accelerated", "window_s": 3}, "direction": "send"}
    here["environment"] = {**same, "pace": {**same["pace"], "flows_s": [1.0]}}  # a new setting
    before["environment"] = same
    assert repeated(here, before).obstacle == ""
    before["environment"] = same | change
    found = repeated(here, before)
    assert (found.pairs, found.obstacle) == ((), obstacle)
    assert sentences(found) == [f"Not comparable with the published runs: {obstacle}."]


def test_other_machine_is_told() -> None:
    here, before = _report(0.5), _report(0.5, 0.6)
    here["environment"]["cpus"] = 64
    assert "The machine or its programs differ: cpus 64, published 2." in sentences(
        repeated(here, before)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("here", "before"), [(1, 5), pytest.param(3, 3, marks=pytest.mark.slow), (5, 5)]
)
def test_chance_is_that_of_runs_of_the_same_distribution(here: int, before: int) -> None:
    draw, of = random.Random(1), figure("failover_ms")

    def drawn(count: int) -> Side:
        values = [draw.lognormvariate(3, 1) for _ in range(count)]
        return Side("dynamic", values[0], min(values), max(values), count)

    pairs = [Pair("", of, drawn(here), drawn(before)) for _ in range(20_000)]
    share = sum(one.differs for one in pairs) / len(pairs)
    assert share == pytest.approx(pairs[0].by_chance, abs=0.01)


def test_report_of_a_bench_lists_what_differs() -> None:
    here, before = _report(0.6, 0.62, 0.64), _report(0.5, 0.52, 0.54)
    compared = of_bench(here, before).split("## Compared with the published runs")[1]
    assert f"- {sentences(repeated(here, before))[0]}\n" in compared
    assert (
        "- here: share of the limit: `dynamic` 62.0 % (60.0 to 64.0, n = 3);"
        " published `dynamic` 52.0 % (50.0 to 54.0, n = 3).\n" in compared
    )
    assert "published runs" not in of_bench(here)


def test_published_reports_differ_from_themselves_in_nothing() -> None:
    measured = [name for name in LAYOUTS if (PUBLISHED / f"{name}.json").exists()]
    assert len(measured) >= 9
    compared = 0
    for name in measured:
        report = published({"layout": name})
        assert report is not None
        found = repeated(report, report)
        assert (found.different, found.missing, found.obstacle, found.machines) == ([], [], "", "")
        compared += len(found.pairs)
    assert compared > 500


def test_published_report_has_the_same_settings_and_is_readable(tmp_path: Path) -> None:
    usual = {"layout": "vmware_lbt"}
    faithful = {**usual, "environment": {"pace": {"name": "faithful"}}}
    assert published(usual, tmp_path) is None
    (tmp_path / "vmware_lbt.json").write_text("{")
    assert published(usual, tmp_path) is None
    (tmp_path / "vmware_lbt.json").write_text(json.dumps(usual))
    assert published(usual, tmp_path) == usual
    assert published(faithful, tmp_path) is None
    (tmp_path / "vmware_lbt_faithful.json").write_text(json.dumps(faithful))
    assert published(faithful, tmp_path) == faithful
