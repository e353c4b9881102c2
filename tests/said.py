"""What a message has to name, whatever its words are, and how `ovs-lbt` answers."""

from __future__ import annotations

import re

# The exit statuses of `ovs-lbt`.
DONE, REFUSED, USAGE = 0, 1, 2


def says(text: str, *parts: str) -> bool:
    """Whether a text has all these parts, in this order."""
    at = 0
    for part in parts:
        if (found := text.find(part, at)) < 0:
            return False
        at = found + len(part)
    return True


def pattern(text: str) -> str:
    """A regular expression for a text in which `…` stands for anything."""
    return re.escape(text).replace("…", ".*")


def is_answer(found: int, out: str, err: str, status: int, expected: str) -> bool:
    """Whether a call ended with this status and last line (see `pattern`), given without `ovs-lbt: `.

    Only wrong usage has more than one line, and only what is done says something on standard output.
    """
    lines = (out if status == DONE else err).splitlines()
    said = re.sub(r"^ovs-lbt( \w+)*: (error: )?", "", lines[-1] if lines else "")
    return bool(
        found == status
        and (status == DONE or out == "")
        and (len(lines) == 1 or status == USAGE)
        and re.fullmatch(pattern(expected), said)
    )
