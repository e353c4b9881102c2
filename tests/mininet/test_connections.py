"""A quick form of the bench of many connections, whose counts must be right even so."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.mininet.bench import benching, interrupt, report_of

pytestmark = pytest.mark.mininet

SIZE, RATE = 1000, 400
CONTENDERS = ("balance-slb", "dynamic+multipath", "dynamic")
# dp_hash takes a flow for each of 256 values, for a probe too, and the bench has flows of its own.
DP_HASH_FLOWS_MAX = 400


def test_connections_cost_flows_where_they_are_hashed(tmp_path: Path) -> None:
    words = ("--sizes", str(SIZE), "--rates", str(RATE), "--contenders", *CONTENDERS)
    report = report_of(tmp_path, "connections", *words)
    cached, opened = (
        [one["contenders"][name] for name in CONTENDERS] for one in report["scenarios"]
    )
    bond, ours, by_datapath = cached
    # A flow of a bond is for all connections of a VM; multipath has one for each.
    assert bond["cached_flows"] < SIZE / 2
    assert SIZE * 0.95 < ours["cached_flows"] < SIZE * 1.5
    assert by_datapath["cached_flows"] <= DP_HASH_FLOWS_MAX
    for one in cached:
        assert one["switch_rss_bytes"] > 1e6
        assert one["failover_lost"] >= 0
        assert ("service_down_lost" in one) == (one is not bond)
    for one in opened:
        assert 0 < one["opened_per_s"] <= RATE * 1.1
        assert 0 <= one["new_lost_ratio"] < 1
    upcalls = [one["upcalls_per_s"] for one in opened]
    assert upcalls[1] >= RATE * 0.95 > upcalls[0], "each new connection is one of ours only"
    assert upcalls[1] > upcalls[2], "with dp_hash, a connection shares a flow with others"


def test_interrupted_bench_leaves_nothing(tmp_path: Path) -> None:
    words = ("connections", "--sizes", str(SIZE), "--rates", "--contenders", "balance-tcp")
    with benching(tmp_path, *words) as bench:
        interrupt(
            bench, lambda: any(" datagrams " in one for one in bench.programs()), signal.SIGTERM
        )
