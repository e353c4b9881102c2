"""Raw figures as docs/results keeps them: a figure once, with its values of all runs.

    python -m topologies.reports.stored out/NAME/report.json docs/results/NAME.json

A list of records is kept as a record of lists, and what several runs were made by as one entry of `MADE_BY`.
The medians of a contender's runs are those of their values, and are not kept again. `read` returns the report as it was made, without the figures that no document uses.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.reports.known_figures import figure, measured, repetitions
from topologies.reports.report import rounded

# The keys of a stored list of records: how many there are, and the values of each key.
COUNT, EACH = "n", "each"
# A value of a record that does not have the key, and one that all records have.
ABSENT, ALL = "absent", "all"
# Texts that several records have: each once, and which of them each record has.
TEXTS, WHICH = "texts", "which"
# A record that has records of its own, one for each contender, is kept as it is.
NESTED = "contenders"
RUNS = "runs"
# The list of what runs were made by, and the key of a run's entry.
MADE_BY, ENTRY = "made_by", "entry"
SAME_FOR_MANY_RUNS = ("commit", "modified", "changes", "versions", "command")
LENGTH_OF_DATE = len("2026-01-01T00:00")
LINE_CHARACTERS = 160


def read(path: Path) -> Any:
    """The figures of a file, stored or as a bench wrote them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON.
    """
    document = json.loads(path.read_text())
    made_by = document.pop(MADE_BY, ()) if isinstance(document, dict) else ()
    document = _unpacked(document)
    for run in _records(document, ENTRY):
        run |= made_by[run.pop(ENTRY)]
    for contenders in _contenders(document):
        contenders |= {name: _medians(found) | found for name, found in contenders.items()}
    return document


def text(report: Any) -> str:
    """The text of a stored file, with a line for each figure."""
    found = _unpacked(_packed(report))  # a copy
    for contenders in _contenders(found):
        for one in contenders.values():
            for name in [name for name, value in _medians(one).items() if one.get(name) == value]:
                del one[name]
    made_by: list[dict[str, Any]] = []
    for origin in _records(found, "commit"):
        same = {key: origin.pop(key) for key in SAME_FOR_MANY_RUNS if key in origin}
        if same not in made_by:
            made_by.append(same)
        origin[ENTRY] = made_by.index(same)
        origin["date"] = origin["date"][:LENGTH_OF_DATE]
        if "load_average" in origin:
            origin["load_average"] = origin["load_average"][:1]  # over the last minute
    packed = _packed(found)
    return _lines({MADE_BY: made_by, **packed} if made_by else packed) + "\n"


def reduced(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without its second copy of the first scenario, and without figures that decide nothing."""
    found: dict[str, Any] = _unpacked(_packed(report))
    if "scenarios" in found:
        del found[NESTED]
        for contenders in _contenders(found):
            for one in contenders.values():
                one[RUNS] = [_figures(run) for run in one.get(RUNS, ())]
            contenders |= {name: _figures(one) for name, one in contenders.items()}
    return found


def main(arguments: Sequence[str]) -> int:
    """Store a report."""
    if len(arguments) != 2:
        print("usage: python -m topologies.reports.stored REPORT.json STORED.json", file=sys.stderr)
        return 2
    try:
        Path(arguments[1]).write_text(text(reduced(read(Path(arguments[0])))))
    except (OSError, ValueError) as failure:
        print(f"stored: {failure}", file=sys.stderr)
        return 1
    return 0


def _records(value: Any, key: str) -> Iterator[dict[str, Any]]:
    """The records that have a key, and an origin's date."""
    if isinstance(value, dict) and {key, "date"} <= value.keys():
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _records(one, key)


def _contenders(document: Any) -> Iterator[dict[str, Any]]:
    """The contenders of each scenario of a report."""
    if isinstance(document, dict):
        for place in (document, *document.get("scenarios", ())):
            if isinstance(place.get(NESTED), dict):
                yield place[NESTED]


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a table shows or a comparison uses."""
    return {
        name: value
        for name, value in found.items()
        if name == "cpu_s_per_gbit" or not figure(name).minor or figure(name).better
    }


def _medians(found: Mapping[str, Any]) -> dict[str, float]:
    """The median of each figure of a contender's runs, by its name."""
    names = dict.fromkeys(name for run in found.get(RUNS, ()) for name in measured(run))
    return {name: rounded(statistics.median(repetitions(found, name))) for name in names}


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _packed(one) for key, one in value.items()}
    if not isinstance(value, list):
        return rounded(value)
    if len(value) < 2 or not all(isinstance(one, dict) and NESTED not in one for one in value):
        return [_packed(one) for one in value]
    keys = dict.fromkeys(key for one in value for key in one)
    columns = {key: [one.get(key, ABSENT) for one in value] for key in keys}
    return {COUNT: len(value), EACH: {key: _column(one) for key, one in columns.items()}}


def _column(values: list[Any]) -> Any:
    is_number = isinstance(values[0], int | float) and not isinstance(values[0], bool)
    same = not is_number and all(one == values[0] for one in values)
    if same:
        return {ALL: _packed(values[0])}
    texts = list(dict.fromkeys(one for one in values if isinstance(one, str)))
    if all(isinstance(one, str) for one in values) and 2 * len(texts) <= len(values):
        return {TEXTS: texts, WHICH: [texts.index(one) for one in values]}
    return _packed(values)


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {COUNT, EACH} or not isinstance(value[EACH], dict):
        return {key: _unpacked(one) for key, one in value.items()}
    columns = {key: _values(one, value[COUNT]) for key, one in value[EACH].items()}
    return [
        {key: column[n] for key, column in columns.items() if column[n] != ABSENT}
        for n in range(value[COUNT])
    ]


def _values(column: Any, count: int) -> list[Any]:
    if isinstance(column, dict) and column.keys() == {TEXTS, WHICH}:
        return [column[TEXTS][n] for n in column[WHICH]]
    is_same = isinstance(column, dict) and column.keys() == {ALL}
    found: list[Any] = [_unpacked(column[ALL])] * count if is_same else _unpacked(column)
    return found


def _lines(value: Any) -> str:
    """JSON in which what fits into a line is one."""
    line = json.dumps(value, ensure_ascii=False)
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or len(line) <= LINE_CHARACTERS:
        return line
    if isinstance(value, list):
        has_parts = any(isinstance(one, dict | list) for one in inner)
        return "[\n" + ",\n".join(map(_lines, inner)) + "\n]" if has_parts else line
    parts = (f"{json.dumps(key, ensure_ascii=False)}: {_lines(one)}" for key, one in value.items())
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
