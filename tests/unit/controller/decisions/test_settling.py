"""Settling ends with the last move before policies have nothing more to move."""

from __future__ import annotations

from controller.decisions.settling import Settling


def test_from_the_first_move_to_the_last_confirmation() -> None:
    settling = Settling()
    for moved_s in (10.0, 12.0):
        settling.moves(moved_s)
        settling.made(moved_s + 0.25)
    assert settling.rests() == 2.25
    assert settling.rests() is None, "at rest since"


def test_each_time_anew() -> None:
    settling = Settling()
    for moved_s in (10.0, 99.0):
        settling.moves(moved_s)
        settling.made(moved_s + 0.5)
        assert settling.rests() == 0.5


def test_moves_of_operators_and_refused_ones_are_none() -> None:
    settling = Settling()
    settling.made(3.0)
    assert settling.rests() is None
    settling.moves(4.0)
    assert settling.rests() is None, "the switch has confirmed nothing"
