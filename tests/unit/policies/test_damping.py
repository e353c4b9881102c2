"""When a cooldown begins or ends next: a replay skips polls until then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.damping import MOST_MOVES, PERIOD_S, Damping

UNITS = ["vnet0", "vnet1"]
MOVES = st.lists(
    st.tuples(st.sampled_from(UNITS), st.integers(1, 4000), st.booleans(), st.booleans()),
    min_size=1,
    max_size=9,
)


@given(moves=MOVES, after=st.integers(0, 3000))
def test_who_is_in_cooldown_stays_the_same_until_then(
    moves: list[tuple[str, int, bool, bool]], after: int
) -> None:
    damping, now_s = Damping(), 0.0
    for unit, tenths, by_load, provisional in moves:
        now_s += tenths / 10
        damping.note(unit, now_s, by_load, provisional)
    now_s += after / 10
    change_s, cooling = damping.next_change_s(now_s), damping.in_cooldown(now_s)
    assert change_s > now_s
    step_s = 0.1 if change_s - now_s < 200 else 7.3
    at_s = now_s
    while (at_s := at_s + step_s) < min(change_s, now_s + 4000):
        assert {unit for unit in UNITS if at_s < damping.until_s(unit, at_s)} == cooling
        assert damping.in_cooldown(at_s) == cooling


@given(moves=MOVES)
def test_what_is_remembered_of_cooldowns_is_what_follows_from_the_moves(
    moves: list[tuple[str, int, bool, bool]],
) -> None:
    damping, now_s = Damping(), 0.0
    for unit, tenths, by_load, provisional in moves:
        for _ in range(3):
            now_s += tenths / 30
            cooling = {name for name in UNITS if now_s < damping.until_s(name, now_s)}
            assert damping.in_cooldown(now_s) == cooling
        damping.note(unit, now_s, by_load, provisional)


def test_one_that_may_be_corrected_is_in_cooldown_when_that_is_over() -> None:
    damping = Damping()
    damping.note("vnet0", 10.0, provisional=True)
    assert damping.in_cooldown(11.0) == set() and damping.next_change_s(11.0) == 11.5
    assert damping.in_cooldown(11.5) == {"vnet0"} and damping.next_change_s(11.5) == 15.0
    assert damping.in_cooldown(15.0) == set() and damping.next_change_s(15.0) == float("inf")


def test_a_thousand_failovers_leave_as_many_moves_as_the_budget_has() -> None:
    damping = Damping()
    damping.note("vnet0", 0.0)
    for number in range(1000):
        damping.note("vnet0", 1.0 + number / 10, by_load=False)
    by_load, *others = damping.remembered("vnet0")
    assert by_load.step == 1 and len(others) == MOST_MOVES
    assert damping.until_s("vnet0", 101.0) == others[0].at_s + PERIOD_S
