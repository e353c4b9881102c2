"""Takes the description of a layout from the docstring of its module."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from topologies.layouts import LAYOUTS


@dataclass(frozen=True, slots=True)
class Description:
    """A headline, and a paragraph on the reproduced document, with `code` in backticks."""

    headline: str = ""
    reproduces: str = ""


def described(layout: str) -> Description:
    """The description of a layout; empty for an unknown layout."""
    if layout not in LAYOUTS:
        return Description()
    text = import_module(f"topologies.{layout}").__doc__ or ""
    paragraphs = [" ".join(one.split()) for one in text.split("\n\n")]
    headline = paragraphs[0].removeprefix(f"The layout `{layout}`: ")
    return Description(headline[:1].upper() + headline[1:], " ".join(paragraphs[1:2]))
