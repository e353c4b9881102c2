"""What a layout is and what it reproduces, in the words of its own file."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from topologies.layouts import LAYOUTS


@dataclass(frozen=True, slots=True)
class Description:
    """One line, and a paragraph on the document; `code` is between backticks."""

    headline: str = ""
    reproduces: str = ""


def described(layout: str) -> Description:
    """A layout's description; empty for one that is not ours."""
    if layout not in LAYOUTS:
        return Description()
    text = sys.modules[LAYOUTS[layout].__module__].__doc__ or ""
    paragraphs = [" ".join(one.split()) for one in text.split("\n\n")]
    headline = paragraphs[0].removeprefix(f"The layout `{layout}`: ")
    return Description(headline[:1].upper() + headline[1:], " ".join(paragraphs[1:2]))
