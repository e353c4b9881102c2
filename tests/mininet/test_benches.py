"""A quick form of every layout's bench but `vmware_lbt`'s, which has a file of its own."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests.mininet.bench import benching, interrupt, report_of
from tests.switch.judging import at_least, at_most, judges_time
from topologies.benches import PLANS
from topologies.compare.plan import Options
from topologies.graph.layout import Role
from topologies.loads.flow_load import Completion, FlowLoad
from topologies.loads.load import Stage
from topologies.loads.pace import QUICK, in_real_time
from topologies.network.private_ovs import PrivateOvs
from topologies.seeds.jumps import generate
from topologies.seeds.perfect import loss_ratio
from topologies.seeds.plan import QUICK_WATCHED_S

pytestmark = pytest.mark.mininet

ANYWHERE_MS = 30_000
# A sample and some: what has failed has not been seen to send for that long before.
EARLIER_S = 0.4
# A busy machine lets a link fail later than it should.
FAILS_WITHIN_S = 2.0


def _runs(directory: Path, layout: str) -> list[dict[str, Any]]:
    """The runs of a bench, with their samples."""
    lines = (directory / "out" / layout / "samples.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _silent_from_s(
    samples: list[dict[str, Any]], uplink: str, other: str, for_s: float
) -> float | None:
    """When an uplink begins to send nothing for so long while another one sends; None: never.

    By the clock of the load. A machine that is busy sends nothing at all for a moment, or lets a link
    fail late.
    """
    begun_s = None
    for before, after in pairwise(samples):
        sent = {u: after["sent_bytes"][u] - before["sent_bytes"][u] for u in (uplink, other)}
        if sent[uplink]:
            begun_s = None
        elif sent[other]:
            begun_s = before["at_s"] if begun_s is None else begun_s
            if after["at_s"] - begun_s > for_s:
                return float(begun_s)
    return None


def test_set_vs_lbfo_streams_over_two_teams(tmp_path: Path) -> None:
    words = ("--policy", "dynamic/lacp", "--against", "manual")
    report = report_of(tmp_path, "set_vs_lbfo", *words)
    assert list(report["contenders"]) == ["manual", "dynamic/lacp"]
    for one in report["contenders"].values():
        # The switch between the hosts sends by one uplink.
        assert 0 < one["share_of_link"] <= 1
        assert one["stream_mean_bps"] == pytest.approx(one["throughput_bps"] / 8, rel=1e-3)
        assert one["stream_cv"] >= 0
    manual, ours = report["contenders"].values()
    assert manual["cpu_ratio"] == 1.0
    assert manual["spread_cv"] > 0.9, "one VM is on one uplink"
    assert ours["spread_cv"] < manual["spread_cv"], "eight streams are on both"
    assert "phases" not in report


def test_quad_gbe_team_adds_streams_one_by_one(tmp_path: Path) -> None:
    words = ("--policy", "address-hash", "--against", "none", "--scenario", "from team")
    report = report_of(tmp_path, "quad_gbe_team", *words)
    (scenario,) = report["scenarios"]
    assert scenario["name"] == "from team to team"
    assert len(scenario["uplinks"]) == 8
    ours = report["contenders"]["address-hash"]
    assert 0 < ours["one_stream_share"] <= 1
    assert 0 < ours["ten_streams_share"] <= 1


def test_live_migration_moves_every_vm_to_the_other_host(tmp_path: Path) -> None:
    words = ("--policy", "dynamic/lacp", "--against", "none", "--scenario", "8 at once, SMB")
    report = report_of(tmp_path, "live_migration", *words)
    ours = report["contenders"]["dynamic/lacp"]
    assert ours["probe_duplicated"] == 0
    assert 0 < ours["blackout_ms"] <= ours["worst_blackout_ms"]
    assert 0 < ours["migration_s"] <= ours["total_s"]
    (run,) = _runs(tmp_path, "live_migration")
    migrated = run["outcome"]["details"]
    assert sorted(one["vm"] for one in migrated) == [f"vm{number}" for number in range(1, 9)]


def test_converged_gains_by_jumbo_frames(tmp_path: Path) -> None:
    words = ("--policy", "load-based", "--against", "none", "--scenario", "one way")
    report = report_of(tmp_path, "converged", *words)
    standard, jumbo = (one["contenders"]["load-based"] for one in report["scenarios"])
    assert report["contenders"]["load-based"] == standard
    assert "jumbo_ratio" not in standard
    expected = jumbo["throughput_bps"] / standard["throughput_bps"]
    assert jumbo["jumbo_ratio"] == pytest.approx(expected, rel=1e-3)
    assert jumbo["jumbo_ratio"] > 1, "larger frames cost less for each byte"


def test_converged_runs_with_a_member_in_another_vlan(tmp_path: Path) -> None:
    """Nobody reaches anybody by that member, which must be a result and not a failure."""
    words = ("--policy", "set", "--against", "none", "--scenario", "member's VLAN")
    with benching(tmp_path, "converged", *words) as bench:
        assert bench.process.wait(timeout=300) == 0, bench.said()
        bench.require_nothing_left()
    report = json.loads((tmp_path / "out" / "converged" / "report.json").read_text())
    assert report["expectations"] == []
    assert report["contenders"]["set"]["throughput_bps"] >= 0


@judges_time
@pytest.mark.parametrize(
    ("layout", "scenario", "of"),
    [
        ("two_switches", "", ""),
        ("spine_leaf", "a leaf switch fails", "server1-"),
        ("live_migration", "an uplink fails", "server1-"),
    ],
)
def test_the_first_of_two_uplinks_fails_and_returns(
    tmp_path: Path, layout: str, scenario: str, of: str
) -> None:
    words = ("--policy", "load-based", "--against", "none")
    report = report_of(tmp_path, layout, *words, *(("--scenario", scenario) if scenario else ()))
    ours = report["contenders"]["load-based"]
    assert ours["probe_duplicated"] == 0
    for name in ("failover_ms", "failback_ms"):
        assert ours[name] > 0
        at_most(name, ours[name], 3000, ANYWHERE_MS)
    assert layout != "two_switches" or 0 <= ours["reordered_ratio"] < 1
    (run,) = _runs(tmp_path, layout)
    fails_s, returns_s, _ = QUICK.outage_s
    from_s = _silent_from_s(
        run["samples"], f"{of}uplink1", f"{of}uplink2", (returns_s - fails_s) / 2
    )
    assert from_s is not None and from_s < returns_s, "it did not fail"
    assert from_s > fails_s - EARLIER_S, "it failed before its time"


def test_mixed_speed_moves_by_load(tmp_path: Path) -> None:
    words = ("--policy", "load-based", "--against", "none", "--scenario", "equal")
    report = report_of(tmp_path, "mixed_speed", *words)
    (scenario,) = report["scenarios"]
    assert scenario["uplinks"] == {"uplink1": 100_000_000, "uplink2": 10_000_000}
    ours = report["contenders"]["load-based"]
    assert ours["moves"] > 0
    assert 0 <= ours["uplink_difference"] <= 1
    (run,) = _runs(tmp_path, "mixed_speed")
    used = [sample["sent_bytes"] for sample in run["samples"]]
    fast, slow = (used[-1][uplink] - used[len(used) // 2][uplink] for uplink in used[0])
    assert fast > 2 * slow > 0, "half of the VMs stayed on the slow uplink"


def test_overlay_balances_two_endpoints(tmp_path: Path) -> None:
    words = ("--policy", "load-based", "--against", "none", "--scenario")
    report = report_of(tmp_path, "overlay", *words, "both ways, two endpoints")
    first, vxlan = report["scenarios"]
    assert first["uplinks"] == {f"server{s}-uplink{u}": 50e6 for s in (1, 2) for u in (1, 2)}
    for one in (first["contenders"]["load-based"], vxlan["contenders"]["load-based"]):
        assert one["sent_bps"] > 0 and one["received_bps"] > 0
        both_bps = one["sent_bps"] + one["received_bps"]
        assert one["throughput_bps"] == pytest.approx(both_bps / 2, rel=1e-3)
        # A tunnel that ended before it reached an uplink would leave both at 0, and 1 is one idle.
        assert one["spread_cv"] < 0.9 and one["return_cv"] < 0.9
    for run in _runs(tmp_path, "overlay"):
        sent = run["samples"][-1]["sent_bytes"]
        first_host = sum(count for up, count in sent.items() if up.startswith("server1"))
        assert first_host > run["outcome"]["received_bytes"] / 4, "it left by no uplink"


def test_streams_interrupted_between_two_servers_leave_nothing(tmp_path: Path) -> None:
    words = ("set_vs_lbfo", "--policy", "load-based", "--against", "none")
    wanted = ("iperf3 --server", "iperf3 --client", "ovs-vswitchd ")
    with benching(tmp_path, *words) as bench:

        def streaming() -> bool:
            programs = bench.programs()
            return all(any(one.startswith(name) for one in programs) for name in wanted)

        interrupt(bench, streaming, signal.SIGINT)


@judges_time
def test_shift_settles_a_load_that_jumps(tmp_path: Path) -> None:
    words = ("--policy", "adaptive", "--against", "balance-slb/1s", "--scenario", "load jump")
    report = report_of(tmp_path, "shift", *words)
    assert report["environment"]["pace"]["window_s"] == 30
    assert list(report["contenders"]) == ["adaptive", "balance-slb/1s"]
    for line in _runs(tmp_path, "shift"):
        one, details = report["contenders"][line["contender"]], line["outcome"]["details"]
        from_s, to_s = line["measured_s"]
        assert 0 < one["settle_s"] <= to_s - from_s
        assert one["moves"] > 0
        # More than if nobody had moved anything.
        at_most(f"{line['contender']}: lost", one["loss_ratio"], 0.15, 0.5)
        assert 0 <= one["reordered_ratio"] < 1 and one["duplicated"] == 0
        # What the machine had no time to send is not offered, and not lost.
        at_least("offered, bit/s", one["offered_bps"], 0.9 * 132e6, 0.5 * 132e6)
        assert one["offered_bps"] < 1.1 * 132e6
        assert len(details["hot"]) == 4, "not the VMs of one uplink"
        before_s = from_s - 0.5
        shares = [
            (b["sent_bytes"][up] - a["sent_bytes"][up]) * 8 / (b["at_s"] - a["at_s"]) / 100e6
            for a, b in pairwise(line["samples"])
            for up in ("uplink1", "uplink2")
            if b["at_s"] < before_s
        ]
        at_least("share of the uplinks at first", sum(shares) / len(shares), 0.35, 0.2)
        at_most("share of the uplinks at first", sum(shares) / len(shares), 0.45, 0.6)
    assert (tmp_path / "out" / "shift" / "shift.png").stat().st_size > 10_000


@judges_time
def test_shift_runs_a_jump_by_number(tmp_path: Path) -> None:
    with benching(tmp_path, "shift", "--seed", "3", "--against", "none") as bench:
        status = bench.process.wait(timeout=400)
        said = bench.said()
        assert status in (0, 1), said[-2000:]
        bench.require_nothing_left()
        directory = bench.out / "shift_seeds"
        report = json.loads((directory / "report.json").read_text())
        assert "shift_seeds" in (directory / "report.md").read_text()
    jumped, still = report["scenarios"]
    made = generate(3)
    assert [*jumped["uplinks"].values()] == [*made.capacities_bps]
    ours, control = (one["contenders"]["adaptive"] for one in (jumped, still))
    # The report has six digits.
    assert ours["jump_ratio"] == pytest.approx(max(made.home_utilizations()), rel=5e-6), (
        "not everybody was at home"
    )
    assert ours["moves"] > 0 and control["moves"] == 0
    at_most("not sent of what was to be sent", ours["unsent_ratio"], 0.1, 0.5)
    # As if nobody had moved.
    lost_ratio = loss_ratio(made, [(0.0, made.homes)], QUICK_WATCHED_S)
    assert ours["excess_loss_ratio"] == pytest.approx(
        ours["loss_ratio"] - ours["perfect_loss_ratio"], abs=1e-6
    )
    at_most("lost", ours["loss_ratio"], lost_ratio, 1.0)
    # Both of one speed: the control uses them alike, as much as the mean of the jump.
    even_ratio = made.offered_bps / sum(made.capacities_bps)
    at_most("from even use", abs(control["highest_ratio"] - even_ratio), 0.1, 0.3)


def test_shift_places_by_capacity_when_an_uplink_fails(tmp_path: Path) -> None:
    words = ("--policy", "adaptive", "--against", "none", "--scenario", "an uplink fails")
    report = report_of(tmp_path, "shift", *words)
    (scenario,) = report["scenarios"]
    assert scenario["uplinks"] == {"uplink1": 100e6, "uplink2": 50e6, "uplink3": 50e6}
    ours = report["contenders"]["adaptive"]
    assert 0 <= ours["lossless_s"] <= ours["restored_s"]
    # On a busy machine, what is sent may not come back to what it was.
    assert 0 <= ours["placed_s"] < QUICK.failure_s[1], "never placed"
    assert ours["placed_s"] <= ours["restored_s"]
    assert ours["duplicated"] == 0
    (run,) = _runs(tmp_path, "shift")
    from_s, to_s = run["measured_s"]
    sent = [(one["at_s"], one["sent_bytes"]["uplink3"]) for one in run["samples"]]
    before = [count for at_s, count in sent if at_s <= from_s - 0.3]
    assert before[-1] > before[0], "it carried nothing before"
    after = [count for at_s, count in sent if from_s + FAILS_WITHIN_S <= at_s <= to_s]
    assert len(after) > 1 and after[-1] == after[0], "it did not fail"
    assert (tmp_path / "out" / "shift" / "failure.png").stat().st_size > 10_000


def _planned_bytes(directory: Path) -> int:
    """The bytes of all flows of the first run."""
    scenario, *_ = PLANS["flows"].scenarios(Options(in_real_time(QUICK)))
    roles = (Role.VM, Role.CLIENT)
    pids = {name: 1 for role in roles for name in scenario.layout.nodes(role)}
    nothing_is_up = cast(PrivateOvs, None)
    load = scenario.load(Stage(scenario.layout, "", pids, {}, nothing_is_up, directory))
    assert isinstance(load, FlowLoad)
    return sum(flow.size_bytes for flow in load.flows)


@judges_time
def test_flows_takes_the_time_of_every_request(tmp_path: Path) -> None:
    words = ("--policy", "adaptive", "--against", "none", "--scenario", "web search, 70%")
    report = report_of(tmp_path, "flows", *words)
    assert report["environment"]["pace"]["window_s"] == 30
    (scenario,) = report["scenarios"]
    assert scenario["uplinks"] == {f"uplink{number}": 50e6 for number in (1, 2)}
    (run,), found = _runs(tmp_path, "flows"), report["contenders"]["adaptive"]
    flows, samples = [Completion(*one) for one in run["outcome"]["details"]], run["samples"]
    from_s, to_s = run["measured_s"]
    assert all(from_s <= flow.start_s < to_s for flow in flows)
    count = len(flows)
    assert found["flows_small"] + found["flows_middle"] + found["flows_large"] == count > 200
    assert found["offered_bps"] == pytest.approx(70e6, rel=0.02)
    for flow in flows:
        if flow.size_bytes > 300_000:
            assert flow.size_bytes * 8 / flow.duration_s < 50e6 * 1.1, "faster than an uplink"
    assert found["slowdown_p50"] <= found["slowdown_p95"] <= found["slowdown_p99"]

    # All that was planned is received, also before flows are measured, and the uplinks sent little else.
    received_bytes, planned_bytes = run["outcome"]["received_bytes"], _planned_bytes(tmp_path)
    assert received_bytes <= planned_bytes
    at_least("share of the planned bytes received", received_bytes / planned_bytes, 1.0, 0.5)
    first, last = (sum(samples[number]["sent_bytes"].values()) for number in (0, -1))
    assert received_bytes < last - first < 1.5 * received_bytes

    at_least("share of flows that ended", sum(flow.complete for flow in flows) / count, 0.9, 0.5)
    at_most("p99 of the lateness, ms", found["late_p99_ms"], 20, ANYWHERE_MS)
    pictures = (tmp_path / "out" / "flows").glob("*.png")
    assert [path.name for path in pictures] == ["web-search-70.png"]
