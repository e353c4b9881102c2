"""Lists the figures in which a peer is better, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies.reports import comparison
from topologies.reports.comparison import Behind, Side
from topologies.reports.known_figures import Figure
from topologies.reports.markdown import bullets, code, plain
from topologies.reports.settings import report_name

NONE = "None in these figures."
RANGES = """\
In these figures of the layouts, the ranges of the runs do not overlap. The section of a layout says why."""
SINGLE = """\
Of these figures at least one side has no range: it is of a single run, or of all runs together. The
difference may not be reproducible."""


def ahead(reports: Sequence[Mapping[str, Any]]) -> str:
    """The list of all figures in which a peer is better, with a link to the section of the layout.

    Figures without a range come apart from those whose ranges can be compared.
    """
    found = [(report, where, one) for report in reports for where, one in _ahead(report)]
    firm = [_linked(*each) for each in found if _have_ranges(each[-1])]
    single = [_linked(*each) for each in found if not _have_ranges(each[-1])]
    parts = ["## Where a peer is better"]
    parts += [RANGES, bullets(firm)] if firm else []
    parts += [SINGLE, bullets(single)] if single else []
    return "\n\n".join(parts if firm or single else [*parts, NONE])


def better(report: Mapping[str, Any]) -> list[str]:
    """The figures in which a peer is better and the ranges of the runs do not overlap."""
    return [_beats(where, one) for where, one in _ahead(report)]


def without_difference(report: Mapping[str, Any]) -> list[str]:
    """The figures in which a peer's median is better, but the ranges of the runs overlap."""
    return [
        f"{where}{one.figure.label}: {side(one.peer, one.figure)}, {side(one.ours, one.figure)}."
        for where, one in _behind(report)
        if not one.differs
    ]


def side(one: Side, of: Figure) -> str:
    """A median with the number of its runs, and with their range if the text shows one."""
    least, most = of.text(one.least), of.text(one.most)
    between = f"{least} to {most}, " if least != most else ""
    return f"{code(one.contender)} {of.with_unit(one.value)} ({between}n = {one.count})"


def where(report: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """The name of the scenario, if the report has several."""
    several = len(comparison.scenarios(report)) > 1
    return f"{plain(scenario['name'])}: " if several else ""


def _behind(report: Mapping[str, Any]) -> list[tuple[str, Behind]]:
    return [
        (where(report, scenario), one)
        for scenario in comparison.scenarios(report)
        for one in comparison.behind(scenario["contenders"])
    ]


def _ahead(report: Mapping[str, Any]) -> list[tuple[str, Behind]]:
    return [(place, one) for place, one in _behind(report) if one.differs]


def _have_ranges(one: Behind) -> bool:
    return one.ours.has_range and one.peer.has_range


def _linked(report: Mapping[str, Any], place: str, one: Behind) -> str:
    name = report_name(report)
    return f"[{code(name)}](#{name}), {_beats(place, one)}"


def _beats(place: str, one: Behind) -> str:
    return (
        f"{place}{one.figure.label}: {side(one.peer, one.figure)} beats"
        f" {side(one.ours, one.figure)}."
    )
