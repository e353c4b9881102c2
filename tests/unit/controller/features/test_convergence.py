"""Settling ends with the last move before policies have nothing more to move."""

from __future__ import annotations

from controller.features.polls import ConvergenceTimer


def test_from_the_first_move_to_the_last_confirmation_each_time_anew() -> None:
    timer = ConvergenceTimer()
    for first_s in (10.0, 99.0):
        for moved_s in (first_s, first_s + 2.0):
            timer.start(moved_s)
            timer.confirm_moves(moved_s + 0.25)
        assert timer.stop() == 2.25
        assert timer.stop() is None, "at rest since"


def test_moves_of_operators_and_refused_ones_are_none() -> None:
    timer = ConvergenceTimer()
    timer.confirm_moves(3.0)
    assert timer.stop() is None
    timer.start(4.0)
    assert timer.stop() is None, "the switch has confirmed nothing"
