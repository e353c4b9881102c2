"""What standard output can display: its width, characters and colours."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterable

from controller.text.drawing import Line, Look, Style, plain

# Select Graphic Rendition, ECMA-48.
_CODES = {
    Style.TITLE: "7",
    Style.HEAD: "1",
    Style.DIM: "2",
    Style.WARN: "33",
    Style.BAD: "31",
    Style.CHOSEN: "7",
}
LOCALES_WITHOUT_UNICODE = ("C", "POSIX")


def look() -> Look:
    """How to draw on standard output. If it is not a terminal: plain text of any width."""
    if not sys.stdout.isatty():
        return Look()
    return Look(shutil.get_terminal_size().columns, unicode=shows_unicode())


def shows_unicode() -> bool:
    """Whether the terminal shows UTF-8. With the C locale it does not."""
    asked = os.environ.get("LC_ALL") or os.environ.get("LANG")
    if asked in LOCALES_WITHOUT_UNICODE:
        return False
    try:
        return codecs.lookup(sys.stdout.encoding).name == "utf-8"
    except (LookupError, TypeError):
        return False


def has_colours() -> bool:
    """Whether to use colours: on a terminal, unless NO_COLOR (no-color.org) is set."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return sys.stdout.isatty() and wanted


def written(lines: Iterable[Line]) -> str:
    """Lines as text for standard output."""
    coloured = has_colours()
    return "".join(f"{_coloured(one) if coloured else plain(one).rstrip()}\n" for one in lines)


def _coloured(drawn: Line) -> str:
    return "".join(
        f"\x1b[{code}m{span.text}\x1b[0m" if (code := _CODES.get(span.style)) else span.text
        for span in drawn
    ).rstrip()
