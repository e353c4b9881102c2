"""A report beside the published one: what differs by more than the ranges, and what chance gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.topologies import bench_reports as bench
from topologies.layouts import LAYOUTS
from topologies.reports.comparison import PUBLISHED, published, repeated


def _report(*shares: float, contender: str = "dynamic", name: str = "here") -> dict[str, Any]:
    runs = [bench.figures(share) for share in sorted(shares)]
    return bench.report(bench.scenario({contender: bench.contender(*runs)}, name=name))


def _different(here: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The labels of the figures that differ."""
    return [one.split(": ")[1] for one in repeated(here, before) if "; published " in one]


def _missing(here: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [one for one in repeated(here, before) if one.startswith("Not among")]


def test_disjoint_ranges_differ() -> None:
    before = _report(0.5, 0.52, 0.54)
    assert _different(_report(0.6, 0.62, 0.64), before) == ["throughput", "share of the limit"]
    assert _different(_report(0.53, 0.62, 0.64), before) == []
    assert _different(_report(0.55), before) == ["throughput", "share of the limit"]
    assert _different(_report(0.53), before) == []


def test_what_was_not_published_is_named() -> None:
    before = _report(0.5, 0.6)
    assert _missing(_report(0.5, name="there"), before) == ["Not among the published runs: there."]
    assert _missing(_report(0.5, contender="set"), before) == [
        "Not among the published runs: here, set."
    ]
    other = copy.deepcopy(before)
    other["scenarios"][0]["limit_bps"] *= 2
    assert _missing(_report(0.5), other) == ["Not among the published runs: here."]


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ({"pace": {"name": "quick", "window_s": 1}}, "pace accelerated, published quick"),
        ({"pace": {"name": "accelerated", "window_s": 1}}, "window_s 3, published 1"),
        ({"direction": "receive"}, "direction send, published receive"),
    ],
)
def test_other_settings_are_not_compared(change: dict[str, Any], obstacle: str) -> None:
    here, before = _report(0.5), _report(0.5, 0.6)
    same: dict[str, Any] = {"pace": {"name": "accelerated", "window_s": 3}, "direction": "send"}
    here["environment"] = {**same, "pace": {**same["pace"], "flows_s": [1.0]}}  # a new setting
    before["environment"] = same
    assert "Not comparable" not in "".join(repeated(here, before))
    before["environment"] = same | change
    assert [*repeated(here, before)] == [f"Not comparable with the published runs: {obstacle}."]


def test_published_reports_differ_from_themselves_in_nothing() -> None:
    measured = [name for name in LAYOUTS if (PUBLISHED / f"{name}.json").exists()]
    assert len(measured) >= 9
    compared = 0
    for name in measured:
        report = published({"layout": name})
        assert report is not None
        first, *others = repeated(report, report)
        assert first.startswith("0 of ")
        assert all("published from one run" in one for one in others)
        compared += int(first.split()[2])
    assert compared > 500
