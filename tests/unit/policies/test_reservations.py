"""Rules and reservations: the best placement that uplinks have room for, and where it counts."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

import pytest

from policies import homes, placement
from policies.model import Load, OfPort, Rules, Snapshot, Unit, Uplink
from policies.planners import minmax, threshold
from policies.seating import Candidate
from tests.unit.policies.units import changed


def uplink(name: str, capacity_bps: float = 100.0, **more: object) -> Uplink:
    return Uplink(name, OfPort(1), capacity_bps, **more)  # type: ignore[arg-type]


def unit(number: int, reserve_bps: float, uplink: str | None = None, **more: object) -> Unit:
    made = Unit(f"vnet{number}", number, uplink=uplink)
    return changed(made, reserve_bps=reserve_bps, **more)


A_AND_B = (uplink("a"), uplink("b"))


def placed(units: Sequence[Unit]) -> str:
    """The homes of the units, in their order."""
    found = homes.homes(units, A_AND_B).by_name
    return "".join(found[unit.name] for unit in units)


# ---- by example ------------------------------------------------------------------------


def test_without_a_reservation_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "place", None)
    assert placed([unit(0, 0.0, "b"), unit(1, 0.0, "a")]) == "ba"
    assert placed([unit(0, 40.0, "b"), unit(1, 50.0, "b")]) == "bb", "all would fit anywhere"


# ---- what was chosen meanwhile ----------------------------------------------------------


def test_load_moves_nothing_to_an_uplink_that_cannot_promise_as_much() -> None:
    loaded = unit(0, 60e6, "a", load=Load(tx_bps=30e6))
    full = uplink("a", 100e6, load=Load(tx_bps=90e6), reserved_bps=60e6)
    for reserved_bps, moves in ((36e6, 0), (35e6, 1)):
        other = uplink("b", 100e6, reserved_bps=reserved_bps)
        snapshot = Snapshot((full, other), (loaded,))
        assert len(threshold.relieve_saturated(snapshot).moves) == moves
        assert len(minmax.plan(snapshot).moves) == moves


# ---- hundreds -----------------------------------------------------------------------------


def fitting(
    seed: int, units: int, uplinks: int, slack: float
) -> tuple[list[Candidate], dict[str, float]]:
    """Units with rules of which a placement is known that there is room for, but for none more."""
    draw = random.Random(seed)
    names = [f"eth{number}" for number in range(uplinks)]
    found, rooms = [], dict.fromkeys(names, slack)
    for number in range(units):
        reserve = float(draw.choice([draw.randint(1, 400), draw.randint(1, 50)]))
        rooms[draw.choice(names)] += reserve
        able = tuple(draw.sample(names, uplinks))
        sets = draw.choice([None, None, f"A{draw.randrange(units // 8)}"])
        ranks = tuple(draw.choice([0, 0, 0, 1]) for _ in able)
        rules = Rules(anti_affinity=sets, reserve_bps=reserve)
        found.append(Candidate(f"vm{number:03}", able, ranks, draw.choice(able), rules))
    return found, rooms


def excess_bps(
    some: Sequence[Candidate], placed: Mapping[str, str], rooms: Mapping[str, float]
) -> float:
    """What uplinks promise beyond their room."""
    left = dict(rooms)
    for one in some:
        left[placed[one.name]] -= one.rules.reserve_bps
    return -sum(min(0.0, room) for room in left.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("units", "uplinks", "slack"), [(16, 4, 0.0), (40, 6, 5.0), (150, 8, 40.0), (400, 4, 20.0)]
)
def test_what_fits_is_found_for_many(units: int, uplinks: int, slack: float) -> None:
    for seed in range(3):
        some, rooms = fitting(seed, units, uplinks, slack)
        assert excess_bps(some, placement.place(some, rooms), rooms) == 0


def test_four_hundred_on_two_dozen_uplinks_are_placed_in_time() -> None:
    some, rooms = fitting(0, 400, 24, 60.0)
    began_s = time.process_time()
    found = placement.place(some, rooms)
    assert time.process_time() - began_s < 3, "a quarter of a second, as far as measured"
    assert found.keys() == {c.name for c in some}
    without = placement.place(some)
    assert excess_bps(some, found, rooms) <= excess_bps(some, without, rooms) / 20


def test_who_has_room_is_placed_by_rules_alone() -> None:
    some, rooms = fitting(1, 400, 4, 1e6)
    assert placement.place(some, rooms) == placement.place(some)
