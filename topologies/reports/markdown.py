"""Builds Markdown: escaped text, tables, lists, and descriptions of layouts and settings."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


# A column: its heading, the values of a record, and the number of decimals.
Column = tuple[str, Callable[[Mapping[str, Any]], Iterable[float]], int]


def medians_table(
    head: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[Mapping[str, Any]]]],
    columns: Sequence[Column],
    left: int,
) -> str:
    """A table with a line for the records of each row: its names, and medians with the range of the values.

    Equal values have no range. Columns without values are left out.
    """

    def cell(values: Sequence[float], digits: int) -> str:
        if not values:
            return ""
        median, least, most = (f"{of(values):.{digits}f}" for of in (statistics.median, min, max))
        return median if least == most else f"{median} ({least} to {most})"

    found = {
        heading: [
            cell([value for one in records for value in values(one)], digits) for _, records in rows
        ]
        for heading, values, digits in columns
    }
    shown = {heading: cells for heading, cells in found.items() if any(cells)}
    lines = [[*names, *cells] for (names, _), *cells in zip(rows, *shown.values(), strict=True)]
    return table([*head, *shown], lines, left)


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


@dataclass(frozen=True, slots=True)
class Description:
    """A headline, and a paragraph on the reproduced document, with `code` in backticks."""

    headline: str = ""
    reproduces: str = ""


def described(layout: str) -> Description:
    """The description of a layout; of another bench, only the headline."""
    if layout not in LAYOUTS:
        return Description(OTHERS[layout])
    paragraphs = [" ".join(one.split()) for one in (LAYOUTS[layout].__doc__ or "").split("\n\n")]
    return Description(paragraphs[0], paragraphs[1])
