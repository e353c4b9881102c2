"""Builds Markdown: escaped text, tables, lists, and descriptions of layouts and settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topologies.layouts import LAYOUTS

# Characters that Markdown interprets within a line or a table.
_SPECIAL = re.compile(r"([\\`*<|\[\]])")


def plain(text: str) -> str:
    """Escape text for Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(name: str) -> str:
    """A name as code, or escaped if it cannot be code."""
    return f"`{name}`" if not _SPECIAL.search(name) else plain(name)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table. Its first `left` columns are aligned to the left, the others to the right."""
    alignments = [*["---"] * left, *["---:"] * (len(head) - left)]
    return "\n".join(f"|{'|'.join(row)}|" for row in (head, alignments, *rows))


def text(parts: Sequence[str]) -> str:
    """A document of these parts; empty ones are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(items: Sequence[str]) -> str:
    """A list; empty without items."""
    return "\n".join(f"- {item}" for item in items)


# The settings of a bench that make a report of its own, by their value: a suffix, and what to say.
VARIANTS = {
    "faithful": "with the documented window of 30 s, instead of everything ten times as fast",
    "receive": "with VMs that receive the load",
}


def variants(report: Mapping[str, Any]) -> list[str]:
    """The settings other than the usual ones that a report was made with, from `VARIANTS`."""
    environment = report.get("environment", {})
    chosen = (environment.get("pace", {}).get("name"), environment.get("direction"))
    return [one for one in chosen if one in VARIANTS]


def report_name(report: Mapping[str, Any]) -> str:
    """The name of a report among the published ones: its layout, and settings other than the usual."""
    return "_".join([report["layout"], *variants(report)])


# The benches without a layout of their own.
OTHERS = {
    "shift_seeds": "Load jumps that are generated from seeds.",
    "scale": "The cost of 1 to 300 bridges on one service.",
    "connections": "The cost of many connections, and failovers with them.",
}


def described(layout: str) -> tuple[str, str]:
    """A layout's headline, and a paragraph on the reproduced document, with `code` in backticks.

    Of another bench, only the headline.
    """
    if layout not in LAYOUTS:
        return OTHERS[layout], ""
    headline, reproduces, *_ = (LAYOUTS[layout].__doc__ or "").split("\n\n")
    return headline, " ".join(reproduces.split())
