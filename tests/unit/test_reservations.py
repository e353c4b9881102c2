"""Reservations count against capacity wherever units are placed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from policies import homes, reservations
from policies.model import Load, OfPort, Snapshot, Unit, Uplink
from policies.planners import threshold


def uplink(name: str, capacity_bps: float, **more: object) -> Uplink:
    return Uplink(name, OfPort(1), capacity_bps, **more)  # type: ignore[arg-type]


def unit(number: int, reserve_bps: float, uplink: str | None = None, **more: object) -> Unit:
    return Unit(f"vnet{number}", number, uplink=uplink, reserve_bps=reserve_bps, **more)  # type: ignore[arg-type]


def excess_bps(homes: Mapping[str, str], units: Sequence[Unit], uplinks: Sequence[Uplink]) -> float:
    promised = {
        u.name: sum(x.reserve_bps for x in units if homes[x.name] == u.name) for u in uplinks
    }
    return sum(max(0.0, promised[u.name] - u.capacity_bps) for u in uplinks)


units_ = st.lists(
    st.tuples(
        st.integers(0, 60), st.sampled_from(["a", "b", "c"]), st.sampled_from([None, "a", "b"])
    ),
    max_size=6,
).map(lambda made: [unit(n, float(r), home, pin=pin) for n, (r, home, pin) in enumerate(made)])
uplinks_ = st.lists(st.integers(20, 150), min_size=3, max_size=3).map(
    lambda made: [uplink(name, float(c)) for name, c in zip("abc", made, strict=True)]
)


@given(units_, uplinks_)
def test_no_worse_than_without_and_at_rest_on_its_own_result(
    units: list[Unit], uplinks: list[Uplink]
) -> None:
    wished = {u.name: str(u.pin or u.uplink) for u in units}
    kept = reservations.kept(wished, units, uplinks)
    assert excess_bps(kept, units, uplinks) <= excess_bps(wished, units, uplinks)
    assert all(kept[u.name] == u.pin for u in units if u.pin)
    again = [
        Unit(u.name, u.number, uplink=kept[u.name], reserve_bps=u.reserve_bps, pin=u.pin)
        for u in units
    ]
    assert reservations.kept(kept, again, uplinks) == kept
    if excess_bps(wished, units, uplinks) == 0:
        assert kept == wished


@given(st.lists(st.sampled_from([10, 20, 40]), max_size=5))
def test_what_fits_is_found_where_sizes_divide_each_other(sizes: list[int]) -> None:
    """Then the largest first leaves no gap that a smaller one could not fill."""
    uplinks = [uplink("a", 80.0), uplink("b", 40.0)]
    units = [unit(n, float(size), "a") for n, size in enumerate(sizes)]
    best = min(
        excess_bps(dict(zip((u.name for u in units), places, strict=True)), units, uplinks)
        for places in itertools.product("ab", repeat=len(units))
    )
    if best == 0:
        kept = reservations.kept({u.name: "a" for u in units}, units, uplinks)
        assert excess_bps(kept, units, uplinks) == 0


def test_without_a_reservation_nothing_changes() -> None:
    known = {"vnet0": "a"}
    assert reservations.kept(known, [unit(0, 0.0, "a")], [uplink("a", 1.0)]) == known


def test_new_ports_go_where_their_reservation_fits() -> None:
    uplinks = [uplink("a", 100.0), uplink("b", 100.0)]
    units = [unit(number, 60.0) for number in (0, 2)]
    assert sorted(homes.homes(units, uplinks).by_name.values()) == ["a", "b"]


def test_a_vlan_that_only_one_carries_comes_first() -> None:
    uplinks = [uplink("a", 100.0), uplink("b", 100.0)]
    units = [unit(0, 60.0, "a"), unit(1, 60.0, "a", allowed=frozenset({"a"}))]
    assert homes.homes(units, uplinks).by_name == {"vnet0": "b", "vnet1": "a"}


def test_load_moves_nothing_to_an_uplink_that_cannot_promise_as_much() -> None:
    busy = unit(
        0,
        60e6,
        "a",
    )
    loaded = Unit("vnet0", 0, uplink="a", load=Load(tx_bps=30e6), reserve_bps=busy.reserve_bps)
    full = uplink("a", 100e6, load=Load(tx_bps=90e6), reserved_bps=60e6)
    for reserved_bps, moves in ((36e6, 0), (35e6, 1)):
        other = uplink("b", 100e6, reserved_bps=reserved_bps)
        assert len(threshold.relieve_saturated(Snapshot((full, other), (loaded,))).moves) == moves
