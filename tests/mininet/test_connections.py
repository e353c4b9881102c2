"""A quick form of the bench of many connections, whose counts must be right even so."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import pytest

from tests.mininet.bench import Bench, interrupt

pytestmark = pytest.mark.mininet

SIZE, RATE = 1000, 400
CONTENDERS = ("balance-slb", "dynamic+multipath", "dynamic")
# dp_hash takes a flow for each of 256 values, for a probe too, and the bench has flows of its own.
DP_HASH_FLOWS_MAX = 400


def test_connections_cost_flows_where_they_are_hashed(tmp_path: Path) -> None:
    words = ("--sizes", str(SIZE), "--rates", str(RATE), "--contenders", *CONTENDERS)
    with contextlib.closing(Bench(tmp_path, "connections", *words)) as bench:
        assert bench.process.wait(timeout=300) == 0, bench.said()
        bench.require_nothing_left()
    report = json.loads((tmp_path / "out" / "connections" / "report.json").read_text())
    assert [row["contender"] for row in report["rows"]] == list(CONTENDERS)
    assert all(row["origin"]["command"].startswith("ovs-lbt bench conn") for row in report["rows"])
    (bond,), (ours,), (by_datapath,) = (row["sizes"] for row in report["rows"])
    # A flow of a bond is for all connections of a VM; multipath has one for each.
    assert bond["flows"] < SIZE / 2
    assert SIZE * 0.95 < ours["flows"] < SIZE * 1.5
    assert by_datapath["flows"] <= DP_HASH_FLOWS_MAX
    for one in (bond, ours, by_datapath):
        assert one["connections"] == SIZE
        assert one["switch_rss_bytes"] > 1e6
    assert [cut["service"] for cut in bond["failovers"]] == ["none"]
    for one in (ours, by_datapath):
        assert [cut["service"] for cut in one["failovers"]] == ["alive", "dead"]
    for cut in (*bond["failovers"], *ours["failovers"], *by_datapath["failovers"]):
        assert cut["uplink"] in ("lbt-up1", "lbt-up2")
        assert cut["probe_lost"] >= 0
    for row in report["rows"]:
        (rate,) = row["rates"]
        assert rate["opened"] == RATE / 2 and 0 < rate["reached_per_s"] <= RATE * 1.1
        assert 0 <= rate["lost_ratio"] < 1
    upcalls = [row["rates"][0]["upcalls"] for row in report["rows"]]
    assert upcalls[1] >= RATE / 2 * 0.95 > upcalls[0], "each new connection is one of ours only"
    assert upcalls[1] > upcalls[2], "with dp_hash, a connection shares a flow with others"
    assert "|1,000|`dynamic`|" in (tmp_path / "out/connections/report.md").read_text()


def test_interrupted_bench_leaves_nothing(tmp_path: Path) -> None:
    words = ("--sizes", str(SIZE), "--rates", str(RATE), "--contenders", "balance-tcp")
    with contextlib.closing(Bench(tmp_path, "connections", *words)) as bench:
        interrupt(bench, lambda: "1000 connections" in bench.said(), signal.SIGTERM)
