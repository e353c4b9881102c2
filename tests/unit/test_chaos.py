"""The events of chaos on a real switch: the same for the same seed, and possible each time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.switch.chaos import model
from tests.switch.chaos.model import Event, State
from tests.switch.chaos.shrink import smallest

EVENTS = 500
VLANS = (None, 10, 10, 20)
FIRST = State.first(3, VLANS, lag=False)
FIRST_ON_A_LAG = State.first(2, VLANS, lag=True, negotiated=True, on_bond=True)
WATCHED = State.first(3, VLANS, watched=True)
ADAPTIVE = State.first(3, VLANS, adaptive=True)
WITH_A_STANDBY = State.first(2, VLANS, on_bond=True, standby=True)


def events(seed: int, first: State = FIRST, count: int = EVENTS) -> list[Event]:
    return list(itertools.islice(model.generate(first, seed), count))


def behind(happened: list[Event], first: State = FIRST) -> State:
    state = first
    for event in happened:
        state = model.after(state, event)
    return state


def test_a_seed_gives_the_same_events_again_and_behind_some_of_them_others() -> None:
    def behind_(done: int) -> list[Event]:
        return list(itertools.islice(model.generate(FIRST, 7, done), 100))

    assert behind_(0) == events(7, count=100) != events(8, count=100)
    assert behind_(30) == behind_(30) != behind_(0)
    assert model.only_possible(FIRST, found := behind_(30)) == found


@pytest.mark.slow
@pytest.mark.parametrize("first", [FIRST, FIRST_ON_A_LAG, WATCHED, ADAPTIVE, WITH_A_STANDBY])
def test_each_event_is_possible_behind_those_before(first: State) -> None:
    for seed in range(5):
        assert model.only_possible(first, found := events(seed, first)) == found


@pytest.mark.slow
def test_every_kind_of_event_happens() -> None:
    firsts = (FIRST_ON_A_LAG, ADAPTIVE, WITH_A_STANDBY)
    happened = {e.kind for first in firsts for seed in range(5) for e in events(seed, first)}
    assert happened == model.KINDS.keys()


def test_a_replay_file_says_all_of_it() -> None:
    found = events(1)
    assert model.from_text("# why\n" + model.as_text(found)) == found


@given(st.integers(0, 50), st.data())
def test_what_others_had_made_possible_goes_with_them(seed: int, data: st.DataObject) -> None:
    found = events(seed, count=40)
    kept = data.draw(st.lists(st.booleans(), min_size=40, max_size=40))
    left = model.only_possible(FIRST, [e for e, keep in zip(found, kept, strict=True) if keep])
    state = FIRST
    for event in left:
        assert model.possible(state, event)
        state = model.after(state, event)


# ---- by which uplinks a VM's frames may leave -------------------------------------------


STANDBY, DOWN = Event("role", ("u0", "standby")), Event("cable-down", ("u1",))


@pytest.mark.parametrize(
    ("happened", "exits"),
    [
        ([], {"u0", "u1", "u2"}),
        ([STANDBY, DOWN], {"u2"}),
        ([STANDBY, DOWN, Event("cable-down", ("u2",))], {"u0"}),
        ([Event("allow", ("v0", "u1")), DOWN], set()),
        ([Event("pin", ("v0", "u1"))], {"u1"}),
        ([Event("pin", ("v0", "u1")), DOWN], {"u0", "u2"}),
    ],
)
def test_by_those_that_it_may_use_and_of_these_by_the_best_that_serve(
    happened: list[Event], exits: set[str]
) -> None:
    assert behind(happened).exits("v0") == exits


# ---- the fewest that fail ---------------------------------------------------------------


@given(st.sets(st.integers(0, 38), max_size=3))
def test_the_fewest_that_fail_are_found(needed: set[int]) -> None:
    def fails(left: list[int]) -> bool:
        return needed <= set(left)

    assert smallest(list(range(40)), fails, tries=1000) == [*sorted(needed), 39]
