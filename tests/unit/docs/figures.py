"""Raw figures of docs/results, and tables and sentences of the documents that say them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from typing import Any

from tests import documents

RESULTS = documents.ROOT / "docs" / "results"
NUMBER = r"-?\d+(?:\.\d+)?"


def raw(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def rows(page: str, head: str) -> dict[str, list[str]]:
    """The cells of the table whose head begins with `head`, by the first cell."""
    lines = iter((documents.ROOT / page).read_text().splitlines())
    assert any(line.startswith(head) for line in lines), f"{page}: no table {head}"
    next(lines)
    found: dict[str, list[str]] = {}
    for line in lines:
        # A table in an item of a list is indented.
        line = line.strip()
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        # Another row with the same first cell.
        found[first + "\0" * sum(one.rstrip("\0") == first for one in found)] = cells
    return found


def assert_says(cell: str, *found: float) -> None:
    """The numbers of a cell are these, as exact as they are written."""
    numbers = re.findall(NUMBER, cell)
    assert len(numbers) == len(found), f"{cell}: {len(found)} numbers are due, {found}"
    for number, value in zip(numbers, found, strict=True):
        half = 0.5 * 10.0 ** -len(number.partition(".")[2])
        assert abs(float(number) - value) <= half * 1.001, f"{cell} -> {value:g}"


def of_runs(cell: str, values: Sequence[float]) -> tuple[Any, ...]:
    """A cell, and what it must say: the median, and the range if it has one."""
    median = statistics.median(values)
    return (cell, median, min(values), max(values)) if "(" in cell else (cell, median)


def plain(text: str) -> str:
    """A name without its code marks."""
    return text.replace("`", "")


def grouped(runs: Sequence[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    """The runs by the value of a key, or by those of several."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for run in runs:
        values = tuple(run[key] for key in keys)
        found.setdefault(values if len(keys) > 1 else values[0], []).append(run)
    return found
