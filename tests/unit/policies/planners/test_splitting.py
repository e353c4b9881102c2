"""When VM ports are divided: only where no placement of whole ones does, and not for little."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.gain import HIGH_RATIO
from policies.model import Load, Move, OfPort, Plan, Reason, Snapshot, Unit, Uplink
from policies.planners import minmax, splitting
from policies.planners.splitting import GAIN_RATIO
from tests.unit.policies.placements import after, loaded

G = 1e9


def team(
    ports: dict[str, tuple[str, float]], uplinks: int = 2, **more: tuple[str, float, float]
) -> Snapshot:
    """VM ports by name: where they are, and what they send in Gbit/s, of 10.

    `more`: split ones, which also send that much by a bucket on each uplink alike.
    """
    names = [f"eth{n}" for n in range(1, uplinks + 1)]
    units = [
        Unit(name, n, "adaptive", uplink=at, load=Load(tx_bps=g * G), divisible=True)
        for n, (name, (at, g)) in enumerate(ports.items(), 10)
    ]
    for n, (name, (at, sent, received)) in enumerate(more.items(), 50):
        load = Load(rx_bps=received * G)
        units.append(
            Unit(name, n, "adaptive", uplink=at, load=load, spread=True, spread_bps=sent * G)
        )
    total_bps = sum(sent for _, sent, _ in more.values()) * G
    for n in range(16 if more else 0):
        at = names[n % uplinks]
        load = Load(tx_bps=total_bps / 16)
        units.append(Unit(f"adaptive/{n}", n, "adaptive", is_bucket=True, uplink=at, load=load))
    team = tuple(Uplink(name, OfPort(n), 10 * G) for n, name in enumerate(names, 1))
    return loaded(Snapshot(team, tuple(units)))


def ways(plan: Plan) -> set[tuple[str, str, str]]:
    return {(move.unit, move.target, move.reason.value) for move in plan.moves}


def test_one_that_no_uplink_can_carry_is_divided() -> None:
    (move,) = splitting.plan(team({"hot": ("eth1", 15.0), "web": ("eth2", 1.0)})).moves
    assert (move.unit, move.source, move.target) == ("hot", "eth1", "eth1")
    assert move.reason is Reason.SPLIT
    assert dict(move.shares) == pytest.approx({"eth1": 8 / 15, "eth2": 7 / 15})


def test_as_few_as_suffice_are_divided() -> None:
    def planned(a: float, b: float, c: float) -> set[tuple[str, str, str]]:
        loads = {"a": ("eth1", a), "b": ("eth2", b), "c": ("eth3", c)}
        return ways(splitting.plan(team(loads, uplinks=3)))

    loads = {"a": ("eth1", 9.0), "b": ("eth1", 8.0), "c": ("eth2", 1.0)}
    assert ways(splitting.plan(team(loads))) == {("b", "eth2", "rebalance")}
    assert planned(16.0, 14.0, 0.1) == {("a", "eth1", "split"), ("b", "eth2", "split")}
    assert planned(16.0, 4.0, 4.0) == {("a", "eth1", "split")}


def test_what_may_not_be_divided_is_not() -> None:
    snapshot = team({"hot": ("eth1", 15.0)})
    held = tuple(replace(unit, divisible=False) for unit in snapshot.units)
    assert splitting.plan(replace(snapshot, units=held)).moves == ()


def test_buckets_go_where_they_even_out_what_is_sent() -> None:
    snapshot = team({"web": ("eth1", 4.0)}, hot=("eth1", 12.0, 1.0))
    plan = splitting.plan(snapshot)
    assert {reason for *_, reason in ways(plan)} == {"rebalance"}
    assert {unit.rpartition("/")[0] for unit, *_ in ways(plan)} == {"adaptive"}
    one, other = (uplink.load.tx_bps for uplink in after(snapshot, plan).uplinks)
    assert abs(one - other) <= 1.5 * 12 / 16 * G


def test_buckets_are_evened_out_although_what_is_received_cannot_be() -> None:
    snapshot = team({"web": ("eth2", 6.0)}, hot=("eth1", 8.0, 14.0))
    assert all(unit.startswith("adaptive/") for unit, *_ in ways(splitting.plan(snapshot)))
    assert splitting.plan(snapshot).moves


@pytest.mark.parametrize(
    ("sent", "beside", "cool"), [(3.0, 1.0, True), (9.0, 4.0, False), (0.0, 8.0, True)]
)
def test_one_is_cool_that_would_do_no_harm_as_a_whole(
    sent: float, beside: float, cool: bool
) -> None:
    plan = splitting.plan(team({"web": ("eth2", beside)}, hot=("eth1", sent, 0.0)))
    assert plan.mergeable == (("hot",) if cool else ())
    assert all(move.reason is not Reason.MERGE for move in plan.moves)


def test_one_that_was_cool_for_long_is_whole_again() -> None:
    snapshot = team({"web": ("eth2", 1.0)}, hot=("eth1", 3.0, 0.0))
    ripe = tuple(replace(unit, merge_due=unit.name == "hot") for unit in snapshot.units)
    plan = splitting.plan(replace(snapshot, units=ripe))
    assert ("hot", "eth1", "merge") in ways(plan)


LOADS = st.lists(
    st.tuples(st.sampled_from(["eth1", "eth2", "eth3"]), st.floats(0.0, 25.0)),
    min_size=1,
    max_size=8,
)


@given(LOADS)
def test_nothing_is_divided_that_whole_ports_would_relieve(loads: list[tuple[str, float]]) -> None:
    snapshot = team({f"vm{n}": load for n, load in enumerate(loads)}, uplinks=3)
    plan = splitting.plan(snapshot)
    divided = [move for move in plan.moves if move.reason is Reason.SPLIT]
    whole = _worst(snapshot, minmax.plan(snapshot).moves)
    if divided:
        assert whole > HIGH_RATIO
        assert whole - _worst(snapshot, plan.moves) >= GAIN_RATIO - 1e-9
    else:
        assert _worst(snapshot, plan.moves) <= whole * (1.0 + minmax.LEFT_OUT_RATIO) + 1e-9
    assert all(sum(s for _, s in move.shares) == pytest.approx(1.0) for move in divided)


@given(LOADS, st.floats(0.0, 20.0))
def test_what_is_cool_would_not_be_divided_again(
    loads: list[tuple[str, float]], sent: float
) -> None:
    others = {f"vm{n}": load for n, load in enumerate(loads)}
    plan = splitting.plan(team(others, uplinks=3, hot=("eth1", sent, 0.0)))
    if "hot" not in plan.mergeable:
        return
    merged = team({**others, "hot": ("eth1", sent)}, uplinks=3)
    alone = tuple(replace(unit, divisible=unit.name == "hot") for unit in merged.units)
    assert ("hot", "eth1", "split") not in ways(splitting.plan(replace(merged, units=alone)))


def _worst(snapshot: Snapshot, moves: tuple[Move, ...]) -> float:
    loads = {unit.name: unit.load for unit in snapshot.units}
    used = {uplink.name: uplink.load for uplink in snapshot.uplinks}
    for move in moves:
        for name, load in move.shifts(loads[move.unit]):
            used[name] += load
    return max(used[u.name].tx_bps / u.capacity_bps for u in snapshot.uplinks)
