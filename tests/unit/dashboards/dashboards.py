"""Reads the dashboards as Grafana does: their panels, queries, variables and annotations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[3] / "dashboards"
FILES = sorted(DIRECTORY.glob("*.json"))

# Prometheus's own, of every target and of every alert.
FOREIGN = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "ALERTS"}
OURS = re.compile(r"(?<![\w:])(ovslbt_\w+)(?![\w:(])(?:\{([^}]*)\})?")
SELECTOR = re.compile(r"(?<![\w:])(\w+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
IN_LINK = re.compile(r"\$\{__(?:data\.fields|field\.labels)\.(\w+)\}")
IN_LEGEND = re.compile(r"\{\{(\w+)\}\}")
# Not $1, which is a group of a pattern.
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
MADE = re.compile(r', "(\w+)", "[^"]*", "\w*", "[^"]*"\)')
LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Query:
    """A query, where it stands, and which labels of its result are shown or linked by name."""

    dashboard: str
    place: str
    text: str
    instant: bool = False
    shown: frozenset[str] = frozenset()
    ref: str = "A"
    repeat: str = ""
    # The labels that are columns or rows of its panel.
    columns: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.place}"

    @property
    def is_mark(self) -> bool:
        """Whether it is the query of an annotation."""
        return self.place.startswith("annotation ")

    @property
    def selected(self) -> dict[str, frozenset[str]]:
        """The metrics of ours that it asks for, with the labels it selects them by."""
        found: dict[str, frozenset[str]] = {}
        for metric, matchers in OURS.findall(self.text):
            found[metric] = found.get(metric, frozenset()) | set(MATCHER.findall(matchers))
        return found

    @property
    def grouped(self) -> frozenset[str]:
        """The labels that it groups, joins or copies by."""
        lists = GROUPING.findall(self.text)
        return frozenset(label.strip() for found in lists for label in found.split(",")) - {""}

    @property
    def made(self) -> frozenset[str]:
        """The labels that it makes of others."""
        return frozenset(MADE.findall(self.text))

    @property
    def named(self) -> frozenset[str]:
        """Every label it says the name of, other than to select."""
        return self.grouped | self.shown


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file, read."""

    name: str
    json: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def panels(self) -> list[dict[str, Any]]:
        """All panels, also those in collapsed rows."""
        rows: list[dict[str, Any]] = self.json["panels"]
        return [panel for row in rows for panel in (row, *row.get("panels", []))]

    @property
    def asking(self) -> list[dict[str, Any]]:
        """The panels that show data."""
        return [panel for panel in self.panels if panel["type"] != "row"]

    @property
    def annotations(self) -> list[dict[str, Any]]:
        return list(self.json["annotations"]["list"])

    @property
    def variables(self) -> dict[str, dict[str, Any]]:
        return {variable["name"]: variable for variable in self.json["templating"]["list"]}

    @property
    def value_queries(self) -> dict[str, Query]:
        """The queries for the values of variables, by the variable's name; the rest as written."""
        return {
            name: Query(self.name, f"variable {name}", variable["query"]["query"])
            for name, variable in self.variables.items()
            if variable["type"] == "query"
        }

    @property
    def marks(self) -> dict[str, Query]:
        """The queries of annotations, by the annotation's name."""
        return {
            mark["name"]: Query(
                self.name,
                f"annotation {mark['name']}",
                mark["expr"],
                shown=_in(mark["titleFormat"], mark["textFormat"], *_braced(mark["tagKeys"])),
            )
            for mark in self.annotations
        }

    @property
    def queries(self) -> list[Query]:
        """The query of every target of every panel, and of every annotation."""
        found = [query for panel in self.asking for query in self._of_panel(panel)]
        return found + list(self.marks.values())

    def _of_panel(self, panel: Mapping[str, Any]) -> Iterator[Query]:
        columns = {
            label
            for transformation in panel["transformations"]
            for label in _columns(transformation)
        }
        linked = frozenset(IN_LINK.findall(json.dumps(panel)))
        for target in panel["targets"]:
            own = Query("", "", target["expr"]).grouped if columns else frozenset()
            yield Query(
                self.name,
                f"{panel['title']} {target['refId']}",
                target["expr"],
                target["instant"],
                _in(target["legendFormat"]) | linked | (own & columns),
                target["refId"],
                panel.get("repeat", ""),
                frozenset(name for name in columns if not name.startswith("Value")),
            )


def _columns(transformation: Mapping[str, Any]) -> Iterator[str]:
    """The labels that a transformation makes columns or rows of."""
    options = transformation["options"]
    if transformation["id"] == "organize":
        yield from options["renameByName"]
    if transformation["id"] == "groupingToMatrix":
        yield from (options["columnField"], options["valueField"])


def _braced(names: str) -> list[str]:
    return [f"{{{{{name}}}}}" for name in names.split(",") if name]


def _in(*formats: str) -> frozenset[str]:
    return frozenset(label for text in formats for label in IN_LEGEND.findall(text))


def load(path: Path) -> Dashboard:
    return Dashboard(path.stem, json.loads(path.read_text()))


ALL = [load(path) for path in FILES]
QUERIES = [query for dashboard in ALL for query in dashboard.queries]
VALUE_QUERIES = [query for dashboard in ALL for query in dashboard.value_queries.values()]
BY_NAME = {dashboard.name: dashboard for dashboard in ALL}


def unknown(query: Query, exported: Mapping[str, frozenset[str]]) -> list[str]:
    """What a query asks for that is not exported: metrics, and labels that they do not have."""
    absent = [name for name in query.selected if name not in exported]
    if absent or not query.selected:
        return [f"{query}: no metric {name}" for name in absent]
    told = [
        f"{query}: {name} has no label {label}"
        for name, labels in query.selected.items()
        for label in sorted(labels - exported[name])
    ]
    every = frozenset[str]().union(*(exported[name] for name in query.selected))
    return told + [
        f"{query}: nothing has a label {x}" for x in sorted(query.named - query.made - every)
    ]


def unused(exported: Mapping[str, frozenset[str]]) -> list[str]:
    """What is exported and on no dashboard: metrics, and labels of theirs."""
    used: dict[str, set[str]] = {}
    for query in QUERIES:
        for name, labels in query.selected.items():
            used.setdefault(name, set()).update(labels | query.named)
    told = []
    for name, labels in exported.items():
        base = re.sub(r"_(bucket|sum|count|created)$", "", name)
        of_histogram = f"{base}_bucket" in exported
        if name.endswith("_created") or (of_histogram and not name.endswith("_bucket")):
            continue
        if name not in used:
            told.append(f"on no dashboard: {name}")
        else:
            told += [f"on no dashboard: {name}'s {x}" for x in sorted(labels - used[name])]
    return told
