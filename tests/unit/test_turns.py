"""Which uplinks groups had in turn: a move is no flap, a return is one."""

from __future__ import annotations

from tests.switch.turns import Turns


def turns(*looks: dict[str, str]) -> Turns:
    made = Turns()
    for look in looks:
        made.look(look)
    return made


def test_what_stays_has_not_moved() -> None:
    seen = turns({"1": "5"}, {"1": "5"}, {"1": "5", "2": "6"})
    assert (seen.moved, seen.flapped) == (0, {})


def test_a_move_is_no_flap() -> None:
    seen = turns({"1": "5", "2": "5"}, {"1": "6", "2": "5"}, {"1": "7", "2": "5"})
    assert (seen.moved, seen.flapped) == (1, {})


def test_what_goes_back_has_flapped() -> None:
    seen = turns({"1": "5", "2": "5"}, {"1": "6", "2": "5"}, {"1": "5", "2": "5"})
    assert (seen.moved, seen.flapped) == (1, {"1": ["5", "6", "5"]})


def test_what_is_split_merged_and_split_again_has_flapped() -> None:
    assert turns({}, {"1": "5"}, {}).flapped == {}
    assert turns({}, {"1": "5"}, {}, {"1": "5"}).flapped == {"1": ["5", "", "5"]}
