"""How often `adaptive` moves a VM port: a budget, a rest after each move, an end, and what is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.load.recent_loads import PEAK_S
from policies.damping import (
    CORRECTED_WITHIN_S,
    FIRST_COOLDOWN_S,
    FORGOTTEN_AFTER_S,
    GROWTH,
    LONGEST_COOLDOWN_S,
    MOST_MOVES,
    PERIOD_S,
    Damping,
    Moved,
)
from policies.model import Reason
from tests.said import says
from tests.unit.controller.engine import jumps
from tests.unit.controller.engine.told import explained, offer, steady
from tests.unit.fake_switch import World, moves, world
from tests.unit.rows import VMS, host, with_interface


@given(st.lists(st.floats(0.1, 60), max_size=60))
def test_no_period_has_more_moves_than_the_budget(waits_s: list[float]) -> None:
    damping, now_s, made = Damping(), 0.0, list[float]()
    for wait_s in waits_s:
        now_s += wait_s
        if "web" not in damping.in_cooldown(now_s):
            damping.note("web", now_s)
            made.append(now_s)
    for at_s in made:
        assert sum(0.0 <= other - at_s < PERIOD_S for other in made) <= MOST_MOVES


def test_rests_grow_up_to_an_hour() -> None:
    damping, now_s, rest_s = Damping(), 0.0, FIRST_COOLDOWN_S
    for _ in range(9):
        damping.note("web", now_s)
        free_s = damping.until_s("web", now_s)
        assert free_s >= now_s + min(rest_s, LONGEST_COOLDOWN_S)
        assert damping.in_cooldown(free_s - 0.1) == {"web"}
        assert damping.in_cooldown(free_s) == set()
        now_s, rest_s = free_s, GROWTH * rest_s
    assert damping.until_s("web", now_s - 1.0) - now_s <= LONGEST_COOLDOWN_S


def test_hours_without_a_move_take_rests_back() -> None:
    damping = Damping()
    for at_s in (0.0, 5.0, 25.0):
        damping.note("web", at_s)
    later_s = 25.0 + 2 * FORGOTTEN_AFTER_S
    damping.note("web", later_s)
    assert damping.until_s("web", later_s) == later_s + GROWTH * FIRST_COOLDOWN_S


def test_the_budget_holds_whatever_moves_are_for() -> None:
    damping = Damping()
    for at_s in range(MOST_MOVES):
        assert damping.spent(at_s) == set()
        damping.note("web", at_s, by_load=False)
    assert damping.spent(3.0) == {"web"} == damping.in_cooldown(3.0)
    assert damping.until_s("web", 3.0) == PERIOD_S
    assert damping.in_cooldown(PERIOD_S) == set(), "one that failed over need not rest"


def test_moves_of_before_a_restart_count() -> None:
    before, after = Damping(), Damping()
    for at_s in (0.0, 6.0, 40.0):
        before.note("web", at_s)
    later = tuple(Moved(move.at_s - 100.0, move.step) for move in before.remembered("web"))
    after.restore("web", later, now_s=-40.0)
    assert after.until_s("web", -40.0) == before.until_s("web", 60.0) - 100.0
    after.restore("web", (), now_s=-30.0)
    assert after.in_cooldown(-30.0) == {"web"}, "what is known here is better"


def test_moves_of_a_clock_that_was_ahead_do_not_count() -> None:
    damping = Damping()
    damping.restore("web", [Moved(1e9, step=3)], now_s=5.0)
    assert damping.in_cooldown(5.0) == set()


def test_what_is_gone_is_forgotten() -> None:
    damping = Damping()
    damping.note("web", 1.0)
    damping.keep({"db"})
    assert damping.in_cooldown(1.0) == set()


# ---- on a bridge -----------------------------------------------------------------------


def crowded(*loads: Callable[[float], float], poll_interval_ms: str = "100") -> World:
    """VMs on the first of two uplinks of 10 Gbit/s."""
    row = host("adaptive", binding="eth1", poll_interval_ms=poll_interval_ms)
    for vm in VMS:
        # So that none of them is split.
        row = with_interface(row, vm, binding="eth1", shares="50")
    here = world(row)
    here.switch.offered_bps = {10 + i: load for i, load in enumerate(loads)}
    return here.start()


def moved_s(here: World) -> dict[str, list[float]]:
    """When each VM port moved."""
    made: dict[str, list[float]] = {}
    for entry in jumps.moved(here, 0.0):
        for moved in entry.moves:
            if moved.source:
                made.setdefault(str(moved.unit), []).append(entry.at_s)
    return made


def without_corrections(times_s: list[float]) -> list[float]:
    """The moves that count as steps: one that follows a step at once corrects it, and does not."""
    steps_s: list[float] = []
    corrected = False
    for at_s in times_s:
        corrected = bool(steps_s) and not corrected and at_s - steps_s[-1] < CORRECTED_WITHIN_S
        if not corrected:
            steps_s.append(at_s)
    return steps_s


def most_moves(here: World) -> int:
    """The most of any VM port in any 180 s."""
    return max(
        (
            sum(0.0 <= other - at_s < PERIOD_S for other in times)
            for times in moved_s(here).values()
            for at_s in times
        ),
        default=0,
    )


def utilizations(here: World) -> list[float]:
    """Of both uplinks, what they send."""
    return [uplink.uplink.load.tx_bps / 1e10 for uplink in here.status.uplinks]


@pytest.mark.slow
def test_constant_load_is_settled_within_seconds_and_stays() -> None:
    here = crowded(*map(steady, (3e9, 2.5e9, 1e9, 2e9))).run_until(3)
    assert moves(here)["rebalance"] in (1, 2)
    assert max(utilizations(here)) <= 0.45
    before = moves(here)
    here.run_for(120)
    assert moves(here) == before


@pytest.mark.slow
def test_a_jump_is_settled_before_a_queue_is_full_for_long() -> None:
    """Two VMs of one uplink jump to more than it can carry, at any moment between two polls."""
    for phase_s in (0.001, 0.03, 0.06, 0.099):
        jump_s = 20 + phase_s
        here = crowded(*(jump(jump_s, 1e9, 6e9),) * 2, *(steady(1e9),) * 2)
        for vm in ("vnet0", "vnet1"):
            here.bridge.placing.planned.place(vm, "eth2", Reason.MANUAL)
        here.run_until(jump_s)
        (left_by,) = {here.bindings()[vm] for vm in ("vnet0", "vnet1")}
        here.run_until(jump_s + 0.35)
        assert len({here.bindings()[vm] for vm in ("vnet0", "vnet1")}) == 2, phase_s
        made_s = [at_s for at_s, changes in here.applied() if at_s > jump_s]
        assert made_s[0] - jump_s < 0.21, "with the second reading"
        here.run_for(30)
        assert moves(here)["rebalance"] <= 4 and max(utilizations(here)) < 0.75, left_by


@pytest.mark.slow
def test_noise_moves_nobody() -> None:
    random = Random(1)
    here = crowded(*([lambda _: 2e9 * random.uniform(0.85, 1.15)] * 4)).run_until(20)
    before = moves(here)
    here.run_for(120)
    assert moves(here) == before


def jump(at_s: float, low_bps: float, high_bps: float) -> Callable[[float], float]:
    return lambda now_s: low_bps if now_s < at_s else high_bps


def square(period_s: float, low_bps: float, high_bps: float) -> Callable[[float], float]:
    return lambda now_s: high_bps if now_s % period_s < period_s / 2 else low_bps


def saw(period_s: float, low_bps: float, high_bps: float) -> Callable[[float], float]:
    return lambda now_s: low_bps + (high_bps - low_bps) * math.modf(now_s / period_s)[0]


SHAPES = st.sampled_from([square, saw])
HIGH_BPS = st.lists(st.floats(1e9, 9e9), min_size=len(VMS), max_size=len(VMS))


def periods_s(least_s: float, most_s: float) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(least_s, most_s), min_size=len(VMS), max_size=len(VMS))


Shape = Callable[[float, float, float], Callable[[float], float]]


@pytest.mark.slow
@settings(max_examples=4)
@given(SHAPES, periods_s(0.3, PEAK_S / 2), HIGH_BPS)
def test_a_load_that_repeats_itself_within_the_peak_ends_in_one_placement(
    shape: Shape, periods_s: list[float], high_bps: list[float]
) -> None:
    ways = [shape(p, 0.05 * bps, bps) for p, bps in zip(periods_s, high_bps, strict=True)]
    # A move must help at the moment, too, and periods without a common multiple meet late.
    here = crowded(*ways).run_until(120)
    before = here.bindings()
    here.run_for(30)
    assert here.bindings() == before


@pytest.mark.slow
@settings(max_examples=6)
@given(SHAPES, periods_s(5, 900), HIGH_BPS)
@example(saw, [64.89, 12.0, 866.18, 405.27], [4.679e9, 7.173e9, 1e9, 6.408e9])
def test_no_period_makes_a_vm_port_go_back_and_forth(
    shape: Shape, periods_s: list[float], high_bps: list[float]
) -> None:
    """However long it goes on, each next move of one takes four times as long to come."""
    ways = [shape(p, 0.05 * bps, bps) for p, bps in zip(periods_s, high_bps, strict=True)]
    here = crowded(*ways, poll_interval_ms="1000").run_until(1200)
    assert most_moves(here) <= MOST_MOVES
    for times in map(without_corrections, moved_s(here).values()):
        assert len(times) <= math.log(1200 / FIRST_COOLDOWN_S, GROWTH) + 2
        rests_s = [later - at_s for at_s, later in pairwise(times)]
        for step, rest_s in enumerate(rests_s):
            assert rest_s >= FIRST_COOLDOWN_S * GROWTH**step


@pytest.mark.slow
@settings(max_examples=3)
@given(st.integers(0, 1000))
def test_no_random_load_spends_more_than_the_budget(seed: int) -> None:
    random = Random(seed)
    levels = [[9e9 * random.random() ** 3 for _ in range(200)] for _ in VMS]
    here = crowded(*(lambda now_s, of=of: of[int(now_s / 1.7) % 200] for of in levels))
    here.run_until(60)
    assert most_moves(here) <= MOST_MOVES


@pytest.mark.slow
def test_operators_moves_count_and_are_never_refused() -> None:
    here = crowded(*map(steady, (0.0,) * 4)).run_until(10)
    for target in ("eth2", "eth1", "eth2", "eth1", "eth2"):
        here.do(f"move vnet0 {target}").run_for(2)
    offer(here, [4e9])
    here.do("set interface vnet1 exclude=true")
    here.do("move vnet1 eth2")
    offer(here, (4e9, 5e9)).run_for(PERIOD_S - 30)
    assert here.bindings()["vnet0"] == "eth2", "its budget is spent"
    assert explained(here, "vnet0")["against"] == "budget-spent"
    here.run_for(40)
    assert here.bindings()["vnet0"] == "eth1"


@pytest.mark.slow
def test_the_budget_is_remembered_across_restarts() -> None:
    here = crowded(*map(steady, (5e9, 4e9, 0.0, 0.0))).run_until(10)
    (moved,) = [name for name, uplink in here.bindings().items() if uplink == "eth2"]
    ofport = 10 + int(moved[-1])
    for target in ("eth1", "eth2", "eth1"):
        here.do(f"move {moved} {target}")
    here.restart_service()
    here.run_for(60)
    assert here.bindings()[moved] == "eth1", "it has moved four times"
    here.switch.offered_bps[ofport] = steady(6e9)
    here.run_for(PERIOD_S)
    assert set(here.bindings().values()) == {"eth1", "eth2"}


# ---- what operators are told -----------------------------------------------------------


def on_one_uplink(*loads_bps: float) -> World:
    return offer(world(host("adaptive", binding="eth1")), loads_bps).start()


def test_one_that_load_has_moved_rests_for_a_while() -> None:
    here = on_one_uplink(6e9, 5e9, 0.0, 0.0)
    while "eth2" not in here.bindings().values():
        here.run_for(0.5)
        assert here.now_s < 30
    (moved,) = [name for name, uplink in here.bindings().items() if uplink == "eth2"]
    found = explained(here, moved)
    assert found["against"] == "resting"
    left_s = found["rests_until"] - here.now_s
    assert 0.0 < left_s <= 5.0
    assert says(found["said"]["now"], "cooldown", f"{-int(-left_s // 1)} s", "until 00:00:")
    assert found["said"]["to change"].endswith(f": ovs-lbt move {moved} UPLINK")
    assert here.status.budgets_spent == 0
    here.run_for(left_s + 2)
    found = explained(here, moved)
    assert (found["against"], found["rests_until"]) == ("no-use", None)
