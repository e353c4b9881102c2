"""Text in cells: what is drawn is as wide as it may be, whatever names contain."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.text import drawing
from controller.text.drawing import Column, Look, Span, Style

NAMES = st.text(max_size=40)


def cells(text: str) -> int:
    """How far a terminal's cursor goes, as the Unicode database has it."""
    wide = sum(unicodedata.east_asian_width(c) in ("W", "F") for c in text)
    return len(text) + wide


@given(NAMES)
def test_no_name_can_steer_a_terminal(name: str) -> None:
    cleaned = drawing.clean(name)
    assert len(cleaned) == len(name)
    assert all(c.isprintable() and not unicodedata.combining(c) for c in cleaned)
    assert drawing.width_of(cleaned) == cells(cleaned)


@given(NAMES.map(drawing.clean), st.integers(0, 50))
def test_a_shortened_name_fits_and_is_whole_where_there_is_room(name: str, width: int) -> None:
    short = drawing.shortened(name, width, "~")
    assert cells(short) <= width
    assert short == name or cells(name) > width


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("vnet10", 6, "vnet10"),
        ("instance-0000001a", 10, "insta~001a"),
        ("instance-0000001a", 2, "in"),
        ("虚拟机一号", 8, "虚拟~号"),
    ],
)
def test_a_name_keeps_its_beginning_and_its_end(name: str, width: int, short: str) -> None:
    assert drawing.shortened(name, width, "~") == short


@given(st.lists(NAMES, min_size=1, max_size=5), st.integers(0, 60))
def test_a_padded_line_is_as_wide_as_it_shall_be(texts: list[str], width: int) -> None:
    line = tuple(Span(drawing.clean(text)) for text in texts)
    drawn = drawing.plain(drawing.padded(line, width))
    assert width - 1 <= cells(drawn) <= width or cells(drawn) == width == 0


def test_a_bar_of_blocks_tells_half_cells() -> None:
    drawn = drawing.plain(drawing.bar(0.45, 0.75, 10, Look(80, unicode=True)))
    assert drawn == "[████▌   │  ]"


@pytest.mark.parametrize(
    ("ratio", "style"), [(0.75, Style.PLAIN), (0.76, Style.WARN), (0.95, Style.BAD)]
)
def test_loads_above_the_threshold_and_full_uplinks_stand_out(ratio: float, style: Style) -> None:
    assert drawing.severity(ratio, 0.75) is style


def test_the_first_to_give_is_cut_first() -> None:
    columns = [Column("A", least=4, gives=2), Column("B", least=3, gives=1), Column("C")]
    rows = [(Span("a" * 8), Span("b" * 8), Span("c" * 4))]
    assert drawing.widths(columns, rows, Look(None), 0) == [8, 8, 4]
    assert drawing.widths(columns, rows, Look(22), 0) == [8, 6, 4]
    assert drawing.widths(columns, rows, Look(18), 0) == [7, 3, 4]
    assert drawing.widths(columns, rows, Look(1), 0) == [4, 3, 4]
