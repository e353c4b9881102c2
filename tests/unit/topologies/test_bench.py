"""The bench's command line: exit statuses, and answers that say what was expected."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.said import says
from tests.unit.topologies import bench_runs
from tests.unit.topologies.conftest import Bench
from topologies import bench
from topologies.benches import PLANS
from topologies.compare.plan import Options
from topologies.compare.running import SAMPLES, Kept
from topologies.loads.pace import ACCELERATED
from topologies.reports import origin


def test_help_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--help"]) == 0
    assert "--faithful" in capsys.readouterr().out


def test_bench_requires_root(fake_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert fake_bench("vmware_lbt") == 1
    assert says(fake_bench.err, "user id 1000 ", "; run the bench as root")


def test_missing_program_is_named(fake_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "iperf3" else f"/bin/{name}")
    assert fake_bench("vmware_lbt") == 1
    assert "iperf3" in fake_bench.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", ("no layout", "; expected --all | vmware_lbt")),
        ("vmware_lbt --all", ("vmware_lbt and --all", "--all | vmware_lbt | set_vs_lbfo")),
        ("no_such_layout", ("layout no_such_layout ", "; expected vmware_lbt |")),
        ("vmware_lbt --policy", ("--policy", "expected at least one")),
        ("vmware_lbt --policy set --against lag", ("--against", "lag", "manual |")),
        ("vmware_lbt --policy dynamic/mlag", ("mlag ", "switch-independent | lacp")),
        ("--all --policy ecmp", ("contender ecmp ", "; expected manual |")),
        ("vmware_lbt --direction sideways", ("--direction", "sideways")),
        ("set_vs_lbfo --direction receive", ("--direction receive ", "vmware_lbt")),
        ("--all --direction receive", ("--direction receive ", "vmware_lbt")),
        ("vmware_lbt --repeat 0", ("--repeat", '"0"; expected a whole number of at least 1')),
        ("vmware_lbt --repeat often", ("--repeat", '"often"; expected')),
        ("vmware_lbt --quick --faithful", ("not allowed with",)),
        ("converged --seeds 2", ("--seeds ", "shift, ", "load jumps", "converged")),
        ("--all --seeds 2", ("--seeds ", "shift, ", "load jumps", "--all")),
        ("shift --seeds 2 --repeat 2", ("--seeds ", "--repeat 2; ", "--seeds N")),
        ("shift --seeds 2 --repeat campaign", ("--seeds ", "--repeat campaign; ")),
        ("shift --seeds 0", ('"0"; expected a whole number of at least 1',)),
        ("shift --seeds 1 --seed 2", ("not allowed with",)),
        ("connections --sizes 0", ("--sizes", "from 1 to 150000")),
        ("connections --sizes 150001", ("--sizes", "from 1 to 150000")),
        ("connections --rates x", ("--rates", '"x"; expected')),
        ("connections more", ("unrecognized arguments",)),
        ("connections --contenders balance-xor", ("balance-xor", "; expected manual")),
        ("shift --sizes 100", ("--sizes requires connections, instead of shift",)),
        ("--all --rates", ("--rates requires connections, instead of --all",)),
        ("set_vs_lbfo --scenario none", ("set_vs_lbfo has no contender left to run",)),
        (
            "two_switches --policy address-hash --against none",
            ("a switch fails: address-hash excluded: a LAG must end at one switch",),
        ),
        (
            "vmware_lbt --direction receive --scenario -",
            ("vmware_lbt has no contender left",),
        ),
    ],
)
def test_wrong_usage_says_what_was_expected(
    words: str, named: tuple[str, ...], fake_bench: Bench
) -> None:
    assert fake_bench(words) == 2
    assert says(fake_bench.err, *named)
    assert fake_bench.out == ""
    assert fake_bench.made == []
    assert list(fake_bench.directory.rglob("*.json")) == [], "there is a report"


def test_bench_repeats_every_contender_and_reports(fake_bench: Bench) -> None:
    assert fake_bench("set_vs_lbfo --policy dynamic --against manual balance-tcp --repeat 2") == 0
    # The baseline comes first.
    for number, name in enumerate(["manual", "dynamic", "balance-tcp"] * 2, 1):
        assert f"eight streams {number}/6 {name}" in fake_bench.err
    directory = fake_bench.directory / "set_vs_lbfo"
    files = [str(directory / name) for name in ("report.json", "report.md")]
    assert fake_bench.out.splitlines()[-2:] == files
    report = fake_bench.report("set_vs_lbfo")
    assert list(report["contenders"]) == ["manual", "dynamic", "balance-tcp"]
    for one in report["contenders"].values():
        assert (one["share_of_link"], one["cpu_ratio"], len(one["runs"])) == (0.925, 1.0, 2)
    assert (directory / "samples.jsonl").read_text().count("\n") == 6
    written = (directory / "report.md").read_text()
    assert "|n = 2|" in written and "|`balance-tcp`|92.5|" in written


@pytest.mark.parametrize(
    ("words", "runs", "said"),
    [
        ("set_vs_lbfo", 3, ""),
        ("two_switches", 5, "figures differ from the published ones by more than the ranges"),
        ("two_switches --quick", 1, "Not comparable with the published runs: pace quick"),
    ],
)
def test_campaign_runs_as_often_as_the_published_one_and_compares(
    words: str, runs: int, said: str, fake_bench: Bench
) -> None:
    fake_bench(f"{words} --repeat campaign --policy load-based")
    contenders = fake_bench.report(words.split()[0])["contenders"]
    assert {len(one["runs"]) for one in contenders.values()} == {runs}
    assert said in fake_bench.out


def test_connections_run_with_the_selected_sizes_rates_and_contenders(fake_bench: Bench) -> None:
    words = "connections --sizes 200 100 --rates 50 --contenders balance-slb dynamic+multipath"
    assert fake_bench(words) == 0
    assert fake_bench.made == [
        f"{what} {name} 1"
        for what in ("100 connections", "200 connections", "50 new connections a second")
        for name in ("balance-slb", "dynamic+multipath")
    ]
    fake_bench("connections --sizes --rates 100 --contenders adaptive --cuts 2")
    assert fake_bench.made == [f"100 new connections a second adaptive {n}" for n in (1, 2)]


def test_unmet_expectation_fails_with_a_report(fake_bench: Bench) -> None:
    words = "mixed_speed --scenario equal --policy load-based --against"
    assert fake_bench(f"{words} none") == 0
    assert "PASS  equal loads, load-based: utilizations within 10% of each" in fake_bench.out
    assert fake_bench(f"{words} balance-slb") == 1
    assert "FAIL  equal loads, balance-slb: utilizations not within 10% of each" in fake_bench.out
    met = [one["met"] for one in fake_bench.report("mixed_speed")["expectations"]]
    assert met == [True, False]


def test_only_selected_scenarios_run(fake_bench: Bench) -> None:
    assert fake_bench("converged --against manual --policy dynamic --scenario 'fault: '") == 0
    names = [one["name"] for one in fake_bench.report("converged")["scenarios"]]
    assert names == ["fault: a member's MTU", "fault: a member's VLAN"]


def test_failed_run_does_not_end_the_others_and_is_repeated(fake_bench: Bench) -> None:
    fake_bench.failing = "dynamic"
    words = "set_vs_lbfo --policy dynamic set --against none"
    assert fake_bench(words) == 1
    assert "FAIL  every run completes: eight streams, dynamic: vm1: no answer" in fake_bench.out
    assert list(fake_bench.report("set_vs_lbfo")["contenders"]) == ["set"]
    fake_bench.failing = "no run"
    assert fake_bench(words) == 0
    assert fake_bench.made == ["eight streams dynamic 1"]
    assert "kept 1 of 2 runs" in fake_bench.err


def test_all_continues_after_a_failed_or_empty_layout(
    fake_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts = ("set_vs_lbfo", "quad_gbe_team", "two_switches")
    monkeypatch.setattr(bench, "LAYOUT_NAMES", layouts)
    words = "--all --policy dynamic --against none"
    assert fake_bench(words) == 0, "a layout without contenders is no failure"
    assert "quad_gbe_team has no contender left" in fake_bench.err
    shutil.rmtree(fake_bench.directory)
    fake_bench.failing = "eight streams"
    assert fake_bench(words) == 1
    assert "eight streams: dynamic: vm1: no answer" in fake_bench.err
    assert "set_vs_lbfo: every run failed" in fake_bench.err
    reports = fake_bench.directory.rglob("report.json")
    assert [path.parent.name for path in reports] == ["two_switches"]
    assert fake_bench(f"{words} --scenario 'no such thing'") == 2


def test_interrupted_command_continues_with_the_missing_runs(
    fake_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "LAYOUT_NAMES", ("set_vs_lbfo", "two_switches"))
    words = f"--all --policy dynamic --against manual --runs 2 --output {fake_bench.directory}"
    every = [
        f"{scenario} {name} {repetition}"
        for scenario in ("eight streams", "a switch fails")
        for repetition in (1, 2)
        for name in ("manual", "dynamic")
    ]
    fake_bench.most = 5
    assert fake_bench(words) == 1
    assert "the same command makes only the missing ones" in fake_bench.err
    assert fake_bench.made == every[:5]
    fake_bench.most = 99
    assert fake_bench(words) == 0
    assert "eight streams: kept 4 of 4 runs" in fake_bench.err
    said = "a switch fails: kept 1 of 4 runs, which --anew repeats; running the missing 3"
    assert said in fake_bench.err
    assert fake_bench.made == every[5:]
    for name in ("set_vs_lbfo", "two_switches"):
        for one in fake_bench.report(name)["contenders"].values():
            commands = [made["origin"]["command"] for made in one["runs"]]
            assert [text[:19] for text in commands] == ["ovs-lbt bench --all"] * 2
        assert (fake_bench.directory / name / SAMPLES).read_text().count("\n") == 4
    assert fake_bench(words) == 0
    assert fake_bench.made == [], "a completed command runs nothing again"
    assert "a switch fails: kept 4 of 4 runs, which --anew repeats" in fake_bench.err
    assert fake_bench(f"{words} --anew") == 0
    assert len(fake_bench.made) == 8


@pytest.mark.parametrize(
    ("other", "runs"),
    [("--anew", 2), ("--quick", 2), ("--repeat 2", 3), ("another commit", 2), ("half a file", 2)],
)
def test_kept_runs_need_the_same_code_and_settings(
    other: str, runs: int, fake_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "set_vs_lbfo --policy dynamic --against manual"
    fake_bench.most = 1
    assert fake_bench(words) == 1
    fake_bench.most = 99
    kept = fake_bench.directory / "set_vs_lbfo" / SAMPLES
    if other == "another commit":
        monkeypatch.setattr(origin, "same_code", lambda _: False)
    elif other == "half a file":
        kept.write_text(kept.read_text()[:1000])
    else:
        words += f" {other}"
    assert fake_bench(words) == 0
    assert len(fake_bench.made) == runs


def test_kept_run_survives_a_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "same_code", lambda found: found["commit"] == "1")
    (scenario,) = PLANS["set_vs_lbfo"].scenarios(Options(ACCELERATED))
    seen = bench_runs.observed(scenario.layout, "dynamic", {}, scenario=scenario.name)
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
