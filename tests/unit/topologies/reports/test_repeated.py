"""A report beside the published one: what differs by more than the ranges, and what chance gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.topologies import bench_reports as bench
from topologies.layouts import LAYOUTS
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
