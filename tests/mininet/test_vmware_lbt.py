"""A quick form of the bench of `vmware_lbt`, on a real Open vSwitch."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.mininet.bench import benching, interrupt, report_of
from tests.switch.judging import at_least, at_most, judges_time

pytestmark = pytest.mark.mininet

TWO = ("--policy", "originating-port", "load-based", "--against", "none", "--scenario", "web users")


@judges_time
def test_a_quick_bench_reports_by_the_contract_and_leaves_nothing(tmp_path: Path) -> None:
    report = report_of(tmp_path, "vmware_lbt", *TWO)
    assert report["limit_bps"] == 200_000_000
    assert report["published"]["uplink_share"] == 0.65
    assert list(report["contenders"]) == ["originating-port", "load-based"]
    for one in report["contenders"].values():
        assert one["throughput_bps"] < report["limit_bps"]
        assert 0 <= one["qos_ratio"] <= 1
        assert one["downloads"] > 0
        assert 0 < one["steady_share_of_limit"] < 1
    static, ours = report["contenders"].values()
    assert static["moves"] == 0
    assert static["spread_cv"] > 0.9, "not everything was on one uplink"
    at_least("moves", ours["moves"], 2, 1)
    at_most("moves", ours["moves"], 2, 6)
    at_most("spread of the uplinks (CV)", ours["spread_cv"], 0.1, 0.7)
    gain = ours["throughput_bps"] / static["throughput_bps"]
    at_least("throughput over originating-port's", gain, 1.0, 0.5)
    assert [phase["name"] for phase in report["phases"]] == [f"phase {n}" for n in (1, 2, 3, 4)]
    directory = tmp_path / "out" / "vmware_lbt"
    assert (directory / "uplinks.png").stat().st_size > 10_000
    assert (directory / "uplinks.svg").read_text().rstrip().endswith("</svg>")
    assert (directory / "samples.jsonl").read_text().count("\n") == 2


def test_a_bench_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    """By Ctrl-C: test_benches."""
    with benching(tmp_path, "vmware_lbt", *TWO) as bench:
        # It shows progress once it is under load, when everything is up.
        interrupt(bench, lambda: "1/2 originating-port" in bench.said(), signal.SIGTERM)
