"""The tables of many connections, for docs/benchmarks and for the bench's own report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topologies.reports.markdown import table

Record = Mapping[str, Any]
Of = Callable[[Record], Iterable[float]]

# The program, as a run names it.
SWITCH = "ovs-vswitchd"
# The horizontal axis of pictures.
ALONG = "cached connections of one VM"

TEXT = """\
`ovs-lbt bench connections`: one VM behind two uplinks sends {frames_per_s:.0f} frames of {frame_bytes} bytes a second,
whatever the number of connections, and Open vSwitch caches a flow for each connection or hash.

- *Failover*: the frames of a probe of {probe_pps:g} frames a second that are lost when its uplink loses its carrier,
  as median and range. *Service down*: the same after the service was killed.
- *Flows*, *resident*: of `ovs-vswitchd`, including the bridge that is the upstream switch."""
RATES_TEXT = """\
The VM opens new connections for {spans[rate_s]:g} s, in addition to 100 cached ones. *Lost*: first frames that did not
arrive."""


def section(report: Record, note: str = "") -> str:
    """The page in Markdown; `note` is prose that follows the tables."""
    rows, plan = report["rows"], report["plan"]
    parts = ["# connections", TEXT.format(**plan), _sizes(rows, plan)]
    if plan["rates"]:
        parts += [RATES_TEXT.format(**plan), _rates(rows, plan)]
    if report.get("failed"):
        parts.append(f"Not completed: {'; '.join(report['failed'])}")
    parts.append(f"## Notes\n\n{note}" if note else "")
    return "\n\n".join(part for part in parts if part)


def _sizes(rows: Sequence[Record], plan: Record) -> str:
    columns: tuple[tuple[str, Of, str], ...] = (
        ("flows", lambda one: [one["flows"]], ".0f"),
        ("resident, MB", lambda one: [one["switch_rss_bytes"] / 1e6], ".0f"),
        ("failover, frames", lambda one: _lost(one, ("alive", "none")), ".0f"),
        ("service down", lambda one: _lost(one, ("dead",)), ".0f"),
    )
    return _table(rows, "sizes", "connections", plan["sizes"], columns)


def _rates(rows: Sequence[Record], plan: Record) -> str:
    columns: tuple[tuple[str, Of, str], ...] = (
        ("reached", lambda one: [one["reached_per_s"]], ".0f"),
        ("upcalls/s", lambda one: [one["upcalls"] / one["span_s"]], ".0f"),
        ("lost, %", lambda one: [100 * one["lost_ratio"]], ".2f"),
    )
    return _table(rows, "rates", "asked_per_s", plan["rates"], columns)


def _table(
    rows: Sequence[Record],
    kind: str,
    key: str,
    values: Sequence[int],
    columns: Sequence[tuple[str, Of, str]],
) -> str:
    """A line for each value and contender, with medians of all runs."""
    first = "connections" if kind == "sizes" else "new/s"
    lines = [
        [first, "contender", *(title for title, _, _ in columns)],
        ["---:", "---", *(["---:"] * len(columns))],
    ]
    for value in values:
        for name in dict.fromkeys(row["contender"] for row in rows):
            found = [
                one
                for row in rows
                if row["contender"] == name
                for one in row[kind]
                if one[key] == value
            ]
            if found:
                cells = [
                    _median([x for one in found for x in of(one)], how) for _, of, how in columns
                ]
                lines.append([f"{value:,}", f"`{name}`", *cells])
    return table(lines)


def _median(values: Sequence[float], how: str) -> str:
    """The median, with the range of different values."""
    if not values:
        return ""
    median, least, most = (f"{of(values):{how}}" for of in (statistics.median, min, max))
    return median if least == most else f"{median} ({least} to {most})"


def medians(
    rows: Sequence[Record], name: str, of: Callable[[Record], float]
) -> list[tuple[int, float]]:
    """Of a contender, each number of connections with the median of a figure."""
    found: dict[int, list[float]] = {}
    for row in rows:
        for one in row["sizes"] if row["contender"] == name else ():
            found.setdefault(one["connections"], []).append(of(one))
    return [(size, statistics.median(values)) for size, values in sorted(found.items())]


def lines(report: Record) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """For each panel of a picture the line of each contender, along the number of connections."""
    panels: dict[str, Callable[[Record], float]] = {
        "datapath flows": lambda one: float(one["flows"]),
        "CPU of ovs-vswitchd, % of a core": cpu_percent,
        "memory of ovs-vswitchd, MB": lambda one: float(one["switch_rss_bytes"]) / 1e6,
    }
    names = dict.fromkeys(row["contender"] for row in report["rows"])
    return {
        title: {name: medians(report["rows"], name, of) for name in names}
        for title, of in panels.items()
    }


def cpu_percent(one: Record) -> float:
    """The CPU time of the switch, as a percentage of a core."""
    return 100 * float(one["cpu_s"][SWITCH]) / float(one["span_s"])


def _lost(one: Record, services: Sequence[str]) -> list[float]:
    return [cut["probe_lost"] for cut in one["failovers"] if cut["service"] in services]
