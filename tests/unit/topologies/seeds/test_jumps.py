"""Load jumps from seeds: reproducibility, their properties, figures, conditions, and the report."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.said import says
from tests.unit.topologies import bench_runs
from topologies import bench
from topologies.compare import run
from topologies.compare.contenders import Contender
from topologies.compare.plan import Options
from topologies.compare.run import Observed, Progress, Scenario
from topologies.loads.pace import ACCELERATED, Pace
from topologies.loads.settling import Reading
from topologies.reports.markdown import text
from topologies.seeds import report
from topologies.seeds.jumps import FEASIBLE_RATIO, Vm, find_below, generate, worst_ratio
from topologies.seeds.plan import highest_ratio, plan

SEEDS = range(1, 201)


def test_seed_always_gives_the_same_jump() -> None:
    first = [generate(seed) for seed in SEEDS[:20]]
    assert first == [generate(seed) for seed in SEEDS[:20]]
    assert len({one.vms for one in first}) == len(first)
    # Pinned values: another version of Python must generate the same campaign.
    drawn = generate(1)
    assert drawn.capacities_bps == (150000000, 50000000)
    assert len(drawn.vms) == 5
    assert drawn.vms[0] == Vm(home=0, before_bps=100000.0, after_bps=19285380.0, start_s=0.1809)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_jump_has_the_documented_properties(seed: int) -> None:
    jump = generate(seed)
    uplinks = len(jump.capacities_bps)
    assert 2 <= uplinks <= 4 and 4 <= len(jump.vms) <= 24
    assert jump.offered_bps <= 250e6
    used = sorted(jump.home_utilizations())
    assert 1.05 - 1e-6 <= used[-1] <= 1.30 + 1e-6
    assert used[-2] < 1.0, "a second uplink is overloaded, too"
    assert all(0.0 <= vm.start_s <= 0.2 for vm in jump.vms)
    assert all(vm.home == number % uplinks for number, vm in enumerate(jump.vms))
    before = [0.0] * uplinks
    for vm in jump.vms:
        before[vm.home] += vm.before_bps
    quiet = max(sent / bps for sent, bps in zip(before, jump.capacities_bps, strict=True))
    assert quiet <= 0.5, "a policy might move a VM before the jump"
    loads = [vm.after_bps for vm in jump.vms]
    placed = find_below(loads, jump.capacities_bps, FEASIBLE_RATIO)
    assert placed is not None
    assert worst_ratio(loads, jump.capacities_bps, placed) < FEASIBLE_RATIO


CAPACITIES = {"uplink1": 100_000_000, "uplink2": 50_000_000}


def _readings(used: Callable[[float], tuple[float, float]], end_s: float = 10.0) -> list[Reading]:
    """Readings every 10 ms of uplinks with the given utilization over time."""
    sent, found = [0.0, 0.0], []
    for number in range(round(end_s * 100) + 1):
        at_s = number / 100
        found.append(Reading(at_s, dict(zip(CAPACITIES, map(int, sent), strict=True))))
        for index, (share, bps) in enumerate(zip(used(at_s), CAPACITIES.values(), strict=True)):
            sent[index] += share * bps / 8 / 100
    return found


def test_highest_ratio_is_over_all_uplinks_and_spans() -> None:
    steady = _readings(lambda at_s: (0.5, 0.95 if 4.2 <= at_s < 4.7 else 0.3))
    assert highest_ratio(steady, CAPACITIES, 0.0, 10.0) == pytest.approx(0.95, abs=0.002)
    assert highest_ratio(steady, CAPACITIES, 4.7, 10.0) == pytest.approx(0.5, abs=0.002)
    short = _readings(lambda at_s: (0.5, 1.0 if 4.2 <= at_s < 4.3 else 0.3))
    assert highest_ratio(short, CAPACITIES, 0.0, 10.0) == pytest.approx(0.5, abs=0.002)
    assert highest_ratio([], CAPACITIES, 0.0, 10.0) == 0.0


GOOD = {"loss_ratio": 0.0, "highest_ratio": 0.8, "moves": 2.0, "sent_ratio": 1.0, "strangers": 0.0}


def _unmet(changed: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The unmet conditions; `changed`: by scenario, what differs from good figures."""
    made = plan([1, 2, 3])
    results = []
    for scenario in made.scenarios(Options(ACCELERATED)):
        more = changed.get(scenario.name, {})
        runs = [
            bench_runs.observed(
                scenario.layout, name, {}, scenario=scenario.name, measured={**GOOD, **more}
            )
            for name in scenario.contenders
        ]
        results.append(bench_runs.result(scenario, runs))
    checked = made.expectations(Options(ACCELERATED), results)
    assert len(checked) == 6
    return [one.condition for one in checked if not one.met]


def test_good_runs_meet_every_condition() -> None:
    assert _unmet({}) == []


@pytest.mark.parametrize(
    ("changed", "unmet"),
    [
        (
            {f"seed-{n} jump": {"loss_ratio": 0.0012} for n in (1, 2)},
            "median loss above the perfect decider's at most 0.1 points",
        ),
        (
            {"seed-1 jump": {"loss_ratio": 0.0031}},
            "worst loss above the perfect decider's at most 0.3 points",
        ),
        ({"seed-1 jump": {"highest_ratio": 0.901}}, "no uplink above 90% over any 0.5 s"),
        ({"seed-1 control": {"loss_ratio": 0.0001}}, "without a jump, less than 0.01% is lost"),
        ({"seed-2 jump": {"sent_ratio": 0.98}}, "99% of the planned load was sent"),
        ({"seed-2 jump": {"strangers": 1.0}}, "every VM is at home before the jump"),
    ],
)
def test_unmet_condition_is_reported(changed: dict[str, dict[str, float]], unmet: str) -> None:
    (found,) = _unmet(changed)
    assert unmet in found


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with everything that a bench needs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["converged", "--seeds", "2"], ("--seeds ", "shift, ", "load jumps", "converged")),
        (["--all", "--seeds", "2"], ("--seeds ", "shift, ", "load jumps", "--all")),
        (["shift", "--seeds", "2", "--repeat", "2"], ("--seeds ", "--repeat 2; ", "--seeds N")),
        (["shift", "--seeds", "0"], ('"0"; expected a whole number of at least 1',)),
        (["shift", "--seeds", "1", "--seed", "2"], ("not allowed with",)),
    ],
)
@pytest.mark.usefixtures("fit")
def test_invalid_arguments_are_rejected(
    words: list[str], named: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main([*words, "--out", str(tmp_path)]) == 2
    assert says(capsys.readouterr().err, *named)
    assert list(tmp_path.iterdir()) == []


def _observing(
    ran: list[str], failing: str = ""
) -> Callable[[Scenario, Contender, Pace, Progress, int], Observed]:
    """A fake run with half-utilized uplinks and no loss."""

    def observe(
        scenario: Scenario, contender: Contender, _: Pace, progress: Progress, __: int
    ) -> Observed:
        ran.append(f"{scenario.name} {contender.name}")
        if failing and failing in ran[-1]:
            raise RuntimeError("vm1: no answer")
        shares = dict.fromkeys(scenario.layout.sending_uplinks(), 0.5)
        seen = bench_runs.observed(scenario.layout, contender.name, shares, scenario=scenario.name)
        return replace(seen, outcome=replace(seen.outcome, figures=GOOD))

    return observe


@pytest.mark.usefixtures("fit")
def test_same_command_runs_only_the_missing_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(run, "run", _observing(ran, failing="seed-2 control"))
    words = ["shift", "--seeds", "2", "--out", str(tmp_path)]
    assert bench.main(words) == 1
    output = capsys.readouterr()
    assert "FAIL  every run completes: seed-2 control, adaptive: vm1: no answer" in output.out
    assert ran == [
        f"seed-{seed} {what}"
        for seed in (1, 2)
        for what in ("jump adaptive", "jump balance-slb/1s", "control adaptive")
    ]
    ran.clear()
    monkeypatch.setattr(run, "run", _observing(ran))
    assert bench.main(words) == 0
    assert ran == ["seed-2 control adaptive"]
    ran.clear()
    only = ["--seed", "1", "--against", "none", "--scenario", "jump"]
    assert bench.main(["shift", *only, "--out", str(tmp_path)]) == 0
    assert ran == []
    assert bench.main(["shift", *only, "--anew", "--out", str(tmp_path)]) == 0
    assert ran == ["seed-1 jump adaptive"]
    made = json.loads((tmp_path / "shift_seeds" / "report.json").read_text())
    assert list(report.pooled(made)) == ["adaptive"]
    written = (tmp_path / "shift_seeds" / "report.md").read_text()
    assert written.startswith(text(report.section(made))) and "|seed-1|" in written
