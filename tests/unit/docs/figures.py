"""Raw figures of docs/results, and tables and sentences of the documents that say them."""

from __future__ import annotations

import functools
import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tests import documents
from topologies.reports import stored

RESULTS = documents.ROOT / "docs" / "results"
NUMBER = r"-?\d+(?:\.\d+)?"

# The rows of a table by their names, and what each cell must say: a text; a number; the median of a list
# of runs, and their range if the cell has one; several numbers, or several lists of runs with semicolons
# between them. None: it is no measured figure.
Rows = dict[str, list[Any]]


class Table(NamedTuple):
    """A table of a page by the beginning of its head, what it must say, and how many cells name a row."""

    page: str
    head: str
    due: Callable[[], Rows]
    names: int = 1


@functools.cache
def raw(name: str) -> Any:
    return stored.read(RESULTS / name)


def scenario(layout: str, name: str) -> dict[str, Any]:
    """The contenders of a scenario."""
    (found,) = (one for one in raw(f"{layout}.json")["scenarios"] if one["name"] == name)
    contenders: dict[str, Any] = found["contenders"]
    return contenders


def rows(page: str, head: str, names: int = 1) -> dict[str, list[str]]:
    """The cells of each row of a table, by the cells that name the row; without code marks."""
    # A table in an item of a list is indented.
    lines = [line.strip() for line in (documents.ROOT / page).read_text().splitlines()]
    (begin,) = [number for number, line in enumerate(lines) if line.startswith(head)]
    found: dict[str, list[str]] = {}
    name: list[str] = []
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[begin + 2 :]):
        cells = [plain(cell.strip()) for cell in line.strip("|").split("|")]
        # A row without a first cell has the names of the row above, where it has none of its own.
        above = itertools.repeat("") if cells[0] else name
        name = [own or over for own, over in zip(cells[:names], above, strict=False)]
        row = " | ".join(name)
        found[row if row not in found else f"{row}, again"] = cells[names:]
    return found


def assert_says(cell: str, *found: float) -> None:
    """The numbers of a cell are these, as exact as they are written."""
    numbers = re.findall(NUMBER, cell)
    assert len(numbers) == len(found), f"{cell}: {len(found)} numbers are due, {found}"
    for number, value in zip(numbers, found, strict=True):
        half = 0.5 * 10.0 ** -len(number.partition(".")[2])
        assert abs(float(number) - value) <= half * 1.001, f"{cell} -> {value:g}"


def assert_cell(cell: str, due: Any) -> None:
    if isinstance(due, str):
        assert cell == due
    elif isinstance(due, list):
        spread = (min(due), max(due)) if "(" in cell else ()
        assert_says(cell.replace("immediately", "0"), statistics.median(due), *spread)
    elif isinstance(due, tuple) and isinstance(due[0], list):
        for part, runs in zip(cell.split(";"), due, strict=True):
            assert_cell(part, runs)
    elif due is not None:
        numbers = due if isinstance(due, tuple) else (due,)
        assert_says(re.sub(r"(?<=\d),(?=\d{3})", "", cell), *numbers)


def plain(text: str) -> str:
    """A name without its code marks."""
    return text.replace("`", "")


def span(values: Iterable[float]) -> list[float]:
    """The least and the greatest of values."""
    found = list(values)
    return [min(found), max(found)]


def grouped(runs: Sequence[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    """The runs by the value of a key, or by those of several."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for run in runs:
        values = tuple(run[key] for key in keys)
        found.setdefault(values if len(keys) > 1 else values[0], []).append(run)
    return found
