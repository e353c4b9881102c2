"""The document of all layouts' results, from the reports that are kept.

    python -m topologies.reports.benchmarks docs/results > docs/benchmarks.md

`docs/results/NAME.json` is the report of the bench NAME. Why we differ is prose, and people
write it: `docs/results/notes.md` has a section `## NAME` for each layout that needs one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.compare.expectation import LEAST_THROUGHPUT_RATIO, MOST_CPU_RATIO, UNEVEN_CV
from topologies.layouts import LAYOUTS
from topologies.reports import comparison as page_comparison
from topologies.reports import origin as page_origin
from topologies.reports import table as page_table
from topologies.reports.code_changes import CodeChanges
from topologies.reports.comparison import MOST_DEVIATION_RATIO, Behind, Duel, Order, Published, Side
from topologies.reports.known_figures import BEFORE_UNIT, Figure, percent, repetitions
from topologies.reports.layout_texts import described
from topologies.reports.origin import NOT_RECORDED
from topologies.reports.settings import setting, setting_name
from topologies.reports.table import Column, Kind, Row
from topologies.scale.section import section as scale_section
from topologies.seeds.report import NAME as SHIFT_SEEDS
from topologies.seeds.report import section as seeds_section

NOTES = "notes.md"
# What many bridges cost is of no layout, and jumps by number are of many.
SCALE = "scale"
SECTIONS = {SHIFT_SEEDS: seeds_section, SCALE: scale_section}
# What has a meaning to Markdown in the middle of a line, or in a table.
_SPECIAL = re.compile(r"([\\`*<|\[\]])")

INTRODUCTION = f"""\
<!-- Made by `python -m topologies.reports.benchmarks docs/results`; write in results/notes.md. -->

# Benchmarks

The layouts that published documents describe, and three of our own, run on Mininet with the load of
the document: our policies beside Open vSwitch's bonds and placement by hand (`manual`), the peers.
`ovs-lbt bench NAME` runs one of them again, and draws the uplinks of each contender over time.

Layouts are scaled to what one machine can do, so what compares with a document is a share of the
speed of the links, never a rate. The limit is the maximum flow through the layout. Figures are
medians of n runs each; with n = 1 it is that run's. **Bold** is the best figure of ours, and the best
of a peer; an empty cell was not measured. CV is the standard deviation over the mean: 0 is even. CPU time per bit is that of
Open vSwitch and our service, and `manual` has 1.

A figure matches a published one within {percent(MOST_DEVIATION_RATIO)} of it. The best of ours and the best peer are each the
most even of those whose throughput is within {percent(1 - LEAST_THROUGHPUT_RATIO)} of the fastest of their kind. Ours holds if
our fastest has {LEAST_THROUGHPUT_RATIO} of the fastest peer's throughput, and our best more even uplinks wherever the best
peer's are uneven (a CV above {UNEVEN_CV}), and {MOST_CPU_RATIO} of its CPU time per bit at most.

*Where a peer is better* lists every figure in which the best peer's median is better than that of the
best of ours. Where the ranges of their runs meet, there is no difference, and that is said. A single
run has no range: of two of them, nobody knows whether they would differ again.

*Measured at* says by which commit, and whether what decides (`policies/`) or what forwards
(`controller/dataplane/`) has changed since.
"""


def benchmarks(
    reports: Sequence[Mapping[str, Any]],
    notes: Mapping[str, str],
    measured: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The document; layouts are in the order in which `LAYOUTS` has them.

    `measured`: for each layout, at which commits it was, in words.
    """
    when = measured or {}
    order = list(LAYOUTS)
    known = sorted(reports, key=lambda one: (_place(order, one["layout"]), one["layout"]))
    missing = [name for name in order if name not in {one["layout"] for one in known}]
    parts = [INTRODUCTION.strip(), _overview(known)]
    if missing:
        parts.append(f"Not measured yet: {', '.join(map(_code, missing))}.")
    parts += [
        _layout(report, notes.get(report["layout"], ""), when.get(report["layout"], ()))
        for report in known
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text.replace(BEFORE_UNIT, " ")  # in a text that people search, an ordinary one


def read_notes(text: str) -> dict[str, str]:
    """The prose of each layout by its name; what is before the first section is no layout's.

    A layout with several sections has all of them, in their order.
    """
    sections = re.split(r"^## +(\S+) *$", text, flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for name, prose in zip(sections[1::2], sections[2::2], strict=True):
        found.setdefault(name, []).append(prose.strip())
    return {name: "\n\n".join(filter(None, proses)) for name, proses in found.items()}


def read(directory: Path, changes: CodeChanges | None = None) -> str:
    """The document of the reports and notes in a directory; `changes` knows the code's history.

    Raises:
        OSError: something cannot be read.
        ValueError: a report is not JSON.
    """
    found = {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}
    of_none = {name: found.pop(name) for name in SECTIONS if name in found}
    path = directory / NOTES
    notes = read_notes(path.read_text()) if path.exists() else {}
    known = changes or CodeChanges()
    measured = {
        name: known.lines(one, str((directory / f"{name}.json").resolve()))
        for name, one in (found | of_none).items()
    }
    by_layout = {one["layout"]: measured[name] for name, one in found.items()}
    text = benchmarks(list(found.values()), notes, by_layout)
    more = (
        "\n\n".join([SECTIONS[name](one, notes.get(name, "")), _origin(one, measured[name])])
        for name, one in of_none.items()
    )
    return "\n\n".join([text.rstrip("\n"), *more]) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the document of the directory that is named."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m topologies.reports.benchmarks docs/results", file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    if not directory.is_dir():
        print(f"benchmarks_page: {directory} -> a directory of reports", file=sys.stderr)
        return 1
    try:
        sys.stdout.write(read(directory))
    except (OSError, ValueError) as failure:
        print(f"benchmarks_page: {failure}", file=sys.stderr)
        return 1
    return 0


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _overview(reports: Sequence[Mapping[str, Any]]) -> str:
    """One line for each layout."""
    lines = [
        ["layout", "expectations met", "published figures matched", "held against the best peer"],
        ["---", "---:", "---:", "---:"],
    ]
    for report in reports:
        expectations = report.get("expectations", [])
        published = _published(report)
        duels = [duel for _, duel in _duels(report)]
        lines.append(
            [
                f"[`{report['layout']}`](#{report['layout']})",
                _of(len(expectations) - len(page_comparison.unmet(report)), len(expectations)),
                _of(sum(one.matches for _, one in published), len(published)),
                _of(sum(one.holds for one in duels), len(duels)),
            ]
        )
    return _lines(lines)


def _of(some: int, all_: int) -> str:
    return f"{some} of {all_}" if all_ else ""


def _layout(report: Mapping[str, Any], note: str, measured: Sequence[str]) -> str:
    name = report["layout"]
    description = described(name)
    source = report.get("published", {}).get("source")
    parts = [f"## {name}", description.headline, description.reproduces]
    if name in LAYOUTS:
        parts.append(f"![The layout {name}](images/layout_{name}.svg)")
    if source:
        parts.append(f"Published figures: {_plain(source)}.")
    parts += [_repetitions(report), _origin(report, measured)]
    scenarios = page_comparison.scenarios(report)
    for scenario in scenarios:
        if len(scenarios) > 1:
            parts.append(f"### {_plain(scenario['name'])}")
        parts += [scenario.get("what", ""), _table(scenario)]
    parts += [
        _phases(report),
        _list("Expectations", [_expectation(one) for one in report.get("expectations", [])]),
        _list("Where we match the document", _matches(report)),
        _list("Where we differ from the document", _differs(report)),
        _list("Where a peer is better", _beaten(report)),
        _list("No difference: the ranges of the runs meet", _alike(report)),
        f"**Why**\n\n{note}" if note else "",
        _environment(report.get("environment", {})),
    ]
    return "\n\n".join(part for part in parts if part)


def _repetitions(report: Mapping[str, Any]) -> str:
    """How many runs the figures are medians of."""
    counts = {
        len(found.get("runs", ()))
        for scenario in page_comparison.scenarios(report)
        for found in scenario["contenders"].values()
    } - {0}
    runs = "–".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else ""
    return f"Runs of each contender: {runs}." if runs else ""


def _origin(report: Mapping[str, Any], measured: Sequence[str]) -> str:
    """Where the runs come from. What none of them has recorded is told in one sentence."""
    told = {
        name: text
        for name, text in page_origin.described(page_origin.of_runs(report)).items()
        if name != "commit"
    }
    known = [f"{name}: {_plain(text)}" for name, text in told.items() if text != NOT_RECORDED]
    unknown = [name for name, text in told.items() if text == NOT_RECORDED]
    sentences = [*measured]
    if known:
        sentences.append(f"{'; '.join(known)}.")
    if unknown:
        sentences.append(f"{NOT_RECORDED.capitalize()} for these runs: {', '.join(unknown)}.")
    return "\n".join(sentences)


def _table(scenario: Mapping[str, Any]) -> str:
    columns = page_table.columns(scenario)
    head = ["contender", "n"]
    for column in columns:
        unit = f", {column.figure.unit}" if column.figure.unit else ""
        head.append(f"{'published' if column.published else column.figure.label}{unit}")
    lines = [head, ["---", "---:", *("---:" for _ in columns)]]
    for row in page_table.rows(scenario):
        name = row.name if row.kind == Kind.LIMIT else _code(row.name)
        name += " (published only)" if row.kind == Kind.DOCUMENT else ""
        lines.append([name, row.count, *(_cell(row, column) for column in columns)])
    return _lines(lines)


def _cell(row: Row, column: Column) -> str:
    text = column.figure.text(row.value(column))
    measured = 0 if column.published else len(repetitions(row.found, column.figure.name))
    if text and measured and str(measured) != row.count:
        text += f" (n = {measured})"
    best = column.figure.name in row.best_in and not column.published
    return f"**{text}**" if best else text


def _phases(report: Mapping[str, Any]) -> str:
    """The phases of a ramping load, beside those that were published."""
    phases = page_table.phases(report)
    if not phases:
        return ""
    head = ["phase", "from, s", "to, s", *(f"{uplink}, %" for uplink in phases[0].uplinks)]
    lines = [
        [*head, "published, %", "what was published"],
        ["---", *("---:" for _ in head), "---"],
    ]
    for one in phases:
        numbers = [one.start_s, one.end_s, *one.uplinks.values(), one.published]
        lines.append([one.name, *numbers, _plain(one.what)])
    return _lines(lines)


def _expectation(one: Mapping[str, Any]) -> str:
    verdict = "PASS" if one["met"] else "**FAIL**"
    return f"{verdict} {_plain(one['condition'])}: {_plain(one['found'])}"


def _published(report: Mapping[str, Any]) -> list[tuple[str, Published]]:
    return [
        (_where(report, scenario), one)
        for scenario in page_comparison.scenarios(report)
        for one in page_comparison.against_document(scenario)
    ]


def _duels(report: Mapping[str, Any]) -> list[tuple[str, Duel]]:
    return [
        (_where(report, scenario), one)
        for scenario in page_comparison.scenarios(report)
        for one in page_comparison.duels(scenario["contenders"])
    ]


def _matches(report: Mapping[str, Any]) -> list[str]:
    expectations = report.get("expectations", [])
    met = len(expectations) - len(page_comparison.unmet(report))
    found = [f"{_of(met, len(expectations))} expectations are met."] if expectations else []
    orders = [
        f"{where}{_order(one)}: reproduced." for where, one in _orders(report) if one.reproduced
    ]
    return found + _beside_document(report, matches=True) + orders


def _differs(report: Mapping[str, Any]) -> list[str]:
    missed = [
        f"Not met: {_plain(one['condition'])}: {_plain(one['found'])}."
        for one in page_comparison.unmet(report)
    ]
    orders = [
        f"{where}{_order(one)}: not reproduced."
        for where, one in _orders(report)
        if not one.reproduced
    ]
    return missed + _beside_document(report, matches=False) + orders or [
        "Nowhere in these figures."
    ]


def _beaten(report: Mapping[str, Any]) -> list[str]:
    """Every figure in which a peer is better, by more than the runs differ."""
    found = [
        f"{where}{one.figure.label}: {_side(one.peer, one.figure)} beats"
        f" {_side(one.ours, one.figure)}."
        for where, one in _behind(report)
        if one.differs
    ]
    return found or ["Nowhere in these figures."]


def _alike(report: Mapping[str, Any]) -> list[str]:
    """Every figure in which a peer's median is better, and its runs are among ours."""
    return [
        f"{where}{one.figure.label}: {_side(one.peer, one.figure)}, {_side(one.ours, one.figure)}."
        for where, one in _behind(report)
        if not one.differs
    ]


def _behind(report: Mapping[str, Any]) -> list[tuple[str, Behind]]:
    return [
        (_where(report, scenario), one)
        for scenario in page_comparison.scenarios(report)
        for one in page_comparison.behind(scenario["contenders"])
    ]


def _orders(report: Mapping[str, Any]) -> list[tuple[str, Order]]:
    return [
        (_where(report, scenario), one)
        for scenario in page_comparison.scenarios(report)
        for one in page_comparison.orders(scenario)
    ]


def _order(one: Order) -> str:
    """Who was better than whom there, and who is here."""
    published = " before ".join(
        f"{', '.join(map(_code, names))} {one.figure.with_unit(value)}"
        for value, names in one.published
    )
    here = ", ".join(_side(found, one.figure) for found in one.here)
    return f"order by {one.figure.label}, the best first: published {published}; here {here}"


def _side(one: Side, of: Figure) -> str:
    """A median with its range, if its runs differ as they are shown, and their number."""
    least, most = of.text(one.least), of.text(one.most)
    between = f"{least} to {most}, " if least != most else ""
    return f"{_code(one.contender)} {of.with_unit(one.value)} ({between}n = {one.count})"


def _where(report: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """Which scenario, where there are several."""
    several = len(page_comparison.scenarios(report)) > 1
    return f"{_plain(scenario['name'])}: " if several else ""


def _beside_document(report: Mapping[str, Any], matches: bool) -> list[str]:
    """What is near what was published, or is not: a line for each published figure."""
    found: dict[tuple[str, Figure, float], list[str]] = {}
    for where, one in _published(report):
        if one.matches == matches:
            value = f"{_code(one.contender)} {one.figure.with_unit(one.found)} (n = {one.count})"
            found.setdefault((where, one.figure, one.published), []).append(value)
    return [
        f"{where}{of.label}, published {of.with_unit(published)}: {', '.join(values)}."
        for (where, of, published), values in found.items()
    ]


def _environment(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    settings = (f"{setting_name(name)} {setting(name, one)}" for name, one in environment.items())
    return f"Environment: {_plain('; '.join(settings))}."


def _list(heading: str, items: Sequence[str]) -> str:
    return f"**{heading}**\n\n" + "\n".join(f"- {item}" for item in items) if items else ""


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _code(name: str) -> str:
    return f"`{name}`" if not _SPECIAL.search(name) else _plain(name)


def _plain(text: str) -> str:
    """Words that Markdown leaves as they are."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
