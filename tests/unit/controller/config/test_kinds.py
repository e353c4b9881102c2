"""What texts are read as, in the units that the rest of the program has."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from controller.config import kinds
from controller.config.keys import BRIDGE_KEYS
from controller.config.kinds import Choice, Kind
from policies.damping import Moved

NUMBER = kinds.amount("a number", 0, 1e99).parse
POLL_INTERVAL = BRIDGE_KEYS["poll-interval-ms"].takes


@pytest.mark.parametrize(
    ("kind", "text", "value", "expected"),
    [
        (BRIDGE_KEYS["threshold"].takes, "75", 0.75, "a percentage from 10 to 100"),
        (kinds.seconds(1, 86400), "7.5", 7.5, "a number of seconds from 1 to 86400"),
        (POLL_INTERVAL, "250", 0.25, "a number of milliseconds from 100 to 60000"),
        (kinds.MBPS, "2500", 2.5e9, "a rate in Mbit/s from 0.001 to 10000000"),
        (kinds.integer(1, 100), "50", 50, "an integer from 1 to 100"),
        (kinds.FLAG, "true", True, "one of on, off, true, false"),
        (kinds.FLAG, "on", True, "one of on, off, true, false"),
        (kinds.FLAG, "off", False, "one of on, off, true, false"),
        (kinds.name_in(("a", "b")), "b", "b", "one of a, b"),
    ],
)
def test_a_text_is_read_as_a_value(kind: Kind, text: str, value: object, expected: str) -> None:
    assert kind.parse(text) == value
    assert kind.expected == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((NUMBER, text) for text in ("٧٥", "７５", "1_0", " 75", "7,5", "9" * 41, "abc")),
        *((NUMBER, text) for text in ("-60", "+60", "60%", "30s", "1G", "0x3c", "nan")),
        *((NUMBER, text) for text in ("inf", "60\n", "60=60")),
        *((kinds.integer(1, 100).parse, text) for text in ("5.5", "５０", "1_0", "0", "101")),
        *((BRIDGE_KEYS["threshold"].parse, text) for text in ("6e400", "9.9", "100.1")),
        *((kinds.MBPS.parse, text) for text in ("1e99", "0", "-5")),
    ],
)
def test_what_people_do_not_write_or_a_kind_does_not_have_is_refused(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse(text)


def test_moves_are_read_as_they_are_written() -> None:
    moves = (Moved(1.5, 0), Moved(1_700_000_000.25, 3))
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
