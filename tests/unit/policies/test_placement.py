"""Units in sets: the placement found is the best there is, and does not go to and fro."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import homes, placement, rules
from policies.model import OfPort, Rules, Unit, Uplink
from policies.seating import Candidate
from tests.unit.policies.placement_costs import AFFINE, NAMES, SETS, candidates, cost
from tests.unit.policies.units import changed


@st.composite
def units(draw: st.DrawFn, most: int = 5) -> list[Unit]:
    some = st.frozensets(st.sampled_from(NAMES), min_size=1)
    found = []
    for number in range(draw(st.integers(1, most))):
        prefer = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
        found.append(
            Unit(
                f"vm{number}",
                number,
                draw(st.sampled_from(["load-based", "explicit"])),
                uplink=draw(st.sampled_from([None, *NAMES])),
                allowed=draw(st.none() | some),
                rules=Rules(
                    pin=draw(st.sampled_from([None, None, *NAMES])),
                    prefer=tuple(prefer),
                    avoid=frozenset(draw(st.sets(st.sampled_from(NAMES), max_size=1)))
                    - set(prefer),
                    affinity=draw(AFFINE),
                    anti_affinity=draw(SETS),
                ),
            )
        )
    return found


def team(*usable: bool) -> tuple[Uplink, ...]:
    return tuple(
        Uplink(name, OfPort(i), 1e9, usable=up)
        for i, (name, up) in enumerate(zip(NAMES, usable, strict=False), 1)
    )


TEAMS = st.builds(team, st.booleans(), st.booleans(), st.booleans())


def every(candidates: Sequence[Candidate]) -> list[dict[str, str]]:
    """All placements there are."""
    ways = itertools.product(*(c.able for c in candidates))
    return [dict(zip((c.name for c in candidates), way, strict=True)) for way in ways]


def named(
    name: str,
    able: str,
    *,
    current: str | None = None,
    affinity: str | None = None,
    anti_affinity: str | None = None,
) -> Candidate:
    """A candidate that may use the uplinks whose numbers are given."""
    uplinks = tuple(f"eth{number}" for number in able)
    return Candidate(name, uplinks, (0,) * len(uplinks), current, affinity, anti_affinity)


# ---- against brute force ---------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=400)
@given(candidates(5))
def test_no_placement_costs_less(tried: list[Candidate]) -> None:
    found = placement.place(tried)
    assert cost(tried, found) == min(cost(tried, other) for other in every(tried))


@pytest.mark.slow
@settings(max_examples=300)
@given(units(), TEAMS)
def test_what_breaks_no_rule_is_found_whenever_there_is_such_a_placement(
    placed: list[Unit], uplinks: tuple[Uplink, ...]
) -> None:
    """Of homes, and of where units are while links are down."""
    at_home = homes.homes(placed, uplinks).by_name
    targets = at_home | homes.targets(placed, uplinks, at_home)
    usable = [uplink.name for uplink in uplinks if uplink.usable]
    for where, serving in ((at_home, list(NAMES)), (targets, usable)):
        if serving and (ways := _keeping_pins(placed, serving)):
            best = min(_shoulds_broken(placed, way) for way in ways)
            if all(where[unit.name] in serving for unit in placed):
                assert (_shoulds_broken(placed, where) == 0) == (best == 0)


def _keeping_pins(placed: Sequence[Unit], serving: Sequence[str]) -> list[dict[str, str]]:
    """All placements in service that musts and pins leave; none where a unit may use none."""
    able = []
    for unit in placed:
        may = [name for name in serving if unit.allowed is None or name in unit.allowed]
        able.append([unit.rules.pin] if unit.rules.pin in may else may)
    ways = itertools.product(*able)
    return [dict(zip((u.name for u in placed), way, strict=True)) for way in ways]


def _shoulds_broken(placed: Sequence[Unit], where: Mapping[str, str]) -> int:
    there = [changed(unit, uplink=where[unit.name], pin=None) for unit in placed]
    return len(rules.broken(rules.found(there)))


# ---- musts, and no to and fro ----------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=200)
@given(units(most=12), TEAMS)
def test_musts_hold_and_whoever_may_use_an_uplink_in_service_does(
    placed: list[Unit], uplinks: tuple[Uplink, ...]
) -> None:
    at_home = homes.homes(placed, uplinks).by_name
    targets = homes.targets(placed, uplinks, at_home)
    usable = {uplink.name for uplink in uplinks if uplink.usable}
    for unit in placed:
        may = set(NAMES) if unit.allowed is None else set(unit.allowed)
        assert at_home[unit.name] in may
        assert unit.rules.pin not in may or at_home[unit.name] == unit.rules.pin
        if unit.rules.in_set and may & usable:
            assert targets.get(unit.name, at_home[unit.name]) in may & usable


@pytest.mark.slow
@settings(max_examples=200)
@given(units(most=12), TEAMS)
def test_placed_again_where_they_are_units_stay(
    placed: list[Unit], uplinks: tuple[Uplink, ...]
) -> None:
    first = homes.homes(placed, uplinks)
    there = [replace(unit, uplink=first.by_name[unit.name]) for unit in placed]
    assert homes.homes(there, uplinks).by_name == first.by_name
    assert homes.homes(there, uplinks, first.satisfied).by_name == first.by_name
    all_up = team(True, True, True)
    assert homes.targets(there, all_up, first.by_name) == {}, "the homes do while all serve"


@given(candidates(5), st.randoms())
def test_the_order_in_which_units_are_named_plays_no_part(
    tried: list[Candidate], random: object
) -> None:
    found = placement.place(tried)
    random.shuffle(tried)  # type: ignore[attr-defined]
    assert placement.place(tried) == found


@pytest.mark.slow
@settings(max_examples=200)
@given(units(), TEAMS)
def test_a_policy_is_let_move_nothing_that_breaks_a_rule_more(
    placed: list[Unit], uplinks: tuple[Uplink, ...]
) -> None:
    at_home = homes.homes(placed, uplinks).by_name
    there = [replace(unit, uplink=at_home[unit.name]) for unit in placed]
    before = rules.broken(rules.found(there))
    for unit in there:
        for target in NAMES:
            if rules.permits(unit, target, there):
                moved = [replace(u, uplink=target) if u is unit else u for u in there]
                after = rules.broken(rules.found(moved))
                mine = {key for key in after if key[0] == unit.name and key[1] != "pin"}
                assert mine <= before.keys()


# ---- by example ------------------------------------------------------------------------


def test_where_affinity_sets_touch_several_others_the_first_guess_is_not_the_answer() -> None:
    tried = [
        named("a", "01", affinity="Y", anti_affinity="B"),
        named("b", "012", affinity="Z", anti_affinity="C"),
        named("c", "012", affinity="Y", anti_affinity="B"),
        named("d", "12", affinity="Z", anti_affinity="B"),
        named("e", "0", affinity="X", anti_affinity="B"),
        named("f", "012", affinity="Y", anti_affinity="A"),
        named("g", "0", affinity="X", anti_affinity="C"),
    ]
    found = cost(tried, placement.place(tried))
    assert found == min(cost(tried, other) for other in every(tried)) == (0, 1, 0, 0, 6)


def test_hundreds_in_sets_are_all_placed_with_few_pairs() -> None:
    many = [
        Candidate(
            f"vm{i}",
            NAMES,
            (0, 0, 0),
            NAMES[i * 7 % 3],
            f"X{i % 30}" if i < 120 else None,
            f"A{i * i % 23}",
        )
        for i in range(400)
    ]
    found = placement.place(many)
    assert found.keys() == {c.name for c in many}
    assert cost(many, found)[0] == 0, "affinity sets are together"
    assert cost(many, found)[1] <= 1.1 * _fewest_pairs(many)


def test_an_affinity_set_of_thousands_that_cannot_be_together_is_placed() -> None:
    many = [
        named(f"vm{i:04}", "01" if i % 2 else "2", affinity="X", anti_affinity=f"A{i % 7}")
        for i in range(1500)
    ]
    assert placement.place(many).keys() == {c.name for c in many}


def _fewest_pairs(many: Sequence[Candidate]) -> int:
    """A bound: each anti-affinity set spread evenly by itself."""
    sizes = [len([c for c in many if c.anti_affinity == f"A{i}"]) for i in range(23)]
    evenly = [[size // 3 + (i < size % 3) for i in range(3)] for size in sizes]
    return sum(n * (n - 1) // 2 for of_set in evenly for n in of_set)
