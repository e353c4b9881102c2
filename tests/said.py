"""What a message has to name, whatever its words are."""

from __future__ import annotations


def says(text: str, *parts: str) -> bool:
    """Whether a text has all these parts, in this order."""
    at = 0
    for part in parts:
        if (found := text.find(part, at)) < 0:
            return False
        at = found + len(part)
    return True
