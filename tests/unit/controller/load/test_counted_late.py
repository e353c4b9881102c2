"""The same placement and figures where counters come in bursts, under every policy that judges load."""

from __future__ import annotations

import functools

import pytest

from policies.presets import PRESETS
from tests.unit.controller.load.counted_late import LateSwitch, Vm, counted_late, vms
from tests.unit.fake_switch import Rate, World, moves

JUMP_S = 20.35
POLICIES = sorted(name for name, preset in PRESETS.items() if preset.rebalances)
# A beat is seen to a reading, and judged by two of them.
SAME_RATIO = 0.15
# Of capacity.
NEAR_RATIO = 0.03


def jump(before: float, after: float) -> Rate:
    return lambda now_s: before if now_s < JUMP_S else after


# Behind the patch port, and on two ports of their own.
ONE = vms(10, jump(8, 47)), [*vms(11, jump(3, 34)), *vms(12, jump(4, 6))]
SOME = (
    vms(10, jump(3, 31), jump(2, 22), jump(4, 9), jump(12, 4)),
    [*vms(11, jump(3, 17)), *vms(12, jump(5, 3))],
)


def sending(of: tuple[list[Vm], list[Vm]]) -> list[Vm]:
    return [*of[0], *of[1]]


@functools.cache
def settled(policy: str, unit: str, some: bool, beat_s: float) -> World:
    keys = {"window_s": "5"} if PRESETS[policy].window_s is None else {}
    here = counted_late(policy, sending(SOME if some else ONE), beat_s, unit=unit, keys=keys)
    return here.run_until(JUMP_S + 30.0)


def ways(here: World) -> dict[str, int | None]:
    switch = here.switches["br0"]
    assert isinstance(switch, LateSwitch)
    return {vm.mac: switch.left_by(vm) for vm in switch.vms}


def figures(here: World) -> dict[str, float]:
    """What `show` tells of ports, and what policies judge of units."""
    (status,) = here.engine.fleet.status()
    shown = {port.name: port.load.tx_bps for port in status.ports}
    judged = here.engine.fleet.bridges["br0"].judged
    over_s = judged.window_s(status.policy)
    return shown | {f"{u.name} judged": u.load.tx_bps for u in judged.loaded(over_s)}


def fullest(here: World) -> float:
    (status,) = here.engine.fleet.status()
    return max(uplink.utilization_ratio for uplink in status.uplinks)


@pytest.mark.parametrize("beat_s", [0.5, 1.0])
@pytest.mark.parametrize("some", [False, True], ids=["one-connection", "some"])
@pytest.mark.parametrize("unit", ["port", "source-mac"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_patch_port_is_as_one_that_is_counted_at_once(
    policy: str, unit: str, some: bool, beat_s: float
) -> None:
    at_once, late = settled(policy, unit, some, 0.0), settled(policy, unit, some, beat_s)
    if PRESETS[policy].at_once and unit == "source-mac":
        # Which of several good placements is found goes by the moment at which addresses are
        # counted, under every port.
        assert fullest(late) <= fullest(at_once) + NEAR_RATIO
        return
    assert ways(late) == ways(at_once)
    assert moves(late).get("split", 0) == moves(at_once).get("split", 0)
    expected, found = figures(at_once), figures(late)
    assert found.keys() == expected.keys()
    assert found == {
        name: pytest.approx(bps, rel=SAME_RATIO, abs=1e5) for name, bps in expected.items()
    }
