"""Determines the terminal's width and colours, makes external text safe, and writes the log."""

from __future__ import annotations

import codecs
import logging
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from typing import TextIO, TypeVar

from controller.text.drawing import Line, Look, Style, plain
from controller.text.wording import one_line, printable

Wrote = TypeVar("Wrote")

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
# The exit status that a shell shows for a process ended by SIGPIPE.
UNREAD = 128 + signal.SIGPIPE


def look() -> Look:
    """Return the `Look` for standard output; ASCII at full width if it is not a terminal."""
    if not sys.stdout.isatty():
        return Look()
    return Look(shutil.get_terminal_size().columns, unicode=shows_unicode())


def shows_unicode() -> bool:
    """Whether the terminal shows UTF-8, which is not the case with the C locale."""
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
    """Return lines as text for standard output."""
    if has_colours():
        return Drawn("".join(f"{_coloured(one)}\n" for one in lines))
    return "".join(f"{plain(one).rstrip()}\n" for one in lines)


class Drawn(str):
    """Text with our own control characters, in which external text is already escaped."""


def guard(whole: bool = False) -> None:
    """Apply `printable` to all text that this process prints or logs from now on.

    `whole`: whether not to truncate text on standard output.
    """
    for name in ("stdin", "stdout", "stderr"):
        # If it is closed, a file that is opened later would take its place, and be written to.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream, all_of_it in ((sys.stdout, whole), (sys.stderr, False)):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        stream.write = partial(_write, stream, all_of_it)  # type: ignore[method-assign]


@contextmanager
def until_unread() -> Iterator[None]:
    """End the process with status 141 if the reader of standard output, such as `head`, has exited.

    If standard output cannot be written, for example to a full disk, end it with an error instead.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout:
                _attempt(sys.stdout, sys.stdout.flush)
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout, 0)
        if not poll.poll(0):
            raise  # another pipe or connection is broken, such as a connection of the service
        _discard()
        sys.exit(UNREAD)


def _write(stream: TextIO, whole: bool, text: str) -> int:
    written = text if isinstance(text, Drawn) else printable(text, whole)
    return _attempt(stream, lambda: type(stream).write(stream, written))


def _attempt(stream: TextIO, write: Callable[[], Wrote]) -> Wrote:
    """Write to a stream. If it is standard output and cannot be written, end the process with an error."""
    try:
        return write()
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is not sys.stdout:
            raise
        _discard()
        sys.exit(
            f"ovs-lbt: standard output cannot be written: {error.strerror}; redirect it elsewhere"
        )


def _discard() -> None:
    """Discard buffered output, which would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_one_line(record: logging.LogRecord) -> bool:
    record.msg, record.args = one_line(record.getMessage()), None
    return True


def log_to_stderr() -> None:
    """Log to stderr, with each message on one line."""
    handler = logging.StreamHandler()
    handler.addFilter(_in_one_line)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(format=form, handlers=[handler], force=True)


def _coloured(drawn: Line) -> str:
    return "".join(
        f"\x1b[{code}m{text}\x1b[0m" if (code := _CODES.get(style)) else text
        for text, style in ((printable(span.text), span.style) for span in drawn)
    ).rstrip()
