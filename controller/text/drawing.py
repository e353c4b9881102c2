"""Draws styled text, columns and bars for `show` and `top`."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

GAP = "  "
# An uplink whose utilization is above this ratio counts as full.
FULL_RATIO = 0.95


class Style(Enum):
    """The styles of text, named by what the text means. Terminals show them as colours."""

    PLAIN = auto()
    TITLE = auto()
    HEAD = auto()
    DIM = auto()
    WARN = auto()
    BAD = auto()
    CHOSEN = auto()


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]


def line(text: str, style: Style = Style.PLAIN) -> Line:
    return (Span(clean(text), style),)


def plain(drawn: Line) -> str:
    """Return the text of a line without styles."""
    return "".join(span.text for span in drawn)


# ---- text ------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return text with "?" for each character that could control a terminal or has no width."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() and _cells(c) else "?" for c in text)


def width_of(text: str) -> int:
    """Return the number of character cells that clean text occupies."""
    return len(text) if text.isascii() else sum(map(_cells, text))


@functools.cache
def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf", "Mc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return the beginning of a text that fits into `width` cells."""
    if width_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if (width := width - _cells(character)) < 0:
            break
        kept += character
    return kept


def shortened(text: str, width: int, more: str) -> str:
    """Shorten a name to `width` cells. Keep both ends: similar names often differ at the end."""
    if width_of(text) <= width:
        return text
    room = width - width_of(more)
    if room < 2:
        return cut(text, width)
    end = cut(text[::-1], room // 2)[::-1]
    return cut(text, room - width_of(end)) + more + end


def clip(drawn: Line, width: int) -> Line:
    """Truncate a line to at most `width` cells."""
    clipped: list[Span] = []
    for span in drawn:
        if (text := cut(span.text, width)) and width > 0:
            clipped.append(span._replace(text=text))
        width -= width_of(span.text)
    return tuple(clipped)


def padded(drawn: Line, width: int, style: Style = Style.PLAIN) -> Line:
    """Truncate a line, or fill it with spaces, to exactly `width` cells."""
    clipped = clip(drawn, width)
    missing = width - sum(width_of(span.text) for span in clipped)
    return (*clipped, Span(" " * missing, style)) if missing > 0 else clipped


def restyled(drawn: Line, style: Style) -> Line:
    return tuple(span._replace(style=style) for span in drawn)


# ---- columns ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its header, and the minimum width to which it can be narrowed.

    The column with the lowest `gives` is narrowed first. `optional`: a table omits the column if all
    its cells are "-".
    """

    head: str
    least: int | None = None
    right: bool = False
    gives: int = 0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """The width and characters of a drawing. `width` None: as wide as its contents require."""

    width: int | None = None
    unicode: bool = False

    @property
    def more(self) -> str:
        return "…" if self.unicode else "~"


def widths(columns: Sequence[Column], rows: Iterable[Line], look: Look, indent: int) -> list[int]:
    """Return the width of each column: as wide as its content, or narrower if it can be truncated."""
    needed = [width_of(column.head) for column in columns]
    for row in rows:
        needed = [max(n, width_of(span.text)) for n, span in zip(needed, row, strict=True)]
    if look.width is None:
        return needed
    excess = sum(needed) + len(GAP) * (len(needed) - 1) + indent - look.width
    for at, column in sorted(enumerate(columns), key=lambda one: one[1].gives):
        if excess > 0 and column.least is not None:
            given = min(excess, max(0, needed[at] - max(column.least, width_of(column.head))))
            needed[at] -= given
            excess -= given
    return needed


def row(columns: Sequence[Column], spans: Line, given: Sequence[int], look: Look) -> Line:
    """Draw a row in columns with the widths `given`."""
    drawn: list[Span] = []
    for column, span, width in zip(columns, spans, given, strict=True):
        cell = span._replace(text=shortened(span.text, width, look.more))
        blank = Span(" " * (width - width_of(cell.text)))
        drawn += [blank, cell, Span(GAP)] if column.right else [cell, blank, Span(GAP)]
    # No blanks follow the last cell.
    del drawn[-1 if columns[-1].right else -2 :]
    return tuple(span for span in drawn if span.text)


def table(columns: Sequence[Column], rows: Sequence[Line], look: Look, indent: int) -> list[Line]:
    """Draw a header line and the rows. `indent`: by how many cells the caller indents each line."""
    shown = [
        at
        for at, column in enumerate(columns)
        if not column.optional or any(one[at].text != "-" for one in rows)
    ]
    columns, rows = [columns[at] for at in shown], [tuple(one[at] for at in shown) for one in rows]
    given = widths(columns, rows, look, indent)
    heads = tuple(Span(column.head, Style.HEAD) for column in columns)
    return [row(columns, one, given, look) for one in (heads, *rows)]


def table_text(columns: Sequence[Column], rows: Iterable[Sequence[str]], look: Look) -> list[str]:
    """Return a header line and the rows as text, indented by the width between columns."""
    spans = [tuple(map(Span, cells)) for cells in rows]
    return [(GAP + plain(one)).rstrip() for one in table(columns, spans, look, len(GAP))]


# ---- figures ---------------------------------------------------------------------------


def mbps(rate_bps: float) -> str:
    """Format a rate in Mbit/s, for links up to 1 Tbit/s in at most seven characters."""
    value = rate_bps / 1e6
    decimals = next((d for d, below in ((2, 9999.995), (1, 99999.95)) if value < below), 0)
    return f"{value:.{decimals}f}"


def severity(ratio: float, threshold_ratio: float) -> Style:
    """Return the style for a utilization: BAD if full, WARN if above the threshold, else PLAIN."""
    if ratio >= FULL_RATIO:
        return Style.BAD
    return Style.WARN if ratio > threshold_ratio else Style.PLAIN


def bar(ratio: float, threshold_ratio: float, cells: int, look: Look) -> Line:
    """Draw a utilization as a bar of `cells` cells, plus three: both ends, and a mark at the threshold."""
    halves = min(2 * cells, round(2 * cells * ratio)) if ratio > 0 else 0
    if look.unicode:
        filled, mark = "█" * (halves // 2) + "▌" * (halves % 2), "│"
    else:
        filled, mark = "#" * min(cells, round(cells * ratio)), "|"
    filled = f"{filled:<{cells}}"
    at = min(cells, round(cells * threshold_ratio))
    style = severity(ratio, threshold_ratio)
    return (
        Span("["),
        Span(filled[:at], style),
        Span(mark, Style.DIM),
        Span(filled[at:], style),
        Span("]"),
    )
