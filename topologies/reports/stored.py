"""Raw figures as docs/results keeps them: a figure once, with its values of all runs.

    python -m topologies.reports.stored out/NAME/report.json docs/results/NAME.json

A list of records is kept as a record of lists, and what several runs were made by as one entry of
`MADE_BY`. The medians of runs are those of their values, and are not kept again. `read` returns the
report as it was made, without the figures that no document uses.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.reports.known_figures import figure, measured, repetitions

# The keys of a stored list of records: how many there are, and the values of each key.
COUNT, EACH = "n", "each"
# A value of a record that does not have the key, and one that all records have.
ABSENT, ALL = "absent", "all"
# Texts that several records have: each once, and which of them each record has.
TEXTS, WHICH = "texts", "which"
# A record that has records of its own, one for each contender, is kept as it is.
NESTED = "contenders"
# The runs of a contender, and that its other figures are their medians if they are not kept.
RUNS, MEDIANS = "runs", "medians_of_runs"
# The list of what runs were made by, and the key of a run's entry.
MADE_BY, ENTRY = "made_by", "entry"
SAME_FOR_MANY_RUNS = ("commit", "modified", "versions", "command")
LENGTH_OF_DATE = len("2026-01-01T00:00")
SIGNIFICANT_DIGITS = 6
LINE_CHARACTERS = 160


def read(path: Path) -> Any:
    """The figures of a file, stored or as a bench wrote them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON.
    """
    document = json.loads(path.read_text())
    made_by = document.pop(MADE_BY, ()) if isinstance(document, dict) else ()
    return _with_origins(_with_medians(_unpacked(document)), made_by)


def text(report: Any) -> str:
    """The text of a stored file, with a line for each figure."""
    made_by: list[dict[str, Any]] = []
    found = _packed(_without_medians(_without_origins(report, made_by)))
    return _lines({MADE_BY: made_by, **found} if made_by else found) + "\n"


def reduced(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without its second copy of the first scenario, and without figures that decide nothing."""
    if "scenarios" not in report:
        return dict(report)
    return {
        key: [_of_scenario(one) for one in value] if key == "scenarios" else value
        for key, value in report.items()
        if key != "contenders"
    }


def main(arguments: Sequence[str]) -> int:
    """Store a report."""
    if len(arguments) != 2:
        print("usage: python -m topologies.reports.stored REPORT.json STORED.json", file=sys.stderr)
        return 2
    try:
        report = read(Path(arguments[0]))
        Path(arguments[1]).write_text(text(reduced(report)))
    except (OSError, ValueError) as failure:
        print(f"stored: {failure}", file=sys.stderr)
        return 1
    return 0


def _of_scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    contenders = {
        name: {
            **_figures(found),
            **({RUNS: [_figures(run) for run in found[RUNS]]} if RUNS in found else {}),
        }
        for name, found in scenario["contenders"].items()
    }
    return {**scenario, "contenders": contenders}


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a table shows or a comparison uses."""
    return {
        name: value
        for name, value in found.items()
        if name == "cpu_s_per_gbit" or not figure(name).minor or figure(name).better
    }


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The median of each figure of runs, by its name."""
    names = dict.fromkeys(name for run in runs for name in measured(run))
    return {name: _rounded(statistics.median(repetitions({RUNS: runs}, name))) for name in names}


def _without_medians(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_medians(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _without_medians(one) for key, one in value.items()}
    runs: Any = value.get(RUNS, ())
    medians = _medians(runs) if all(isinstance(run, dict) for run in runs) else {}
    if not medians or not medians.keys() <= value.keys():
        return found
    other = {name: one for name, one in found.items() if one != medians.get(name)}
    return {MEDIANS: True, **other}


def _with_medians(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_medians(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_medians(one) for key, one in value.items()}
    return _medians(found[RUNS]) | found if found.pop(MEDIANS, False) else found


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _packed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _packed(one) for key, one in value.items()}
    if isinstance(value, float):
        return _rounded(value)
    if not isinstance(value, list):
        return value
    if len(value) < 2 or not all(isinstance(one, dict) and NESTED not in one for one in value):
        return [_packed(one) for one in value]
    keys = dict.fromkeys(key for one in value for key in one)
    return {
        COUNT: len(value),
        EACH: {key: _column([one.get(key, ABSENT) for one in value]) for key in keys},
    }


def _column(values: list[Any]) -> Any:
    is_number = isinstance(values[0], int | float) and not isinstance(values[0], bool)
    if not is_number and all(one == values[0] for one in values):
        return {ALL: _packed(values[0])}
    if all(isinstance(one, str) for one in values):
        texts = list(dict.fromkeys(values))
        if 2 * len(texts) <= len(values):
            return {TEXTS: texts, WHICH: [texts.index(one) for one in values]}
    return _packed(values)


def _values(column: Any, count: int) -> list[Any]:
    if isinstance(column, dict) and column.keys() == {ALL}:
        return [_unpacked(column[ALL])] * count
    if isinstance(column, dict) and column.keys() == {TEXTS, WHICH}:
        return [column[TEXTS][n] for n in column[WHICH]]
    found: list[Any] = _unpacked(column)
    return found


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {COUNT, EACH} or not isinstance(value[EACH], dict):
        return {key: _unpacked(one) for key, one in value.items()}
    count = value[COUNT]
    columns = {key: _values(column, count) for key, column in value[EACH].items()}
    return [
        {key: column[n] for key, column in columns.items() if column[n] != ABSENT}
        for n in range(count)
    ]


def _without_origins(value: Any, made_by: list[dict[str, Any]]) -> Any:
    if isinstance(value, list):
        return [_without_origins(one, made_by) for one in value]
    if not isinstance(value, dict):
        return value
    if not ({"commit", "date"} <= value.keys()):
        return {key: _without_origins(one, made_by) for key, one in value.items()}
    same = {key: value[key] for key in SAME_FOR_MANY_RUNS if key in value}
    if same not in made_by:
        made_by.append(same)
    own = {key: one for key, one in value.items() if key not in same}
    own["date"] = value["date"][:LENGTH_OF_DATE]
    if "load_average" in own:
        own["load_average"] = own["load_average"][:1]  # over the last minute
    return {ENTRY: made_by.index(same), **own}


def _with_origins(value: Any, made_by: Sequence[Mapping[str, Any]]) -> Any:
    if isinstance(value, list):
        return [_with_origins(one, made_by) for one in value]
    if not isinstance(value, dict):
        return value
    if ENTRY in value:
        own = {key: one for key, one in value.items() if key != ENTRY}
        return {**made_by[value[ENTRY]], **own}
    return {key: _with_origins(one, made_by) for key, one in value.items()}


def _lines(value: Any) -> str:
    """JSON in which what fits into a line is one."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list):
        return line
    inner = value.values() if isinstance(value, dict) else value
    is_plain_list = isinstance(value, list) and not any(
        isinstance(one, dict | list) for one in inner
    )
    if is_plain_list or len(line) <= LINE_CHARACTERS:
        return line
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_lines, inner)) + "\n]"
    parts = (f"{json.dumps(key, ensure_ascii=False)}: {_lines(one)}" for key, one in value.items())
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
