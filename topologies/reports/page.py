"""Generates the HTML page of a bench, which is one self-contained file.

    python -m topologies.reports.page DIR/NAME

writes `report.html` from `report.json` and `samples.jsonl` in the same directory.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.compare.expectation import LEAST_THROUGHPUT_RATIO, MOST_CPU_RATIO, UNEVEN_CV
from topologies.reports import comparison as page_comparison
from topologies.reports import known_figures as page_figures
from topologies.reports import table as page_table
from topologies.reports import uplinks as page_uplinks
from topologies.reports.comparison import Behind, Duel, Side
from topologies.reports.known_figures import Figure, measured, number, percent
from topologies.reports.layout_texts import described
from topologies.reports.markup import Markup, joined, tag
from topologies.reports.origin import described as described_origin
from topologies.reports.origin import of_runs
from topologies.reports.repeated import Pair, Repeated, published, repeated, sentences
from topologies.reports.settings import setting, setting_name
from topologies.reports.style import CSS
from topologies.reports.table import Column, Kind, Row

BEST = {Kind.OURS: ("our best", "ours"), Kind.PEER: ("best peer", "peers")}
MEDIANS = "Figures are medians of the repetitions, with their range in small type. "
RULES = (
    "Our best policy and the best peer are each the most even of those whose throughput is "
    f"within {percent(1 - LEAST_THROUGHPUT_RATIO)} of the fastest on their side. Our policies pass if "
    f"the fastest has at least {LEAST_THROUGHPUT_RATIO} of the fastest peer’s throughput, and the best "
    f"one has at most {MOST_CPU_RATIO} of the best peer’s CPU time per bit. If the best peer’s uplinks "
    f"are uneven (a CV above {UNEVEN_CV}), those of our best policy must also be more even."
)
CHARTS = (
    "The charts show the utilization of each uplink in its busier direction, as a mean over each "
    "second, since the start of the load. The dashed line is the capacity, red marks are moves, and "
    "the shaded part is measured. The charts are of the first repetition."
)


def page(
    report: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    before: Mapping[str, Any] | None = None,
) -> str:
    """Generate the page of a report, with a chart of each contender's first run in a scenario.

    `before` is the published report of the same bench, if there is one.
    """
    name = report["layout"]
    scenarios = page_comparison.scenarios(report)
    body = tag(
        "body",
        _title(report),
        _contents(scenarios),
        _verdicts(report.get("expectations", [])),
        _behind(scenarios),
        _repeated(repeated(report, before)) if before else None,
        *(
            _scenario(
                one,
                [run for run in runs if run.get("scenario", scenarios[0]["name"]) == one["name"]],
                _phases(report) if place == 0 else None,
                place,
            )
            for place, one in enumerate(scenarios)
        ),
        _reading(scenarios),
        _environment({**report.get("environment", {}), **described_origin(of_runs(report))}),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{name} – ovs-lbt bench"),
        tag("style", Markup(CSS)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write(directory: Path) -> Path:
    """Write `report.html` from the files in the directory.

    Raises:
        OSError: a file cannot be read, or the page cannot be written.
        ValueError: a file has another format than the one that a bench writes.
    """
    try:
        report = json.loads((directory / "report.json").read_text())
        with (directory / "samples.jsonl").open() as lines:
            runs = [json.loads(line) for line in lines]
        made = page(report, runs, published(report))
    except KeyError as missing:
        raise ValueError(f"{directory}: no {missing} -> the files of a bench") from missing
    path = directory / "report.html"
    path.write_text(made)
    return path


def main(arguments: Sequence[str]) -> int:
    """Write the page of a bench directory."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m topologies.reports.page DIR/NAME", file=sys.stderr)
        return 2
    try:
        print(write(Path(arguments[0])))
    except (OSError, ValueError) as failure:
        print(f"page: {failure}", file=sys.stderr)
        return 1
    return 0


def _title(report: Mapping[str, Any]) -> Markup:
    description = described(report["layout"])
    source = report.get("published", {}).get("source")
    return tag(
        "header",
        tag("p", "ovs-lbt bench", class_="above"),
        tag("h1", report["layout"]),
        tag("p", _prose(description.headline), class_="lead") if description.headline else None,
        tag("p", _prose(description.reproduces)) if description.reproduces else None,
        tag("p", "Published figures: ", source or "none", ".", class_="soft"),
    )


def _prose(text: str) -> Markup:
    """Prose with `code` in backticks, as markup."""
    parts = re.split(r"`([^`]*)`", text)
    return joined(*(tag("code", part) if index % 2 else part for index, part in enumerate(parts)))


def _contents(scenarios: Sequence[Mapping[str, Any]]) -> Markup | None:
    if len(scenarios) < 2:
        return None
    links = (
        tag("li", tag("a", one["name"], href=f"#scenario{place + 1}"))
        for place, one in enumerate(scenarios)
    )
    return tag("nav", tag("ul", *links))


def _verdicts(expectations: Sequence[Mapping[str, Any]]) -> Markup:
    """The expectations, unmet ones first."""
    met = sum(bool(one["met"]) for one in expectations)
    if not expectations:
        return tag("p", "This run has no expectations.", class_="note")
    return tag(
        "section",
        tag("h3", f"{met} of {len(expectations)} expectations met"),
        tag(
            "ul",
            *(
                tag(
                    "li",
                    _verdict(one["met"]),
                    tag("span", one["condition"], ": ", tag("span", one["found"], class_="found")),
                )
                for one in sorted(expectations, key=lambda one: bool(one["met"]))
            ),
            class_="verdicts",
        ),
    )


def _verdict(holds: bool) -> Markup:
    word = "PASS" if holds else "FAIL"
    return tag("span", word, class_=f"verdict {word.lower()}")


def _behind(scenarios: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The figures in which a peer is better and the ranges of the runs do not overlap."""
    lost = [
        tag(
            "li",
            tag("a", scenario["name"], href=f"#scenario{place + 1}"),
            ": ",
            _lost(one),
        )
        for place, scenario in enumerate(scenarios)
        for one in page_comparison.behind(scenario["contenders"])
        if one.differs
    ]
    return tag("section", tag("h3", "Where a peer is better"), tag("ul", *lost)) if lost else None


def _repeated(found: Repeated) -> Markup:
    """Where the figures differ from the published ones by more than the ranges of the runs."""
    items = [
        tag("li", f"{one.scenario}, {one.here.contender}: {one.figure.label}: ", _change(one))
        for one in found.different
    ]
    return tag(
        "section",
        tag("h3", "Beside the published runs"),
        *(tag("p", sentence) for sentence in sentences(found)),
        tag("ul", *items) if items else None,
    )


def _change(one: Pair) -> str:
    here, before = (_with_range(of, one.figure) for of in (one.here, one.published))
    return f"{here} here, {before} published"


def _with_range(one: Side, of: Figure) -> str:
    least, most = of.text(one.least), of.text(one.most)
    between = f"{least}–{most}, " if least != most else ""
    return f"{of.with_unit(one.value)} ({between}n = {one.count})"


def _scenario(
    scenario: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    phases: Markup | None,
    place: int,
) -> Markup:
    what = scenario.get("what")
    return tag(
        "section",
        tag("h2", scenario["name"]),
        tag("p", _prose(what)) if what else None,
        _table(scenario),
        _duels(page_comparison.duels(scenario["contenders"])),
        page_uplinks.over_time(scenario.get("uplinks", {}), runs),
        phases,
        _all_figures(scenario),
        id=f"scenario{place + 1}",
    )


def _table(scenario: Mapping[str, Any]) -> Markup:
    """A table with rows for the limit, the published figures and the contenders."""
    columns = page_table.columns(scenario)
    heads = [tag("th", name, scope="col") for name in ("contender", "n")]
    for column in columns:
        label = "published" if column.published else column.figure.label
        unit = tag("small", column.figure.unit) if column.figure.unit else None
        style = "published" if column.published else None
        heads.append(tag("th", label, unit, class_=style, scope="col"))
    rows = [_row(row, columns) for row in page_table.rows(scenario)]
    return _wide(tag("thead", tag("tr", *heads)), tag("tbody", *rows))


def _row(row: Row, columns: Sequence[Column]) -> Markup:
    cells = []
    for column in columns:
        if column.published:
            text = column.figure.text(row.value(column))
            cells.append(tag("td", text, class_="published"))
            continue
        best = "best" if column.figure.name in row.best_in else None
        cells.append(tag("td", *_value(column.figure, row), class_=best))
    label: list[object] = [row.name]
    if row.champion:
        words, side = BEST[row.kind]
        label.append(tag("span", words, class_=f"tag of-{side}"))
    if row.kind == Kind.DOCUMENT:
        label.append(tag("span", "published only", class_="tag"))
    return tag("tr", tag("th", *label, scope="row"), tag("td", row.count), *cells, class_=row.kind)


def _value(of: Figure, row: Row) -> list[object]:
    """The contents of a cell: the median, a bar for a share, and the range of the repetitions."""
    value = number(row.found, of.name)
    if value is None:
        return []
    parts: list[object] = [of.text(value)]
    if of.share and row.kind != Kind.LIMIT:
        parts.append(_bar(value, number(row.published, of.name)))
    values = page_figures.repetitions(row.found, of.name)
    if values and (least := of.text(min(values))) != (most := of.text(max(values))):
        parts.append(tag("small", f"{least}–{most}"))
    return parts


def _bar(share: float, published: float | None) -> Markup:
    mark = None
    if published is not None:
        mark = tag("b", style=f"left:{_percent(published)}", title="published")
    return tag("span", tag("i", style=f"width:{_percent(share)}"), mark, class_="bar")


def _percent(share: float) -> str:
    return f"{min(1.0, max(0.0, share)):.1%}"


def _duels(duels: Sequence[Duel]) -> Markup | None:
    if not duels:
        return None
    rows = (tag("li", _verdict(one.holds), _duel(one)) for one in duels)
    return tag(
        "div",
        tag("h3", "Our best policy against the best peer"),
        tag("ul", *rows, class_="verdicts"),
    )


def _duel(duel: Duel) -> Markup:
    sides = (
        tag("span", f"{one.contender} {duel.figure.with_unit(one.value)}", class_=f"of-{side}")
        for one, side in ((duel.ours, "ours"), (duel.peer, "peers"))
    )
    return tag("span", f"{duel.figure.label}: ", next(sides), " against ", next(sides))


def _lost(one: Behind) -> Markup:
    sides = (
        tag(
            "span",
            f"{found.contender} {one.figure.with_unit(found.value)} (n = {found.count})",
            class_=f"of-{kind}",
        )
        for found, kind in ((one.peer, "peers"), (one.ours, "ours"))
    )
    return tag("span", f"{one.figure.label}: ", next(sides), " against ", next(sides))


def _reading(scenarios: Sequence[Mapping[str, Any]]) -> Markup:
    """How to read the page."""
    found = [one for scenario in scenarios for one in scenario["contenders"].values()]
    repeated = any(len(one.get("runs", ())) > 1 for one in found)
    return tag(
        "section",
        tag("h2", "How to read this"),
        tag(
            "p",
            "In the tables, ",
            tag("b", "bold", class_="of-ours"),
            " marks our best figure and ",
            tag("b", "bold", class_="of-peers"),
            " the best of a peer. A mark on a bar is the published share. ",
            MEDIANS if repeated else None,
            "Empty cells were not measured. CV is the standard deviation over the mean; 0 is even.",
        ),
        tag("p", RULES),
        tag("p", CHARTS),
    )


def _all_figures(scenario: Mapping[str, Any]) -> Markup:
    """All figures of all repetitions, folded."""
    contenders = scenario["contenders"]
    rows = []
    for of in page_figures.figures(name for one in contenders.values() for name in measured(one)):
        unit = tag("small", of.name, f" · {of.unit}" if of.unit else "")
        cells = []
        for found in contenders.values():
            values = page_figures.repetitions(found, of.name)
            each = tag("small", " · ".join(map(of.text, values))) if len(values) > 1 else None
            cells.append(tag("td", of.text(number(found, of.name)), each))
        rows.append(tag("tr", tag("th", of.label, unit, scope="row"), *cells))
    heads = (tag("th", name, scope="col") for name in ("figure", *contenders))
    return tag(
        "details",
        tag("summary", "All figures, and each repetition"),
        _wide(tag("thead", tag("tr", *heads)), tag("tbody", *rows)),
    )


def _phases(report: Mapping[str, Any]) -> Markup | None:
    """The phases of a ramping load, with the published ones."""
    phases = page_table.phases(report)
    if not phases:
        return None
    seconds, percents = tag("small", "s"), tag("small", "%")
    heads = [tag("th", "phase", scope="col")]
    heads += [tag("th", end, seconds, scope="col") for end in ("from", "to")]
    heads += [tag("th", uplink, percents, scope="col") for uplink in phases[0].uplinks]
    heads.append(tag("th", "published", percents, class_="published", scope="col"))
    heads.append(tag("th", "what was published", class_="words", scope="col"))
    rows = (
        tag(
            "tr",
            tag("th", one.name, scope="row"),
            tag("td", one.start_s),
            tag("td", one.end_s),
            *(tag("td", share) for share in one.uplinks.values()),
            tag("td", one.published, class_="published"),
            tag("td", one.what, class_="words"),
        )
        for one in phases
    )
    return tag(
        "section",
        tag("h3", "Phases of the load"),
        _wide(tag("thead", tag("tr", *heads)), tag("tbody", *rows)),
    )


def _environment(environment: Mapping[str, Any]) -> Markup:
    entries = [
        part
        for name, value in environment.items()
        for part in (tag("dt", setting_name(name)), tag("dd", setting(name, value)))
    ]
    return tag("section", tag("h2", "Environment"), tag("dl", *entries))


def _wide(*parts: Markup) -> Markup:
    """A table that scrolls sideways if it does not fit."""
    return tag("div", tag("table", *parts), class_="wide", tabindex=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
