"""The bound of what a placement can reach: never above the best there is, and close to it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.model import Load, OfPort, Role, Unit, Uplink
from policies.optimum import least_worst_ratio, optimality_ratio


def team(*capacities_bps: float) -> list[Uplink]:
    return [Uplink(f"eth{i}", OfPort(i), bps) for i, bps in enumerate(capacities_bps)]


def vm_ports(*loads: tuple[float, float]) -> list[Unit]:
    return [Unit(f"vnet{i}", i, load=Load(*load)) for i, load in enumerate(loads)]


def placed(uplinks: list[Uplink], units: list[Unit], where: tuple[int, ...]) -> list[Uplink]:
    """The uplinks with the loads of the units that are there."""
    loads = [Load() for _ in uplinks]
    for unit, index in zip(units, where, strict=True):
        loads[index] += unit.load
    return [
        Uplink(u.name, u.ofport, u.capacity_bps, u.role, u.usable, load)
        for u, load in zip(uplinks, loads, strict=True)
    ]


def worst(uplinks: list[Uplink]) -> float:
    return max(uplink.utilization_ratio for uplink in uplinks)


rates = st.floats(0, 1000)


@given(
    st.lists(st.sampled_from([10.0, 100.0, 400.0]), min_size=1, max_size=3),
    st.lists(st.tuples(rates, rates), max_size=6),
)
def test_no_placement_beats_the_bound(
    capacities: list[float], loads: list[tuple[float, float]]
) -> None:
    uplinks, units = team(*capacities), vm_ports(*loads)
    everywhere = itertools.product(range(len(uplinks)), repeat=len(units))
    found = [placed(uplinks, units, where) for where in everywhere]
    best = min(map(worst, found))
    for teamed in found:
        assert least_worst_ratio(teamed, units) <= best * (1 + 1e-9) + 1e-12
        assert optimality_ratio(teamed, units) >= 1.0 or worst(teamed) == 0.0


@pytest.mark.parametrize(
    ("capacities", "loads", "bound"),
    [
        ((100, 100), [(60, 0), (60, 0)], 0.6),
        ((100, 100), [(90, 0), (10, 0)], 0.9),
        ((100, 100), [(40, 0), (40, 0), (40, 0)], 0.8),
        ((100, 100), [(30, 0)] * 5, 0.9),
        ((100, 300), [(100, 0), (100, 0), (100, 0), (100, 0)], 1.0),
        ((100, 100), [(10, 70), (70, 10)], 0.7),
    ],
)
def test_small_cases_by_hand(
    capacities: tuple[float, ...], loads: list[tuple[float, float]], bound: float
) -> None:
    units = vm_ports(*loads)
    everything = placed(team(*capacities), units, (0,) * len(units))
    assert least_worst_ratio(everything, units) == pytest.approx(bound)


def test_an_idle_team_is_perfect_and_one_without_service_too() -> None:
    assert optimality_ratio(team(100, 100), []) == 1.0
    dark = [Uplink("eth0", OfPort(1), 100.0, usable=False)]
    assert optimality_ratio(dark, vm_ports((1, 1))) == 1.0


def test_uplinks_that_do_not_serve_are_no_room() -> None:
    units = vm_ports((60, 0), (60, 0))
    alone, spare = placed(team(100, 100), units, (0, 0))
    standby = Uplink("eth1", OfPort(1), 100.0, Role.STANDBY)
    assert optimality_ratio([alone, standby], units) == 1.0
    assert optimality_ratio([alone, spare], units) == 2.0


def test_a_unit_that_may_use_slow_uplinks_only_is_measured_by_them() -> None:
    (unit,) = vm_ports((90, 0))
    bound = Unit(unit.name, unit.number, load=unit.load, allowed=frozenset({"eth0"}))
    assert least_worst_ratio(placed(team(100, 1000), [bound], (0,)), [bound]) == 0.9


def test_loads_of_units_that_run_ahead_of_the_uplinks_never_make_it_better_than_perfect() -> None:
    (uplink, other) = team(100, 100)
    loaded = Uplink(uplink.name, uplink.ofport, 100.0, load=Load(50, 0))
    assert optimality_ratio([loaded, other], vm_ports((80, 0))) == 1.0
