"""Plans of the least worst utilization: against the exact optimum, and under rules."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import rules
from policies.model import Load, OfPort, Reason, Rules, Snapshot, Unit, Uplink
from policies.optimum import least_worst_ratio
from policies.planners import minmax, splitting
from policies.verdicts import Standing, WhyAtRest
from tests.unit.examples import examples
from tests.unit.policies import placements
from tests.unit.policies.placements import after, loaded, worst_ratio
from tests.unit.policies.units import changed

MBPS = 1e6


def team(ports: list[tuple[str, float, float]], *capacities_mbps: float) -> Snapshot:
    """VM ports as (uplink, Mbit/s sent, received), on eth1 and up; they are a, b, c…"""
    uplinks = tuple(
        Uplink(f"eth{i}", OfPort(i), mbps * MBPS) for i, mbps in enumerate(capacities_mbps, 1)
    )
    units = tuple(
        Unit(chr(ord("a") + i), i, uplink=uplink, load=Load(tx * MBPS, rx * MBPS))
        for i, (uplink, tx, rx) in enumerate(ports)
    )
    return loaded(Snapshot(uplinks, units))


def with_unit(snapshot: Snapshot, name: str, **fields: object) -> Snapshot:
    """The same, with what rules say of one of the units."""
    units = tuple(changed(u, **fields) if u.name == name else u for u in snapshot.units)
    return replace(snapshot, units=units, in_sets=tuple(u for u in units if u.rules.in_set))


def ways(snapshot: Snapshot) -> dict[str, tuple[str, str]]:
    plan = minmax.plan(snapshot)
    assert {move.reason for move in plan.moves} <= {Reason.REBALANCE}
    return {move.unit: (move.source, move.target) for move in plan.moves}


def test_one_move_is_made_where_one_does_it() -> None:
    four = [("eth1", 40.0, 0.0), ("eth1", 30.0, 0.0), ("eth1", 20.0, 0.0), ("eth2", 10.0, 0.0)]
    assert ways(team(four, 100, 100)) == {"a": ("eth1", "eth2")}


def test_little_gain_moves_nobody() -> None:
    snapshot = team([("eth1", 1, 0), ("eth1", 0.9, 0), ("eth2", 0.1, 0)], 100, 100)
    assert ways(snapshot) == {}
    assert minmax.rest(snapshot).why is WhyAtRest.NO_BETTER
    assert minmax.verdict(snapshot, "b").standing is Standing.NO_USE


@pytest.mark.parametrize(
    "fields",
    [
        {"pin": "eth1"},
        {"excluded": True},
        {"allowed": frozenset({"eth1"})},
        {"prefer": ("eth1",)},
        {"avoid": frozenset({"eth2"})},
        {"reserve_bps": 101 * MBPS},
    ],
    ids=["pin", "exclude", "allow", "prefer", "should-not", "reserve"],
)
def test_a_rule_holds_a_unit(fields: dict[str, object]) -> None:
    snapshot = team([("eth1", 50, 0), ("eth1", 40, 0)], 100, 100)
    assert set(ways(with_unit(snapshot, "a", **fields))) == {"b"}


def test_a_set_moves_as_one_and_stays_where_one_of_it_is_held() -> None:
    snapshot = team([("eth1", 20, 0), ("eth1", 20, 0), ("eth1", 45, 0)], 100, 100)
    held = with_unit(snapshot, "c", pin="eth1")
    together = with_unit(with_unit(held, "a", affinity="db"), "b", affinity="db")
    assert ways(together) == {"a": ("eth1", "eth2"), "b": ("eth1", "eth2")}
    assert ways(with_unit(together, "b", excluded=True)) == {}


def test_those_to_be_kept_apart_are_exchanged_but_never_joined() -> None:
    ports = [("eth1", 60.0, 0.0), ("eth1", 30.0, 0.0), ("eth2", 10.0, 0.0)]
    snapshot = team(ports, 100, 100)
    apart = with_unit(with_unit(snapshot, "b", anti_affinity="x"), "c", anti_affinity="x")
    for move in (plan := minmax.plan(apart)).moves:
        assert move.unit in {"a", "b", "c"}
    where = {unit.name: unit.uplink for unit in after(apart, plan).units}
    assert where["b"] != where["c"]
    assert worst_ratio(after(apart, plan)) == pytest.approx(0.7)


def test_a_move_is_promised() -> None:
    snapshot = team([("eth1", 40, 0), ("eth1", 40, 0)], 100, 100)
    verdicts = {name: minmax.verdict(snapshot, name).standing for name in "ab"}
    assert sorted(verdicts.values()) == [Standing.MOVES, Standing.NO_USE]


def test_an_uplink_out_of_service_is_no_target_and_no_source() -> None:
    snapshot = team([("eth1", 50, 0), ("eth1", 40, 0)], 100, 100)
    down = replace(
        snapshot, uplinks=(snapshot.uplinks[0], replace(snapshot.uplinks[1], usable=False))
    )
    assert ways(down) == {} and minmax.rest(down).why is WhyAtRest.ALONE
    gone = replace(
        snapshot, uplinks=(replace(snapshot.uplinks[0], usable=False), snapshot.uplinks[1])
    )
    assert minmax.verdict(gone, "a").standing is Standing.OUT_OF_SERVICE


@st.composite
def teams(draw: st.DrawFn) -> Snapshot:
    """Small teams with rules of all kinds, loads of uplinks a little beside those of units."""
    count = draw(st.integers(2, 4))
    names = [f"eth{i}" for i in range(count)]
    rate = st.one_of(st.just(0.0), st.floats(0, 80 * MBPS))
    some = st.frozensets(st.sampled_from(names), min_size=1)
    units = []
    for i in range(draw(st.integers(0, 12))):
        allowed = draw(st.one_of(st.none(), st.none(), some))
        units.append(
            Unit(
                f"vnet{i}",
                i,
                uplink=draw(st.sampled_from(sorted(allowed or names))),
                load=Load(draw(rate), draw(rate)),
                allowed=allowed,
                excluded=draw(st.integers(0, 9)) == 0,
                rules=Rules(
                    prefer=tuple(draw(st.one_of(st.just(()), st.just(()), some.map(sorted)))),
                    affinity=draw(st.sampled_from([None, None, None, "a", "b"])),
                    anti_affinity=draw(st.sampled_from([None, None, None, "x", "y"])),
                    reserve_bps=draw(st.sampled_from([0.0, 0.0, 40 * MBPS])),
                ),
            )
        )
    uplinks = []
    for i, name in enumerate(names):
        promised = sum(u.rules.reserve_bps for u in units if u.uplink == name)
        capacity = draw(st.sampled_from([100.0, 100.0, 250.0])) * MBPS
        uplinks.append(Uplink(name, OfPort(i), capacity, reserved_bps=promised))
    in_sets = tuple(unit for unit in units if unit.rules.in_set)
    return loaded(Snapshot(tuple(uplinks), tuple(units), in_sets=in_sets))


def together(snapshot: Snapshot) -> int:
    """How many pairs share an uplink that should be kept apart."""
    where = [(u.rules.anti_affinity, u.uplink) for u in snapshot.in_sets if u.rules.anti_affinity]
    return sum(count * (count - 1) // 2 for count in Counter(where).values())


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(teams())
def test_rules_hold_loads_fall_and_then_it_rests(snapshot: Snapshot) -> None:
    plan = minmax.plan(snapshot)
    assert plan == minmax.plan(snapshot)
    then = after(snapshot, plan)
    where = {unit.name: unit for unit in then.units}
    names = [move.unit for move in plan.moves]
    assert len(names) == len(set(names))
    for move in plan.moves:
        unit = where[move.unit]
        assert unit.movable and move.source != move.target == unit.uplink
        assert unit.allowed is None or unit.uplink in unit.allowed
    for uplink in snapshot.uplinks:
        promised = sum(u.rules.reserve_bps for u in then.units if u.uplink == uplink.name)
        assert promised <= max(uplink.capacity_bps, uplink.reserved_bps)
    before_ratio, after_ratio = worst_ratio(snapshot), worst_ratio(then)
    if plan.moves:
        assert before_ratio - after_ratio >= minmax.LEAST_GAIN_OF_CAPACITY_RATIO * (1 - 1e-9)
    assert after_ratio >= least_worst_ratio(snapshot.uplinks, snapshot.units) * (1 - 1e-9)
    assert together(then) <= together(snapshot)
    was, now = rules.found(snapshot.units), rules.found(then.units)
    for rule in set(rules.Rule) - {rules.Rule.ANTI_AFFINITY}:
        broken = [sum(bool(state.get(rule)) for state in states.values()) for states in (was, now)]
        assert broken[1] <= broken[0], rule


def ratio_of_plan(snapshot: Snapshot, best_ratio: float) -> float:
    """What a plan reaches, as a multiple of this."""
    return worst_ratio(after(snapshot, splitting.plan(snapshot))) / best_ratio


@pytest.mark.slow
def test_plans_are_close_to_the_optimum_and_never_beat_it() -> None:
    few = [
        placements.instance(seed, uplinks, units)
        for uplinks, units in ((2, 11), (3, 7), (4, 6))
        for seed in range(40)
    ]
    ratios = [ratio_of_plan(one, placements.best_ratio(one)) for one in few]
    assert min(ratios) >= 1.0 - 1e-6, "the oracle is wrong"
    assert statistics.median(ratios) <= 1.02
    assert max(ratios) <= 1.10


@pytest.mark.slow
def test_plans_of_large_teams_are_close_to_the_lower_bound() -> None:
    many = [placements.instance(seed) for seed in range(100)]
    ratios = [ratio_of_plan(one, least_worst_ratio(one.uplinks, one.units)) for one in many]
    assert statistics.median(ratios) <= 1.02


def test_constant_loads_give_no_second_round() -> None:
    for seed in range(60):
        snapshot = placements.instance(seed)
        then = after(snapshot, minmax.plan(snapshot))
        assert minmax.plan(then).moves == (), seed


def test_the_order_of_units_does_not_matter() -> None:
    for seed in range(10):
        snapshot = placements.instance(seed, units=40)
        backwards = replace(snapshot, units=snapshot.units[::-1])
        assert minmax.plan(backwards) == minmax.plan(snapshot)
