"""Texts that come from outside, as parts of lines of ours."""

from __future__ import annotations

from collections.abc import Iterable

# As much of one as tells what it is.
MOST_CHARACTERS = 200
# Where the reason is, of all that is a fault of ours.
OUR_LOG = "the log of ovs-lbt (journalctl -u ovs-lbt) says why"


def one_line(text: str) -> str:
    """The same text with everything escaped that is no printable character of a line."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def shortened(text: str) -> str:
    """A text of any length, cut where it is longer than anybody wants to read."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def one_of(words: Iterable[str]) -> str:
    """What is expected, in the order given."""
    listed = ", ".join(words)
    return f"one of {listed}" if listed else "nothing there is"


def because(error: Exception) -> str:
    """What an error says, and of which file, without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
