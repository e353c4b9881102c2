"""Whether moves are worth making: by what they gain, and by how many addresses they move."""

from __future__ import annotations

from policies import worth
from policies.model import Load, Move, OfPort, Plan, Reason, Snapshot, Unit, Uplink
from policies.planners import splitting
from policies.worth import MOST_AT_ONCE, NEARLY_FULL_RATIO, PRICE_RATIO

CAPACITY_BPS = 100e6


def on_the_first(*sent_bps: float) -> Snapshot:
    """Two uplinks, and all units on the first."""
    units = tuple(
        Unit(f"vm{n:02}", n, uplink="eth1", load=Load(tx_bps=bps)) for n, bps in enumerate(sent_bps)
    )
    return Snapshot(
        uplinks=(
            Uplink("eth1", OfPort(1), CAPACITY_BPS, load=Load(tx_bps=sum(sent_bps))),
            Uplink("eth2", OfPort(2), CAPACITY_BPS),
        ),
        units=units,
    )


def moving(*numbers: int) -> Plan:
    return Plan(tuple(Move(f"vm{n:02}", "eth1", "eth2", Reason.REBALANCE) for n in numbers))


def test_idle_units_are_not_evened_out() -> None:
    snapshot = on_the_first(*[0.5e6] * 12)
    plan = splitting.settle(snapshot)
    assert len(plan.moves) == 6, "3 points for six of them"
    assert worth.chosen(plan, snapshot).moves == ()


def test_each_address_that_moves_has_its_price() -> None:
    snapshot = on_the_first(10e6, 5e6, 5e6)
    assert len(worth.chosen(moving(1, 2), snapshot).moves) == 2
    dear = worth.chosen(moving(1, 2), snapshot, price_ratio=0.06)
    assert [move.unit for move in dear.moves] == [], "5 points for one, 10 for two"
    assert worth.chosen(moving(0), snapshot, price_ratio=0.06).moves


def test_where_all_are_not_worth_it_the_largest_may_be() -> None:
    snapshot = on_the_first(10e6, 9e6, *[0.2e6] * 30)
    many = moving(1, *range(2, 17))
    chosen = worth.chosen(many, snapshot).moves
    assert [move.unit for move in chosen] == [f"vm{n:02}" for n in range(1, 9)]
    assert PRICE_RATIO * MOST_AT_ONCE > 0.12


def test_nothing_is_too_dear_where_an_uplink_is_nearly_full() -> None:
    small_bps = 0.5e6
    units = round(NEARLY_FULL_RATIO * CAPACITY_BPS / small_bps)
    snapshot = on_the_first(*[small_bps] * units)
    plan = moving(*range(20))
    assert len(worth.chosen(plan, snapshot).moves) == 20
    assert len(worth.chosen(plan, on_the_first(*[small_bps] * (units - 2))).moves) < 20
