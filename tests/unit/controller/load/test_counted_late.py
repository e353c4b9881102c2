"""The same placement and figures where counters come in bursts, under every policy that judges load."""

from __future__ import annotations

import functools
import random

import pytest

from policies.presets import PRESETS
from tests.unit.controller.engine.jumps import moved
from tests.unit.controller.load.counted_late import counted_late, vms
from tests.unit.fake_switch import Rate, World, moves

JUMP_S = 20.35
POLICIES = sorted(name for name, preset in PRESETS.items() if preset.rebalances)
# A beat is seen to a reading, and judged by two of them.
SAME_RATIO = 0.15


def jump(before: float, after: float) -> Rate:
    return lambda now_s: before if now_s < JUMP_S else after


# Behind the patch port, and on two ports of their own.
ONE = vms(10, jump(8, 47)) | vms(11, jump(3, 34)) | vms(12, jump(4, 6))
BEHIND = vms(10, jump(3, 31), jump(2, 22), jump(4, 9), jump(12, 4))
SOME = BEHIND | vms(11, jump(3, 17)) | vms(12, jump(5, 3))


@functools.cache
def settled(policy: str, unit: str, some: bool, beat_s: float) -> World:
    keys = {"window_s": "5"} if PRESETS[policy].window_s is None else {}
    here = counted_late(policy, SOME if some else ONE, beat_s, unit=unit, keys=keys)
    return here.run_until(JUMP_S + 30.0)


def ways(here: World) -> dict[str, int | None]:
    return {of[1]: here.switch.uplink_of_address(*of) for of in here.switch.behind_bps}


def figures(here: World) -> dict[str, float]:
    """What `show` tells of ports, and what policies judge of units."""
    shown = {port.port.name: port.load.tx_bps for port in here.status.ports}
    team_view = here.bridge.placing.team_view()
    over_s = team_view.window_s(here.status.config.policy)
    return shown | {f"{u.name} judged": u.load.tx_bps for u in team_view.loaded(over_s)}


@pytest.mark.slow
@pytest.mark.parametrize("beat_s", [0.5, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "some", [pytest.param(False, marks=pytest.mark.slow), True], ids=["one-connection", "some"]
)
@pytest.mark.parametrize("unit", ["port", "source-mac"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_patch_port_is_as_one_that_is_counted_at_once(
    policy: str, unit: str, some: bool, beat_s: float
) -> None:
    at_once, late = settled(policy, unit, some, 0.0), settled(policy, unit, some, beat_s)
    assert ways(late) == ways(at_once)
    assert moves(late).get("split", 0) == moves(at_once).get("split", 0)
    expected, found = figures(at_once), figures(late)
    assert found.keys() == expected.keys()
    assert found == {
        name: pytest.approx(bps, rel=SAME_RATIO, abs=1e5) for name, bps in expected.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("beat_s", [0.0, 0.5, 1.0])
def test_addresses_are_not_taken_for_their_port(beat_s: float) -> None:
    here = settled("adaptive", "source-mac", False, beat_s)
    assert ways(here)["52:54:00:00:0a:00"] == 2
    made = moved(here, 0.0)
    assert len(made) == moves(here)["rebalance"] == 1, "the address alone, and once"


@pytest.mark.slow
@pytest.mark.parametrize(("beat_s", "at_most_s"), [(0.0, 2.0), (0.5, 1.5), (1.0, 2.5)])
def test_a_jump_behind_a_port_is_soon_relieved(beat_s: float, at_most_s: float) -> None:
    here = settled("adaptive", "source-mac", True, beat_s)
    assert JUMP_S < moved(here, 0.0)[0].at_s <= JUMP_S + at_most_s


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_a_load_that_trembles_is_relieved_as_soon(seed: int) -> None:
    """A sender on a busy host does not send as much in each tenth of a second.

    That may cost one beat, not four.
    """
    chance = random.Random(seed)
    shares = [chance.uniform(0.9, 1.1) for _ in range(1000)]

    def trembling(rate: Rate) -> Rate:
        return lambda now_s: rate(now_s) * shares[int(now_s * 10)]

    some = {address: trembling(rate) for address, rate in SOME.items()}
    here = counted_late("adaptive", some, 0.5, unit="source-mac").run_until(JUMP_S + 10.0)
    assert JUMP_S < moved(here, 0.0)[0].at_s <= JUMP_S + 1.5 + 0.6


def test_addresses_carry_no_more_than_their_port() -> None:
    here = counted_late("adaptive", SOME, 0.0, unit="source-mac").run_until(15.0)
    for address in here.switch.sent_by_address:
        # What they have sent for seconds is counted in one reading.
        here.switch.sent_by_address[address] += 10_000_000
    here.run_until(16.2)
    team_view = here.bridge.placing.team_view()
    behind_bps = [u.load.tx_bps for u in team_view.loaded() if u.behind == "vnet0"]
    assert sum(behind_bps) <= team_view.loads.port(10, None).tx_bps * 1.001
    assert max(behind_bps) <= 8e6
