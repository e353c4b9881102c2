"""Whether moves are worth making: by what they gain, and by how many addresses they move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from policies import gain
from policies.gain import LEAST_GAIN_PER_ADDRESS_RATIO, MOST_AT_ONCE, NEARLY_FULL_RATIO
from policies.model import Load, Move, OfPort, Plan, Reason, Snapshot, Unit, Uplink
from policies.planners import splitting
from tests.unit.policies.placements import loaded

CAPACITY_BPS = 100e6


def team(
    places: Iterable[tuple[int, Load]],
    capacities_bps: Sequence[float] = (CAPACITY_BPS, CAPACITY_BPS),
    divisible: bool = False,
) -> Snapshot:
    """Uplinks eth1 and up, and units: the number of the uplink where each is, and its load."""
    units = tuple(
        Unit(f"vm{n:02}", n, uplink=f"eth{at}", load=load, divisible=divisible)
        for n, (at, load) in enumerate(places)
    )
    uplinks = (Uplink(f"eth{n}", OfPort(n), bps) for n, bps in enumerate(capacities_bps, 1))
    return loaded(Snapshot(tuple(uplinks), units))


def on_the_first(*sent_bps: float) -> Snapshot:
    return team((1, Load(bps)) for bps in sent_bps)


def moving(*numbers: int) -> Plan:
    return Plan(tuple(Move(f"vm{n:02}", "eth1", "eth2", Reason.REBALANCE) for n in numbers))


def test_idle_units_are_not_evened_out() -> None:
    snapshot = on_the_first(*[0.5e6] * 12)
    plan = splitting.plan(snapshot)
    assert len(plan.moves) == 6, "3 points for six of them"
    assert gain.worthwhile(plan, snapshot).moves == ()


def test_each_address_that_moves_has_its_price() -> None:
    snapshot = on_the_first(10e6, 5e6, 5e6)
    assert len(gain.worthwhile(moving(1, 2), snapshot).moves) == 2
    dear = gain.worthwhile(moving(1, 2), snapshot, each_ratio=0.06)
    assert [move.unit for move in dear.moves] == [], "5 points for one, 10 for two"
    assert gain.worthwhile(moving(0), snapshot, each_ratio=0.06).moves


def test_where_all_are_not_worth_it_the_largest_may_be() -> None:
    snapshot = on_the_first(10e6, 9e6, *[0.2e6] * 30)
    many = moving(1, *range(2, 17))
    chosen = gain.worthwhile(many, snapshot).moves
    assert [move.unit for move in chosen] == [f"vm{n:02}" for n in range(1, 9)]
    assert LEAST_GAIN_PER_ADDRESS_RATIO * MOST_AT_ONCE > 0.12


def test_nothing_is_too_dear_where_an_uplink_is_nearly_full() -> None:
    small_bps = 0.5e6
    units = round(NEARLY_FULL_RATIO * CAPACITY_BPS / small_bps)
    snapshot = on_the_first(*[small_bps] * units)
    plan = moving(*range(20))
    assert len(gain.worthwhile(plan, snapshot).moves) == 20
    assert len(gain.worthwhile(plan, on_the_first(*[small_bps] * (units - 2))).moves) < 20


def test_where_no_unit_carries_the_price_of_an_address_no_plan_is_asked_for() -> None:
    assert not gain.is_possible(on_the_first(*[0.9e6] * 12))
    assert gain.is_possible(on_the_first(1.1e6, *[0.9e6] * 11))
    units = round(NEARLY_FULL_RATIO * CAPACITY_BPS / 0.9e6) + 1
    assert gain.is_possible(on_the_first(*[0.9e6] * units)), "nothing is too dear there"


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.floats(0.0, 4e6), st.floats(0.0, 4e6)),
        min_size=1,
        max_size=20,
    ),
    st.tuples(*[st.sampled_from([25e6, 100e6, 400e6])] * 3),
)
def test_no_plan_is_worth_it_where_none_may_be(
    sent: list[tuple[int, float, float]], capacities_bps: tuple[float, ...]
) -> None:
    snapshot = team(((at, Load(tx, rx)) for at, tx, rx in sent), capacities_bps)
    if not gain.is_possible(snapshot):
        assert gain.worthwhile(splitting.plan(snapshot), snapshot).moves == ()


LOAD = st.floats(0.0, 60e6)


@given(
    st.lists(st.tuples(st.integers(1, 3), LOAD, LOAD, LOAD, LOAD), min_size=1, max_size=12),
    st.tuples(*[st.sampled_from([50e6, 100e6, 400e6])] * 3),
    st.booleans(),
)
def test_no_plan_for_peaks_is_worth_it_now_where_none_may_help_now(
    units: list[tuple[int, float, float, float, float]],
    capacities_bps: tuple[float, ...],
    divisible: bool,
) -> None:
    now = [(at, Load(tx, rx)) for at, tx, rx, *_ in units]
    highest = [(at, Load(tx + more_tx, rx + more_rx)) for at, tx, rx, more_tx, more_rx in units]
    latest, peaks = (team(places, capacities_bps, divisible) for places in (now, highest))
    if not gain.may_help_now(latest, peaks):
        for planned in (peaks, latest):
            plan = splitting.plan(planned)
            assert gain.worthwhile(plan, latest, each_ratio=0.0).moves == ()


def test_a_split_that_peaks_ask_for_may_help_now() -> None:
    now, high, higher = (team([(1, Load(bps))], divisible=True) for bps in (50e6, 85e6, 95e6))
    assert gain.may_help_now(now, higher)
    assert not gain.may_help_now(now, high), "it fills one of the uplinks wherever it is"
