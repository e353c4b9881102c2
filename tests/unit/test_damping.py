"""How often `adaptive` moves a VM port: a budget, a rest after each move, and an end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.events import Record
from controller.history import Happened
from policies.damping import MOST_MOVES, PERIOD_S, RESTS_S, Damping
from tests.unit.fake_switch import World, done, moves, world
from tests.unit.rows import VMS, host


@given(st.lists(st.floats(0.1, 60), max_size=60))
def test_no_period_has_more_moves_than_the_budget(waits_s: list[float]) -> None:
    damping, now_s, made = Damping(), 0.0, list[float]()
    for wait_s in waits_s:
        now_s += wait_s
        if "web" not in damping.resting(now_s):
            damping.note("web", now_s)
            made.append(now_s)
    for at_s in made:
        assert sum(0.0 <= other - at_s < PERIOD_S for other in made) <= MOST_MOVES


def test_rests_grow_and_are_forgotten() -> None:
    damping = Damping()
    for rest_s in RESTS_S:
        damping.note("web", 100.0)
        assert damping.resting(100.0 + rest_s - 0.1) == {"web"}
        assert damping.resting(100.0 + rest_s) == set()
    damping.note("web", 110.0)
    assert damping.resting(100.0 + PERIOD_S - 0.1) == {"web"}
    assert damping.resting(100.0 + PERIOD_S) == set()
    assert damping.resting(110.0 + PERIOD_S) == set()


def test_what_is_gone_is_forgotten() -> None:
    damping = Damping()
    damping.note("web", 1.0)
    damping.keep({"db"})
    assert damping.resting(1.0) == set()


# ---- on a bridge -----------------------------------------------------------------------


def crowded(*loads: Callable[[float], float]) -> World:
    """VMs on the first of two uplinks of 10 Gbit/s."""
    here = world(host("adaptive", binding="eth1"))
    here.switches["br0"].offered_bps = {10 + i: load for i, load in enumerate(loads)}
    return here.start()


def most_moves(here: World) -> int:
    """The most of any VM port in any 180 s."""
    made: dict[str, list[float]] = {}
    for entry in [command.entry for _, command in here.log if isinstance(command, Record)]:
        for moved in entry.moves if entry.happened is Happened.MOVED else ():
            if moved.source:
                made.setdefault(str(moved.unit), []).append(entry.at_s)
    return max(
        (
            sum(0.0 <= other - at_s < PERIOD_S for other in times)
            for times in made.values()
            for at_s in times
        ),
        default=0,
    )


def steady(bps: float) -> Callable[[float], float]:
    return lambda _now_s: bps


def test_constant_load_is_settled_within_seconds_and_stays() -> None:
    here = crowded(*map(steady, (3e9, 2.5e9, 1e9, 2e9))).run_until(6)
    assert moves(here)["rebalance"] in (1, 2)
    used = [uplink.load.tx_bps for uplink in here.engine.status()[0].uplinks]
    assert max(used) <= 4.5e9
    before = moves(here)
    here.run_for(600)
    assert moves(here) == before


def test_noise_moves_nobody() -> None:
    random = Random(1)
    here = crowded(*([lambda _: 2e9 * (1 + random.uniform(-0.03, 0.03))] * 4)).run_until(10)
    before = moves(here)
    here.run_for(300)
    assert moves(here) == before


def square(period_s: float, low_bps: float, high_bps: float) -> Callable[[float], float]:
    return lambda now_s: high_bps if now_s % period_s < period_s / 2 else low_bps


def saw(period_s: float, low_bps: float, high_bps: float) -> Callable[[float], float]:
    return lambda now_s: low_bps + (high_bps - low_bps) * math.modf(now_s / period_s)[0]


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from([square, saw]),
    st.lists(st.floats(0.3, 120), min_size=len(VMS), max_size=len(VMS)),
    st.lists(st.floats(1e9, 9e9), min_size=len(VMS), max_size=len(VMS)),
)
def test_no_periodic_load_spends_more_than_the_budget(
    shape: Callable[[float, float, float], Callable[[float], float]],
    periods_s: list[float],
    high_bps: list[float],
) -> None:
    ways = [shape(p, 0.05 * bps, bps) for p, bps in zip(periods_s, high_bps, strict=True)]
    here = crowded(*ways).run_until(240)
    assert most_moves(here) <= MOST_MOVES


def test_operators_moves_count_and_are_never_refused() -> None:
    here = crowded(*map(steady, (0.0,) * 4)).run_until(10)
    for target in ("eth2", "eth1", "eth2", "eth1", "eth2"):
        done(here.ask("move", "vnet0", target))
        here.run_for(2)
    here.switches["br0"].offered_bps = {10: steady(4e9), 11: steady(0.0)}
    done(here.ask("move", "vnet1", "eth2"))
    here.switches["br0"].offered_bps = {10: steady(4e9), 11: steady(5e9)}
    here.run_for(20)
    assert here.bindings()["vnet0"] == "eth2", "its budget is spent"
    found = json.loads(done(here.ask("explain", "vnet0", "--json")))
    assert found["against"] in ("held-by-rule", "excluded")


@pytest.mark.parametrize("policy", ["load-based"])
def test_other_policies_have_no_budget(policy: str) -> None:
    here = world(host(policy, binding="eth1", window_s="1"))
    here.switches["br0"].offered_bps = {10: steady(5e9), 11: steady(4e9)}
    here.start().run_until(3)
    for target in ("eth2", "eth1", "eth2", "eth1"):
        done(here.ask("move", "vnet0", target))
    here.run_for(10)
    assert here.bindings()["vnet0"] != here.bindings()["vnet1"]
