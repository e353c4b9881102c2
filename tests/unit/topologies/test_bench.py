"""The bench's command line: exit statuses, and answers that say what was expected."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.said import says
from tests.unit.topologies import bench_runs
from topologies import bench
from topologies.benches.plans import PLANS
from topologies.compare import run
from topologies.compare.contenders import Contender, by_name
from topologies.compare.plan import Options
from topologies.compare.run import Observed, Progress, Scenario
from topologies.compare.running import SAMPLES, Kept
from topologies.loads.pace import ACCELERATED, Pace
from topologies.reports import origin


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with everything that a bench needs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["vmware_lbt", "--direction", "sideways"],
        ["vmware_lbt", "--repeat", "0"],
        ["vmware_lbt", "--repeat", "often"],
        ["shift", "--seeds", "2", "--repeat", "campaign"],
        ["vmware_lbt", "--quick", "--faithful"],
        ["vmware_lbt", "--policy"],
    ],
)
def test_invalid_arguments_are_rejected(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(words) == 2
    assert capsys.readouterr().err


def test_help_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--help"]) == 0
    assert "--faithful" in capsys.readouterr().out


def test_bench_requires_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bench.main(["vmware_lbt"]) == 1
    assert says(capsys.readouterr().err, "user id 1000 ", "; run the bench as root")


def test_missing_program_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "iperf3" else f"/bin/{name}")
    assert bench.main(["vmware_lbt"]) == 1
    assert "iperf3" in capsys.readouterr().err


@pytest.mark.usefixtures("fit")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["vmware_lbt", "--all"], ("vmware_lbt and --all", "--all | vmware_lbt | set_vs_lbfo")),
        ([], ("no layout", "; expected --all | vmware_lbt")),
        (["no_such_layout"], ("layout no_such_layout ", "; expected vmware_lbt |")),
        (["vmware_lbt", "--policy", "ecmp"], ("contender ecmp ", "; expected manual | active-")),
        (["vmware_lbt", "--policy", "dynamic/mlag"], ("mlag ", "switch-independent | lacp")),
        (
            ["vmware_lbt", "--policy", "balance-slb"],
            ("--policy", "balance-slb", "originating-port"),
        ),
        (["vmware_lbt", "--against", "dynamic"], ("--against", "dynamic", "manual | active-")),
        (["vmware_lbt", "--policy", "set", "--against", "lag"], ("--against", "lag", "manual |")),
        (["set_vs_lbfo", "--direction", "receive"], ("--direction receive ", "vmware_lbt")),
        (["--all", "--direction", "receive"], ("--direction receive ", "vmware_lbt")),
        (["--all", "--policy", "ecmp"], ("contender ecmp ", "; expected manual |")),
    ],
)
def test_invalid_choice_lists_the_valid_ones(
    words: list[str],
    named: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench.main(words) == 2
    captured = capsys.readouterr()
    assert says(captured.err, *named)
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == [], "something was begun"


def _even(
    throughput_bps: float = 92.5e6, failing: str = ""
) -> Callable[[Scenario, Contender, Pace, Progress, int], Observed]:
    """A fake run with half-utilized uplinks, which can fail in a layout or for a contender."""

    def observe(
        scenario: Scenario, contender: Contender, _: Pace, progress: Progress, __: int
    ) -> Observed:
        if failing in (scenario.layout.name, contender.name):
            raise RuntimeError("vm1: no answer")
        uplinks = scenario.layout.sending_uplinks()
        seen = bench_runs.observed(
            scenario.layout,
            contender.name,
            dict.fromkeys(uplinks, 0.5),
            scenario=scenario.name,
            throughput_bps=throughput_bps,
            measured={"stream_cv": 0.02, "probe_duplicated": 0, "failover_ms": 12.0},
        )
        for sample in seen.samples:
            progress(sample, seen.load_s)
        return seen

    return observe


@pytest.mark.usefixtures("fit")
def test_bench_repeats_every_contender_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "run", _even())
    words = ["set_vs_lbfo", "--policy", "dynamic", "--against", "manual", "balance-tcp"]
    assert bench.main([*words, "--repeat", "2", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "eight streams 3/6 dynamic" not in said.err, "the baseline comes first"
    for place in ("1/6 manual", "2/6 dynamic", "3/6 balance-tcp", "4/6 manual", "6/6 balance-tcp"):
        assert f"eight streams {place}" in said.err
    assert "PASS  eight streams, dynamic: total as a share of a link" in said.out
    directory = tmp_path / "set_vs_lbfo"
    assert said.out.splitlines()[-2:] == [
        str(directory / "report.json"),
        str(directory / "report.md"),
    ]
    report = json.loads((directory / "report.json").read_text())
    assert list(report["contenders"]) == ["manual", "dynamic", "balance-tcp"]
    for one in report["contenders"].values():
        assert one["share_of_link"] == 0.925
        assert one["cpu_ratio"] == 1.0
        assert len(one["runs"]) == 2
    assert (directory / "samples.jsonl").read_text().count("\n") == 6
    written = (directory / "report.md").read_text()
    assert "|n = 2|" in written and "|`balance-tcp`|92.5|" in written


@pytest.mark.parametrize(
    ("layout", "words", "runs"),
    [("set_vs_lbfo", [], 3), ("two_switches", [], 5), ("two_switches", ["--quick"], 1)],
)
@pytest.mark.usefixtures("fit")
def test_campaign_runs_as_often_as_the_published_one_and_compares(
    layout: str,
    words: list[str],
    runs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "run", _even())
    words = [*words, "--repeat", "campaign", "--policy", "load-based", "--out", str(tmp_path)]
    bench.main([layout, *words])
    said = capsys.readouterr().out
    report = json.loads((tmp_path / layout / "report.json").read_text())
    assert {len(one["runs"]) for one in report["contenders"].values()} == {runs}
    if "--quick" in words:
        assert "Not comparable with the published runs: pace quick" in said
    elif layout == "two_switches":
        assert "figures differ from the published ones by more than the ranges" in said


@pytest.mark.usefixtures("fit")
def test_unmet_expectation_fails_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "run", _even(throughput_bps=50e6))
    words = ["set_vs_lbfo", "--policy", "set", "--against", "none", "--out", str(tmp_path)]
    assert bench.main(words) == 1
    assert "FAIL  eight streams, set: total as a share of a link" in capsys.readouterr().out
    report = json.loads((tmp_path / "set_vs_lbfo" / "report.json").read_text())
    assert [one["met"] for one in report["expectations"]] == [False]


@pytest.mark.usefixtures("fit")
def test_only_selected_scenarios_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run", _even())
    words = ["converged", "--against", "manual", "--policy", "dynamic", "--scenario", "fault: "]
    assert bench.main([*words, "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "converged" / "report.json").read_text())
    names = [one["name"] for one in report["scenarios"]]
    assert names == ["fault: a member's MTU", "fault: a member's VLAN"]


@pytest.mark.usefixtures("fit")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["set_vs_lbfo", "--scenario", "no such thing"],
            "set_vs_lbfo has no contender left to run",
        ),
        (
            ["two_switches", "--policy", "address-hash", "--against", "none"],
            "a switch fails: address-hash excluded: a LAG must end at one switch",
        ),
        (
            ["vmware_lbt", "--direction", "receive", "--scenario", "-"],
            "vmware_lbt has no contender left",
        ),
    ],
)
def test_nothing_runs_without_contenders(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "run", _even())
    assert bench.main([*words, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.usefixtures("fit")
def test_failed_run_does_not_end_the_others_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "run", _even(failing="dynamic"))
    words = ["set_vs_lbfo", "--policy", "dynamic", "set", "--against", "none"]
    words += ["--out", str(tmp_path)]
    assert bench.main(words) == 1
    assert (
        "FAIL  every run completes: eight streams, dynamic: vm1: no answer"
        in capsys.readouterr().out
    )
    report = json.loads((tmp_path / "set_vs_lbfo" / "report.json").read_text())
    assert list(report["contenders"]) == ["set"]
    made: list[str] = []
    monkeypatch.setattr(run, "run", _interrupted(99, made))
    assert bench.main(words) == 0
    assert made == ["set_vs_lbfo dynamic 1"]
    assert "kept 1 of 2 runs" in capsys.readouterr().err


@pytest.mark.usefixtures("fit")
def test_all_continues_after_a_failed_or_empty_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layouts = ("set_vs_lbfo", "quad_gbe_team", "two_switches")
    monkeypatch.setattr(bench, "LAYOUT_NAMES", layouts)
    monkeypatch.setattr(run, "run", _even())
    words = ["--all", "--policy", "dynamic", "--against", "none", "--out", str(tmp_path)]
    assert bench.main(words) == 0, "a layout without contenders is no failure"
    assert "quad_gbe_team has no contender left" in capsys.readouterr().err
    monkeypatch.setattr(run, "run", _even(failing="set_vs_lbfo"))
    shutil.rmtree(tmp_path)
    assert bench.main(words) == 1
    said = capsys.readouterr().err
    assert "eight streams: dynamic: vm1: no answer" in said
    assert "set_vs_lbfo: every run failed" in said
    assert [path.parent.name for path in tmp_path.rglob("report.json")] == ["two_switches"]
    assert bench.main([*words, "--scenario", "no such thing"]) == 2


def _interrupted(after: int, made: list[str]) -> Callable[..., Observed]:
    """A fake run that interrupts the command after a number of runs."""
    observe = _even()

    def observe_or_end(
        scenario: Scenario, contender: Contender, pace: Pace, progress: Progress, repetition: int
    ) -> Observed:
        if len(made) == after:
            raise KeyboardInterrupt
        made.append(f"{scenario.layout.name} {contender.name} {repetition}")
        return observe(scenario, contender, pace, progress, repetition)

    return observe_or_end


@pytest.mark.usefixtures("fit")
def test_interrupted_command_continues_with_the_missing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "LAYOUT_NAMES", ("set_vs_lbfo", "two_switches"))
    words = ["--all", "--policy", "dynamic", "--against", "manual", "--runs", "2"]
    words += ["--output", str(tmp_path)]
    first: list[str] = []
    monkeypatch.setattr(run, "run", _interrupted(5, first))
    assert bench.main(words) == 1
    assert "the same command makes only the missing ones" in capsys.readouterr().err
    rest: list[str] = []
    monkeypatch.setattr(run, "run", _interrupted(99, rest))
    assert bench.main(words) == 0
    said = capsys.readouterr().err
    assert "eight streams: kept 4 of 4 runs" in said
    assert "a switch fails: kept 1 of 4 runs" in said
    assert "running the missing 3" in said
    assert first == [
        *("set_vs_lbfo manual 1", "set_vs_lbfo dynamic 1"),
        *("set_vs_lbfo manual 2", "set_vs_lbfo dynamic 2"),
        "two_switches manual 1",
    ]
    assert rest == ["two_switches dynamic 1", "two_switches manual 2", "two_switches dynamic 2"]
    for name in ("set_vs_lbfo", "two_switches"):
        report = json.loads((tmp_path / name / "report.json").read_text())
        for one in report["contenders"].values():
            assert len(one["runs"]) == 2
            for made in one["runs"]:
                assert made["origin"]["command"].startswith("ovs-lbt bench --all")
        assert (tmp_path / name / "samples.jsonl").read_text().count("\n") == 4
    again: list[str] = []
    monkeypatch.setattr(run, "run", _interrupted(99, again))
    assert bench.main(words) == 0
    assert again == [], "a completed command runs nothing again"
    assert "a switch fails: kept 4 of 4 runs, which --anew repeats" in capsys.readouterr().err
    assert bench.main([*words, "--anew"]) == 0
    assert len(again) == 8


@pytest.mark.usefixtures("fit")
@pytest.mark.parametrize(
    "other", ["--anew", "--quick", "another commit", "half a file", "two runs more"]
)
def test_kept_runs_need_the_same_code_and_settings(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["set_vs_lbfo", "--policy", "dynamic", "--against", "manual", "--out", str(tmp_path)]
    monkeypatch.setattr(run, "run", _interrupted(1, []))
    assert bench.main(words) == 1
    kept = tmp_path / "set_vs_lbfo" / SAMPLES
    if other == "another commit":
        monkeypatch.setattr(origin, "same_code", lambda _: False)
    elif other == "half a file":
        kept.write_text(kept.read_text()[:1000])
    elif other == "two runs more":
        words += ["--repeat", "2"]
    else:
        words.append(other)
    made: list[str] = []
    monkeypatch.setattr(run, "run", _interrupted(99, made))
    assert bench.main(words) == 0
    assert len(made) == (3 if other == "two runs more" else 2)


def test_kept_run_survives_a_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "same_code", lambda found: found["commit"] == "1")
    (scenario,) = PLANS["set_vs_lbfo"].scenarios(Options(ACCELERATED))
    seen = _even()(scenario, by_name("dynamic"), ACCELERATED, lambda *_: None, 1)
    seen = replace(seen, origin={"commit": "1"})
    which = (seen.scenario, "dynamic", 1)

    def reopened(pace: str, *, anew: bool = False) -> Kept:
        return Kept(tmp_path, {"pace": pace}, anew=anew)

    for pace in ("slow", "quick"):
        reopened(pace).keep(1, seen)
    reopened("slow").keep(2, replace(seen, origin={"commit": "2"}))
    again = reopened("slow")
    assert again.find(*which) == seen
    assert again.find("another", "dynamic", 1) is None
    assert again.find(seen.scenario, "dynamic", 2) is None, "other code made it"
    assert (tmp_path / SAMPLES).read_text().count("\n") == 2
    again = reopened("slow", anew=True)
    assert again.find(*which) is None
    again.keep(1, replace(seen, load_s=1.0))
    found = reopened("slow").find(*which)
    assert found is not None and found.load_s == 1.0, "the last one counts"
    assert reopened("quick").find(*which) == seen
