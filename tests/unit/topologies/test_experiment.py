"""Experiments of a few lines: the layout, what is refused, and what a run shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.unit.topologies import bench_runs
from topologies import experiment, layouts
from topologies.compare import running
from topologies.compare.figures import Result
from topologies.compare.scenario import Scenario
from topologies.experiment import Stream, compare, one_server
from topologies.graph.layout import Role
from topologies.loads.load import Stage
from topologies.loads.pace import Pace

LAYOUT = one_server(uplinks_mbps=[100, 50, 50], vms=4)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `compare` asked for. Each contender then uses 0.5 of `uplink1`, and 0.2 of `uplink2`."""
    found: dict[str, Any] = {}

    def run(scenario: Scenario, names: Sequence[str], pace: Pace, repeat: int) -> Result:
        found.update(scenario=scenario, pace=pace, repeat=repeat)
        shares = {"uplink1": 0.5, "uplink2": 0.2}
        runs = [bench_runs.observed(scenario.layout, name, shares) for name in names]
        return bench_runs.result(scenario, runs)

    monkeypatch.setattr(running, "compare", run)
    return found


def test_port_numbers_place_vms_on_the_uplinks_in_turn() -> None:
    ofports = [LAYOUT.attributes(f"{vm}-vnic1")["ofport"] for vm in LAYOUT.nodes(Role.VM)]
    assert [ofport % 3 for ofport in ofports] == [0, 1, 2, 0]
    assert not {*ofports} & {LAYOUT.attributes(up)["ofport"] for up in LAYOUT.nodes(Role.UPLINK)}
    assert LAYOUT.limit_bps == 200_000_000


def test_a_run_has_what_uplinks_carried_and_what_was_received(asked: dict[str, Any]) -> None:
    load = [Stream("vm1", mbps=45)]
    runs = compare(LAYOUT, load, ["load-based", "balance-slb"], seconds=20, window_s=7)
    assert [run.contender for run in runs] == ["load-based", "balance-slb"]
    for run in runs:
        assert len(run.times_s) == 40
        assert (run.times_s[0], run.times_s[-1]) == (0.25, 19.75)
        assert run.uplinks_mbps["uplink1"] == pytest.approx([50.0] * 40)
        assert run.uplinks_mbps["uplink2"] == pytest.approx([10.0] * 40)
        assert run.uplinks_mbps["uplink3"] == [0.0] * 40
        assert run.figures["loss_ratio"] == 0.0
        assert str(run) == f"{run.contender}: 100.0 Mbit/s received, 0 moves"
    assert (asked["pace"].window_s, asked["repeat"]) == (7, 1)


def test_a_failed_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Result(Scenario("", "", LAYOUT, Mock(), ()), {}, {}, failures=["slb: no switch"])
    monkeypatch.setattr(running, "compare", lambda *_args, **_more: failed)
    with pytest.raises(RuntimeError, match="slb: no switch"):
        compare(LAYOUT, [Stream("vm1")], ["load-based"])


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (Stream("vm5"), r"sender: vm5 -> vm1 \| vm2"),
        (Stream("client1"), "sender: client1 -> vm1"),
        (Stream("vm1", receiver="client2"), r"receiver: client2 -> client1 \| vm1"),
        (Stream("vm1", begin_s=20), "stream from vm1: 20 to 20 s -> within 0 to 20 s"),
        (Stream("vm1", end_s=21), "stream from vm1: 0 to 21 s -> within 0 to 20 s"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(stream: Stream, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        compare(LAYOUT, [stream], ["load-based"], seconds=20)


def test_a_contender_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="contender: fastest -> manual"):
        compare(LAYOUT, [Stream("vm1")], ["fastest"])
    with pytest.raises(ValueError, match="balance-tcp on two_switches: a LAG must end"):
        compare(layouts.two_switches(), [Stream("vm1")], ["balance-tcp"])


def test_vms_start_on_the_uplinks_of_their_port_numbers(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    compare(LAYOUT, [Stream("vm1", mbps=45, begin_s=5), Stream("vm2", end_s=9)], ["balance-slb"])
    placed: list[tuple[str, str]] = []
    stage = Stage(LAYOUT, "", {}, {}, Mock(), tmp_path, place=lambda *one: placed.append(one))
    load = asked["scenario"].load(stage)
    uplinks = ("uplink1", "uplink2", "uplink3", "uplink1")
    assert placed == list(zip(LAYOUT.nodes(Role.VM), uplinks, strict=True))
    assert (load.load_s, load.measured_s) == (30.0, (0.0, 30.0))


def test_receivers_may_be_vms() -> None:
    flow = experiment._flow(LAYOUT, Stream("vm1", receiver="vm2", mbps=1.5, begin_s=2), 10)
    assert (flow.address, flow.duration_s, flow.rate_bps) == ("10.1.0.2", 8, 1_500_000)
