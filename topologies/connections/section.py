"""The tables of many connections, for docs/benchmarks.md and for the bench's own report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
Of = Callable[[Record], Iterable[float]]

# Programs, as a run names them.
SWITCH, SERVICE = "ovs-vswitchd", "ovs-lbt"

TEXT = """\
`ovs-lbt bench connections`: one VM behind two uplinks sends {frames_per_s:g} frames of {frame_bytes} bytes a second, whatever
the number of connections, so that each of them gets one within 7 s, before the switch forgets its flow. The
upstream switch is a bridge of the same Open vSwitch, and its few flows count, too. *Cached after*: from the
first connection more than before, with 5,000 of them a second, until hardly any flow is added. *Upcalls*: frames without a cached flow, in {spans[steady_s]:g} s in
which no connection is new, like *CPU*, *lost* and *resident*, which are of `ovs-vswitchd`. *Failover*: how many
frames of a probe of {probe_pps:g} frames a second do not arrive when its uplink loses its carrier, with all
connections cached; our service is alive, or was killed before. *Of connections*: how many frames of the
connections themselves did not arrive then, on whichever uplink they were. Open vSwitch has its default settings, and
begins with a limit of 10,000 flows, which rises by 1,000 at most twice a second."""
RATES_TEXT = """\
New connections at a constant rate for {spans[rate_s]:g} s, in addition to 100 cached ones. *Reached*: how many the sender
could open in a second. *Lost*: first frames that did not arrive. A switch that needs longer for them than
there is time drops frames."""


def section(report: Record, note: str = "") -> str:
    """The section in Markdown; `note` is prose that follows the tables."""
    rows, plan = report["rows"], report["plan"]
    parts = ["## connections", TEXT.format(**plan), _sizes(rows, plan)]
    if plan["rates"]:
        parts += [RATES_TEXT.format(**plan), _rates(rows, plan)]
    if report.get("failed"):
        parts.append(f"Not completed: {'; '.join(report['failed'])}")
    environment = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in report["environment"].items())
    return "\n\n".join(part for part in [*parts, note, f"Environment: {environment}."] if part)


def _sizes(rows: Sequence[Record], plan: Record) -> str:
    columns: tuple[tuple[str, Of, str], ...] = (
        ("flows", lambda one: [one["flows"]], ".0f"),
        ("cached after, s", lambda one: [one["settled_s"]], ".1f"),
        ("upcalls/s", lambda one: [one["upcalls"] / one["span_s"]], ".0f"),
        ("lost, %", lambda one: [100 * one["lost_ratio"]], ".2f"),
        ("CPU, % of a core", lambda one: [cpu_percent(one)], ".0f"),
        ("service, %", lambda one: _service_percent(one), ".1f"),
        ("resident, MB", lambda one: [one["switch_rss_bytes"] / 1e6], ".0f"),
        ("failover, frames", lambda one: _lost(one, ("alive", "none")), ".0f"),
        ("service dead", lambda one: _lost(one, ("dead",)), ".0f"),
        ("of connections", lambda one: _lost(one, ("alive", "none"), "frames_lost"), ".0f"),
        ("service dead", lambda one: _lost(one, ("dead",), "frames_lost"), ".0f"),
    )
    return _table(rows, "sizes", "connections", plan["sizes"], columns)


def _rates(rows: Sequence[Record], plan: Record) -> str:
    columns: tuple[tuple[str, Of, str], ...] = (
        ("reached", lambda one: [one["reached_per_s"]], ".0f"),
        ("upcalls/s", lambda one: [one["upcalls"] / one["span_s"]], ".0f"),
        ("lost, %", lambda one: [100 * one["lost_ratio"]], ".2f"),
        ("CPU, % of a core", lambda one: [cpu_percent(one)], ".0f"),
        ("flows afterwards", lambda one: [one["flows"]], ".0f"),
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
        [first, "contender", "n", *(title for title, _, _ in columns)],
        ["---:", "---", *(["---:"] * (len(columns) + 1))],
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
                lines.append([f"{value:,}", f"`{name}`", str(len(found)), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _median(values: Sequence[float], how: str) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):{how}}"


def medians(
    rows: Sequence[Record], name: str, of: Callable[[Record], float]
) -> list[tuple[int, float]]:
    """Of a contender, each number of connections with the median of a figure."""
    found: dict[int, list[float]] = {}
    for row in rows:
        for one in row["sizes"] if row["contender"] == name else ():
            found.setdefault(one["connections"], []).append(of(one))
    return [(size, statistics.median(values)) for size, values in sorted(found.items())]


def cpu_percent(one: Record, program: str = SWITCH) -> float:
    """The CPU time of a program, as a percentage of a core."""
    return 100 * float(one["cpu_s"][program]) / float(one["span_s"])


def _service_percent(one: Record) -> list[float]:
    return [cpu_percent(one, SERVICE)] if SERVICE in one["cpu_s"] else []


def _lost(one: Record, services: Sequence[str], what: str = "probe_lost") -> list[float]:
    return [cut[what] for cut in one["failovers"] if cut["service"] in services]
