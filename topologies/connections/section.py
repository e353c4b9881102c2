"""The tables of many connections, for docs/benchmarks and for the bench's own report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topologies.reports.markdown import table

Record = Mapping[str, Any]
Of = Callable[[Record], Iterable[float]]

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


def _lost(one: Record, services: Sequence[str]) -> list[float]:
    return [cut["probe_lost"] for cut in one["failovers"] if cut["service"] in services]
