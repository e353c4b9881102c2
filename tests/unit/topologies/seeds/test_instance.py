"""Load jumps from seeds and from files: reproducibility, their properties, and invalid files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from topologies.seeds import generator, instance
from topologies.seeds.instance import FEASIBLE_RATIO, Instance, Vm, read
from topologies.seeds.placement_search import find_below, worst_ratio

SEEDS = range(1, 201)


def test_seed_always_gives_the_same_jump() -> None:
    first = [generator.generate(seed) for seed in SEEDS[:20]]
    assert first == [generator.generate(seed) for seed in SEEDS[:20]]
    assert len({one.vms for one in first}) == len(first)
    # Pinned values: another version of Python must generate the same campaign.
    drawn = generator.generate(1)
    assert drawn.capacities_bps == (150000000, 50000000)
    assert len(drawn.vms) == 5
    assert drawn.vms[0] == Vm(home=0, before_bps=100000.0, after_bps=19285380.0, start_s=0.1809)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_jump_has_the_documented_properties(seed: int) -> None:
    jump = generator.generate(seed)
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


GOOD: dict[str, Any] = {
    "name": "mine",
    "uplinks_mbps": [100, 50],
    "vms": [
        {"home": 1, "before_mbps": 0, "after_mbps": 61.25, "start_ms": 140},
        {"home": 2, "before_mbps": 0.5, "after_mbps": 7, "start_ms": 0},
    ],
}


def _file(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "jumps.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_file_is_read(tmp_path: Path) -> None:
    (found,) = read(_file(tmp_path, {"instances": [GOOD]}))
    assert found == Instance(
        "mine",
        (100_000_000, 50_000_000),
        (Vm(0, 0.0, 61.25e6, 0.14), Vm(1, 0.5e6, 7e6, 0.0)),
    )
    assert found.home_utilizations() == pytest.approx((0.6125, 0.14))
    assert found.offered_bps == pytest.approx(68.25e6)
    assert found.last_start_s == 0.14


def test_documented_example_is_valid_and_feasible(tmp_path: Path) -> None:
    example = re.search(r"(?m)^    \{(?:\n|.)*?\n\n", instance.__doc__ or "")
    assert example
    (found,) = read(_file(tmp_path, example[0]))
    assert found.home_utilizations() == pytest.approx((1.105, 0.02))
    assert generator.is_feasible(found)


def _with(**changes: object) -> dict[str, Any]:
    return {"instances": [{**GOOD, **changes}]}


def _vm(**changes: object) -> dict[str, Any]:
    return _with(vms=[{**GOOD["vms"][0], **changes}])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "jumps.json is not JSON: "),
        ([], "the file is a list; expected an object with instances"),
        ({"instances": []}, "instances is a list of 0; expected a list of 1 to 10000"),
        ({"instances": {}}, "instances is an object; expected a list"),
        ({"instances": [GOOD], "seed": 1}, "the file has the key seed; expected only instances"),
        ({"instances": [7]}, "instances[0] is 7; expected an object with name, uplinks_mbps, vms"),
        ({"instances": [{"name": "a"}]}, "[0] has no uplinks_mbps; expected name, uplinks_mbps"),
        (
            {"instances": [GOOD, GOOD]},
            "instances[1].name is mine, as in another jump; choose another",
        ),
        (_with(name="../x"), "instances[0].name is '../x'; expected up to 40 letters"),
        (_with(name="report"), "instances[0].name is 'report', which is reserved; choose another"),
        (_with(uplinks_mbps=[100]), "uplinks_mbps is a list of 1; expected a list of 2 to 8"),
        (_with(uplinks_mbps=[100, 0.5]), "[1] is 0.5; expected a whole number from 1 to 1000"),
        (_with(vms=[]), "instances[0].vms is a list of 0; expected a list of 1 to 64"),
        (_vm(home=3), "instances[0].vms[0].home is 3; expected a whole number from 1 to 2"),
        (_vm(home=0), "vms[0].home is 0; expected a whole number from 1 to 2"),
        (_vm(home=True), "vms[0].home is True; expected a whole number from 1 to 2"),
        (_vm(after_mbps="9"), "vms[0].after_mbps is 9; expected a number from 0 to 1000"),
        (_vm(after_mbps=-1), "vms[0].after_mbps is -1; expected a number from 0 to 1000"),
        (_with(uplinks_mbps=[float("nan"), 1]), "uplinks_mbps[0] is nan; expected a"),
        (_vm(start_ms=None), "vms[0].start_ms is null; expected a number from 0 to 5000"),
        (
            _vm(start_s=1),
            "instances[0].vms[0] has the key start_s; expected only home, before_mbps",
        ),
        (
            _with(vms=[{**GOOD["vms"][0], "after_mbps": 600}] * 2),
            "1200 Mbit/s in total; expected at most 1000 Mbit/s",
        ),
        (_vm(after_mbps=0), "no VM in instances[0].vms sends; set an after_mbps above 0"),
    ],
)
def test_invalid_file_is_reported(tmp_path: Path, document: object, message: str) -> None:
    path = _file(tmp_path, document)
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        read(path)
    assert str(refused.value).startswith(str(path))
