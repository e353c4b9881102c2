"""The rows and columns of a scenario's table, independent of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from topologies.compare.contenders import ORACLE
from topologies.reports.comparison import best, by_kind
from topologies.reports.known_figures import Figure, figure, figures, measured, number


class Kind(StrEnum):
    """The kind of a row."""

    LIMIT = "limit"
    DOCUMENT = "document"  # published, but not run here
    CONTENDER = "contender"


@dataclass(frozen=True, slots=True)
class Column:
    """A column with the measured or the published values of a figure."""

    figure: Figure
    published: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row for the limit or a contender: measured figures, published ones, and the best ones."""

    name: str
    kind: Kind
    found: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    best_in: frozenset[str] = frozenset()

    @property
    def count(self) -> str:
        """The number of runs; empty if it is unknown."""
        return str(len(self.found["runs"])) if self.found.get("runs") else ""

    def value(self, column: Column) -> float | None:
        """The value of a cell; None for an empty cell."""
        return number(self.published if column.published else self.found, column.figure.name)


def columns(scenario: Mapping[str, Any]) -> list[Column]:
    """The figures of the scenario except minor ones, each followed by the published one."""
    published = scenario.get("published", {}).values()
    documented = {name for found in published for name in measured(found)}
    names = {name for found in scenario["contenders"].values() for name in measured(found)}
    return [
        Column(of, beside)
        for of in figures(names | documented)
        if not of.minor or of.name in documented
        for beside in (False, True)
        if not beside or of.name in documented
    ]


def rows(scenario: Mapping[str, Any]) -> list[Row]:
    """The limit, the modes that were only published, the oracle, the peers, and our policies."""
    contenders, published = scenario["contenders"], scenario.get("published", {})
    limits = {
        "throughput_bps": scenario["limit_bps"],
        "steady_throughput_bps": scenario["limit_bps"],
        "share_of_limit": 1.0,
        "steady_share_of_limit": 1.0,
    }
    marks = _best_in(contenders, columns(scenario))
    oracle = {name: found for name, found in contenders.items() if name == ORACLE}
    peers, ours = (by_kind(contenders, ours=ours) for ours in (False, True))
    return [
        Row("limit", Kind.LIMIT, limits),
        *(
            Row(name, Kind.DOCUMENT, published=found)
            for name, found in published.items()
            if name not in contenders
        ),
        *(
            Row(name, Kind.CONTENDER, found, published.get(name, {}), marks[name])
            for name, found in (oracle | peers | ours).items()
        ),
    ]


def _best_in(contenders: Mapping[str, Any], shown: Sequence[Column]) -> dict[str, frozenset[str]]:
    """The figures in which each contender is the best of its side.

    A figure has no best contender if all texts are equal.
    """
    found: dict[str, set[str]] = {name: set() for name in contenders}
    for of in (column.figure for column in shown if not column.published):
        texts = {of.text(number(one, of.name)) for one in contenders.values()} - {""}
        if len(texts) < 2:
            continue
        for ours in (True, False):
            if first := best(by_kind(contenders, ours), of):
                found[first.contender].add(of.name)
    return {name: frozenset(names) for name, names in found.items()}


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A phase of a ramping load, with numbers as text, and the published values."""

    name: str
    start_s: str
    end_s: str
    uplinks: Mapping[str, str]
    published: str
    what: str


def phases(report: Mapping[str, Any]) -> list[PhaseRow]:
    """The phases of a report, with utilizations in percent. Most reports have none."""
    documents = {one["name"]: one for one in report.get("published", {}).get("phases", [])}
    share, time = figure("uplink_share"), figure("since_start_s")
    found = []
    for phase in report.get("phases", []):
        document = documents.get(phase["name"], {})
        utilization = phase["uplink_utilization"]
        found.append(
            PhaseRow(
                phase["name"],
                time.text(number(phase, "start_s")),
                time.text(number(phase, "end_s")),
                {uplink: share.text(number(utilization, uplink)) for uplink in utilization},
                " / ".join(map(share.text, document.get("shares", []))),
                document.get("what", ""),
            )
        )
    return found
