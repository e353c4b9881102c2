"""Builds Markdown: escaped text, tables and lists."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Characters that Markdown interprets within a line or a table.
_SPECIAL = re.compile(r"([\\`*<|\[\]])")


def plain(text: str) -> str:
    """Escape text for Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(name: str) -> str:
    """A name as code, or escaped if it cannot be code."""
    return f"`{name}`" if not _SPECIAL.search(name) else plain(name)


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table. The second row has the alignments."""
    return "\n".join(f"|{'|'.join(row)}|" for row in rows)


def bullets(items: Sequence[str]) -> str:
    """A list; empty without items."""
    return "\n".join(f"- {item}" for item in items)
