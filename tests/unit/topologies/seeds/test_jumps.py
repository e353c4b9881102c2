"""Load jumps from seeds: reproducibility, their properties, figures, conditions, and the report."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.topologies import bench_runs
from tests.unit.topologies.conftest import GOOD, Bench
from topologies.compare.plan import Options
from topologies.loads.pace import ACCELERATED
from topologies.seeds.jumps import FEASIBLE_RATIO, Vm, find_below, generate, worst_ratio
from topologies.seeds.plan import plan

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


PERFECT = {"perfect_loss_ratio": 0.0, "excess_loss_ratio": 0.0}


def _unmet(changed: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The unmet conditions; `changed`: by scenario, what differs from good figures."""
    made = plan([1, 2, 3])
    results = []
    for scenario in made.scenarios(Options(ACCELERATED)):
        more = changed.get(scenario.name, {})
        runs = [
            bench_runs.observed(
                scenario.layout,
                name,
                {},
                scenario=scenario.name,
                measured={**GOOD, **PERFECT, **more},
            )
            for name in scenario.contenders
        ]
        results.append(bench_runs.result(scenario, runs))
    checked = made.expectations(Options(ACCELERATED), made.pooled(results))
    # All contenders are to send all.
    assert len(checked) == 8
    return [one.condition for one in checked if not one.met]


@pytest.mark.parametrize(
    ("changed", "unmet"),
    [
        ({}, None),
        (
            {f"seed-{n} jump": {"excess_loss_ratio": 0.0012} for n in (1, 2)},
            "median loss above the perfect decider's at most 0.1 points",
        ),
        (
            {"seed-1 jump": {"excess_loss_ratio": 0.0031}},
            "worst loss above the perfect decider's at most 0.3 points",
        ),
        ({"seed-1 jump": {"highest_ratio": 0.901}}, "no uplink above 90% over any 0.5 s"),
        ({"seed-1 control": {"loss_ratio": 0.0001}}, "without a jump, less than 0.01% is lost"),
        ({"seed-2 control": {"unsent_ratio": 0.011}}, "99% of the planned load was sent"),
        ({"seed-2 jump": {"strangers": 1.0}}, "every VM is at home before the jump"),
    ],
)
def test_only_an_unmet_condition_is_reported(
    changed: dict[str, dict[str, float]], unmet: str | None
) -> None:
    found = _unmet(changed)
    assert len(found) == (unmet is not None)
    assert all(str(unmet) in one for one in found)


def test_same_command_runs_only_the_missing_jumps(fake_bench: Bench) -> None:
    fake_bench.failing = "seed-2 control"
    assert fake_bench("shift --seeds 2") == 1
    assert "FAIL  every run completes: seed-2 control, adaptive: vm1: no answer" in fake_bench.out
    assert fake_bench.made == [
        f"seed-{seed} {what} 1"
        for seed in (1, 2)
        for what in ("jump adaptive", "jump balance-slb/1s", "control adaptive")
    ]
    fake_bench.failing = "no run"
    assert fake_bench("shift --seeds 2") == 0
    assert fake_bench.made == ["seed-2 control adaptive 1"]
    only = "shift --seed 1 --against none --scenario jump"
    assert fake_bench(only) == 0
    assert fake_bench.made == []
    assert fake_bench(f"{only} --anew") == 0
    assert fake_bench.made == ["seed-1 jump adaptive 1"]
    (scenario,) = fake_bench.report("shift_seeds")["scenarios"]
    assert scenario["name"] == "all jumps"
    assert list(scenario["contenders"]) == ["adaptive"]
    assert fake_bench("shift --seeds 4") == 0
    jumps, controls = fake_bench.report("shift_seeds")["scenarios"]
    assert [*jumps["contenders"]] == ["adaptive", "balance-slb/1s"]
    for one in (*jumps["contenders"].values(), *controls["contenders"].values()):
        assert len(one["runs"]) == 4
    # Nothing was lost.
    for run in jumps["contenders"]["adaptive"]["runs"]:
        assert run["excess_loss_ratio"] == -run["perfect_loss_ratio"] <= 0
    assert jumps["contenders"]["adaptive"]["runs"][3]["perfect_loss_ratio"] > 0
