"""A scenario's table, before it is HTML or Markdown: which rows and columns it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from topologies.reports.comparison import best, by_kind, champions
from topologies.reports.known_figures import Figure, figure, figures, measured, number


class Kind(StrEnum):
    """What a row is of."""

    LIMIT = "limit"
    DOCUMENT = "document"  # published, and not run here
    PEER = "peer"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class Column:
    """A figure, or what was published of it."""

    figure: Figure
    published: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The limit, or a contender: found and published figures, and those it is best in.

    A champion is the one of its kind that an operator would choose.
    """

    name: str
    kind: Kind
    found: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    best_in: frozenset[str] = frozenset()
    champion: bool = False

    @property
    def count(self) -> str:
        """How many runs its figures are medians of; empty where that is not known."""
        return str(len(self.found["runs"])) if self.found.get("runs") else ""

    def value(self, column: Column) -> float | None:
        """What a cell shows; None if it stays empty."""
        return number(self.published if column.published else self.found, column.figure.name)


def columns(scenario: Mapping[str, Any]) -> list[Column]:
    """Every figure of the scenario but the minor ones, each followed by the published."""
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
    """The limit, what was published only, the peers, and ours."""
    contenders, published = scenario["contenders"], scenario.get("published", {})
    limits = {
        "throughput_bps": scenario["limit_bps"],
        "steady_throughput_bps": scenario["limit_bps"],
        "share_of_limit": 1.0,
        "steady_share_of_limit": 1.0,
    }
    marks, chosen = _best_in(contenders, columns(scenario)), champions(contenders)
    return [
        Row("limit", Kind.LIMIT, limits),
        *(
            Row(name, Kind.DOCUMENT, published=found)
            for name, found in published.items()
            if name not in contenders
        ),
        *(
            Row(name, kind, found, published.get(name, {}), marks[name], name in chosen)
            for kind in (Kind.PEER, Kind.OURS)
            for name, found in by_kind(contenders, ours=kind == Kind.OURS).items()
        ),
    ]


def _best_in(contenders: Mapping[str, Any], shown: Sequence[Column]) -> dict[str, frozenset[str]]:
    """In which figures each contender is the best of its kind.

    Nobody is where all are alike as they are shown.
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
    """A phase of a ramping load, its numbers as text, and what was published of it."""

    name: str
    start_s: str
    end_s: str
    uplinks: Mapping[str, str]
    published: str
    what: str


def phases(report: Mapping[str, Any]) -> list[PhaseRow]:
    """A report's phases; most have none. Uplinks' utilization is in percent."""
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
