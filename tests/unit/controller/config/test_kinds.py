"""Texts of several values, and what is left of a choice in a team."""

from __future__ import annotations

import pytest

from controller.config import kinds
from controller.config.kinds import Choice
from policies.damping import Moved


def test_moves_are_read_as_they_are_written() -> None:
    moves = (Moved(0.0, 0), Moved(1_700_000_000.25, 3))
    assert kinds.moves(kinds.moves_text(moves)) == moves


def test_a_choice_is_what_is_left_of_it_in_a_team_and_names_each_once() -> None:
    assert Choice.of("a, !b").within(["a", "b"]) == Choice(("a",), ("b",))
    assert Choice.of("a,c").within(["a", "b"]) == Choice(("a",), ())
    assert Choice.of("c").within(["a", "b"]) is None
    assert Choice.of("!a,!b").within(["a", "b"]) is None
    for text in ("a,a", "a,!a", "a,,b", "!"):
        with pytest.raises(ValueError, match=text):
            Choice.of(text)
    salvage = kinds.uplinks_of(["a", "b"]).salvage
    assert salvage and (salvage("a,c"), salvage("a,a")) == (Choice(("a",), ()), None)
