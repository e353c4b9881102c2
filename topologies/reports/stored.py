"""Raw figures as docs/results keeps them: a figure once, with its values of all runs.

    python -m topologies.reports.stored out/NAME/report.json docs/results/NAME.json

What several runs were made by is one entry of `MADE_BY`. The medians of a contender's runs are those of their
values, and are not kept again. `read` returns the report as it was made, without the figures that no document
uses.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.reports.known_figures import figure, measured, repetitions
from topologies.reports.report import rounded

CONTENDERS, RUNS = "contenders", "runs"
# The list of what runs were made by, and the key of a run's entry.
MADE_BY, ENTRY = "made_by", "entry"
SAME_FOR_MANY_RUNS = ("commit", "modified", "changes", "versions", "command")
LENGTH_OF_DATE = len("2026-01-01T00:00")
# A run is a line.
LINE_CHARACTERS = 1000
# The key of a document that is a list, if it has `MADE_BY`.
LIST = "list"


def read(path: Path) -> Any:
    """The figures of a file, stored or as a bench wrote them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON.
    """
    document = json.loads(path.read_text())
    made_by = document.pop(MADE_BY, ()) if isinstance(document, dict) else ()
    for run in _records(document, ENTRY):
        run |= made_by[run.pop(ENTRY)]
    for contenders in _contenders(document):
        contenders |= {name: _medians(found) | found for name, found in contenders.items()}
    return document[LIST] if made_by and LIST in document else document


def text(report: Any) -> str:
    """The text of a stored file, with a line for each figure or run."""
    found = copy.deepcopy(report)
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
    if made_by:
        found = {MADE_BY: made_by, **(found if isinstance(found, dict) else {LIST: found})}
    return _lines(found) + "\n"


def reduced(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without its second copy of the first scenario, and without figures that decide nothing."""
    found = copy.deepcopy(dict(report))
    if "scenarios" in found:
        del found[CONTENDERS]
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
            if isinstance(place.get(CONTENDERS), dict):
                yield place[CONTENDERS]


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


def _lines(value: Any) -> str:
    """JSON in which what fits into a line is one."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(line) <= LINE_CHARACTERS:
        return line
    if isinstance(value, list):
        has_parts = any(isinstance(one, dict | list) for one in value)
        return "[\n" + ",\n".join(map(_lines, value)) + "\n]" if has_parts else line
    parts = (f"{json.dumps(key, ensure_ascii=False)}: {_lines(one)}" for key, one in value.items())
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
