"""Evening out what uplinks send: fewer moves, never worse, and an end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from policies.model import Load, OfPort, Role, Snapshot, Unit, Uplink
from policies.planners.rebalance import LEAST_DIFFERENCE_RATIO, even_out, rest
from policies.verdicts import Rest, WhyAtRest
from tests.unit.policies import placements

MBPS = 1e6
# A unit moves once in a round. Where capacities differ a hundredfold, 6,000 random teams took up to six.
ROUNDS = 10


def team(units: dict[str, tuple[str, float]], *capacities: float) -> Snapshot:
    """Units by name: where they are, and what they send in Mbit/s."""
    made = tuple(
        Unit(name, i, "dynamic", is_bucket=True, uplink=on, load=Load(tx_bps=mbps * MBPS))
        for i, (name, (on, mbps)) in enumerate(units.items())
    )
    uplinks = (Uplink(f"eth{i}", OfPort(i), mbps * MBPS) for i, mbps in enumerate(capacities, 1))
    return placements.loaded(Snapshot(tuple(uplinks), made))


def after(snapshot: Snapshot) -> Snapshot:
    return placements.after(snapshot, even_out(snapshot))


def ratios(snapshot: Snapshot) -> list[float]:
    return [uplink.utilization_ratio for uplink in snapshot.uplinks]


def test_one_full_uplink_is_evened_out_with_the_fewest_moves() -> None:
    units = {f"b{i}": ("eth1", 10.0) for i in range(8)}
    full = team(units, 100, 100)
    assert len(even_out(full).moves) == 4
    assert ratios(after(full)) == [0.4, 0.4]


def test_shares_count_rather_than_bytes() -> None:
    units = {f"b{i}": ("eth1", 10.0) for i in range(8)}
    assert ratios(after(team(units, 300, 100))) == [0.2, 0.2]


def test_a_slow_uplink_beside_a_fast_one_is_used() -> None:
    units = {f"b{i}": ("eth1", 7.3) for i in range(11)}
    (move,) = even_out(team(units, 100, 10)).moves
    assert (move.source, move.target) == ("eth1", "eth2")


def test_what_consists_of_many_small_units_is_divided_all_the_same() -> None:
    units = {f"b{i:03}": ("eth1", 0.32) for i in range(250)}
    many = team(units, 100, 100)
    first, second = ratios(after(many))
    assert abs(first - second) < LEAST_DIFFERENCE_RATIO


def test_noise_moves_nothing() -> None:
    units = {"a": ("eth1", 30.0), "b": ("eth1", 1.0), "c": ("eth2", 29.0)}
    assert even_out(team(units, 100, 100)).moves == ()


def test_a_connection_that_fills_an_uplink_stays_and_others_leave_it() -> None:
    units = {"elephant": ("eth1", 90.0), "mouse": ("eth1", 10.0), "other": ("eth2", 10.0)}
    (move,) = even_out(team(units, 100, 100)).moves
    assert (move.unit, move.target) == ("mouse", "eth2")


def test_nothing_goes_to_an_uplink_that_is_out_of_service() -> None:
    snapshot = team({f"b{i}": ("eth1", 10.0) for i in range(8)}, 100, 100, 100)
    one, down, standby = snapshot.uplinks
    uplinks = (one, replace(down, usable=False), replace(standby, role=Role.STANDBY))
    assert even_out(replace(snapshot, uplinks=uplinks)).moves == ()


def test_what_is_received_is_none_of_its_business() -> None:
    snapshot = team({"b0": ("eth1", 0.0), "b1": ("eth1", 0.0)}, 100, 100)
    one, two = snapshot.uplinks
    receiving = replace(snapshot, uplinks=(replace(one, load=Load(rx_bps=90 * MBPS)), two))
    assert even_out(receiving).moves == ()


def test_a_team_at_rest_says_why() -> None:
    even = team({"a": ("eth1", 30.0), "b": ("eth2", 29.0)}, 100, 100)
    assert rest(even) == Rest(WhyAtRest.EVEN, "eth1", "eth2")
    elephant = team({"a": ("eth1", 90.0), "b": ("eth2", 10.0)}, 100, 100)
    assert even_out(elephant).moves == ()
    assert rest(elephant) == Rest(WhyAtRest.NO_GAIN, "eth1", "eth2")
    assert rest(team({"a": ("eth1", 90.0)}, 100)) == Rest(WhyAtRest.ALONE)


@given(
    loads=st.lists(st.tuples(st.integers(1, 3), st.floats(0, 50)), max_size=40),
    capacities=st.lists(st.sampled_from((10.0, 100.0, 1000.0)), min_size=3, max_size=3),
)
@example(
    loads=[(1, 1.0), (2, 1.0), (2, 1.0), (2, 2.0), (2, 4.0), (2, 8.0)],
    capacities=[1000.0, 10.0, 10.0],
)
def test_the_worst_uplink_never_gets_worse_and_the_same_loads_move_nothing_more(
    loads: list[tuple[int, float]], capacities: list[float]
) -> None:
    units = {f"b{i}": (f"eth{on}", mbps) for i, (on, mbps) in enumerate(loads)}
    before = team(units, *capacities)
    evened = after(before)
    assert max(ratios(evened)) <= max(ratios(before)) + 1e-9
    for _ in range(ROUNDS):
        evened = after(evened)
    assert even_out(evened).moves == ()
    names = [move.unit for move in even_out(before).moves]
    assert len(names) == len(set(names))
    if max(ratios(before)) - min(ratios(before)) < LEAST_DIFFERENCE_RATIO:
        assert names == []
