"""What is written to standard output: colours and blocks for terminals that show them."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace

import pytest

from controller.text import terminal
from controller.text.drawing import Look, Span, Style

LINES = [(Span("eth1  "), Span("down", Style.BAD), Span("  "))]


class Output(io.TextIOWrapper):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def writing_to(output: io.TextIOWrapper) -> SimpleNamespace:
    """The interpreter's `sys`, as far as it is looked at; pytest has a hand on the real one."""
    return SimpleNamespace(stdout=output)


@pytest.fixture
def tty(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal of 100 columns that takes UTF-8 and colours."""
    monkeypatch.setattr(terminal, "sys", writing_to(Output(io.BytesIO(), encoding="utf-8")))
    for name in ("LC_ALL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"LANG": "C.UTF-8", "TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_terminal_gets_colours_and_blocks(tty: pytest.MonkeyPatch) -> None:
    assert terminal.look() == Look(100, unicode=True)
    assert terminal.written(LINES) == "eth1  \x1b[31mdown\x1b[0m\n"


@pytest.mark.parametrize(
    ("name", "value", "colours", "unicode"),
    [
        ("NO_COLOR", "1", False, True),
        ("TERM", "dumb", False, True),
        ("LC_ALL", "C", True, False),
        ("LANG", "POSIX", True, False),
    ],
)
def test_who_wants_no_colours_or_no_unicode_gets_none(
    tty: pytest.MonkeyPatch, name: str, value: str, colours: bool, unicode: bool
) -> None:
    tty.setenv(name, value)
    assert ("\x1b" in terminal.written(LINES), terminal.look().unicode) == (colours, unicode)


def test_another_encoding_gets_no_blocks(tty: pytest.MonkeyPatch) -> None:
    tty.setattr(terminal, "sys", writing_to(Output(io.BytesIO(), encoding="iso8859-1")))
    assert terminal.look() == Look(100, unicode=False)


def test_a_pipe_gets_plain_text_of_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(terminal, "sys", writing_to(piped))
    monkeypatch.setitem(os.environ, "COLUMNS", "40")
    assert terminal.look() == Look()
    assert terminal.written(LINES) == "eth1  down\n"
