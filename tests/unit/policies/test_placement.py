"""Units in sets: the placement found is the best there is, and does not go to and fro."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import homes, placement, rules
from policies.model import OfPort, Rules, Unit, Uplink
from policies.seating import Candidate
from tests.unit.examples import examples
from tests.unit.policies.placement_costs import AFFINE, NAMES, SETS, candidates, cost


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


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(candidates(5))
def test_no_placement_costs_less(tried: list[Candidate]) -> None:
    found = placement.place(tried)
    every = itertools.product(*(c.able for c in tried))
    ways = (dict(zip((c.name for c in tried), way, strict=True)) for way in every)
    assert cost(tried, found) == min(cost(tried, way) for way in ways)


# ---- musts, and no to and fro ----------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=examples(200))
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
@settings(max_examples=examples(200))
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
@settings(max_examples=examples(200))
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


def test_hundreds_in_sets_are_all_placed_with_few_pairs() -> None:
    many = [
        Candidate(
            f"vm{i}",
            NAMES,
            (0, 0, 0),
            NAMES[i * 7 % 3],
            Rules(affinity=f"X{i % 30}" if i < 120 else None, anti_affinity=f"A{i * i % 23}"),
        )
        for i in range(400)
    ]
    found = placement.place(many)
    assert found.keys() == {c.name for c in many}
    assert cost(many, found)[0] == 0, "affinity sets are together"
    assert cost(many, found)[1] <= 1.1 * _fewest_pairs(many)


def test_an_affinity_set_of_thousands_that_cannot_be_together_is_placed() -> None:
    ways = (NAMES[2:], NAMES[:2])
    many = [
        Candidate(
            f"vm{i:04}",
            ways[i % 2],
            (0,) * len(ways[i % 2]),
            rules=Rules(affinity="X", anti_affinity=f"A{i % 7}"),
        )
        for i in range(1500)
    ]
    assert placement.place(many).keys() == {c.name for c in many}


def _fewest_pairs(many: Sequence[Candidate]) -> int:
    """A bound: each anti-affinity set spread evenly by itself."""
    sizes = [len([c for c in many if c.rules.anti_affinity == f"A{i}"]) for i in range(23)]
    evenly = [[size // 3 + (i < size % 3) for i in range(3)] for size in sizes]
    return sum(n * (n - 1) // 2 for of_set in evenly for n in of_set)
