"""The section of docs/benchmarks.md on the cost of many bridges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies.scale.figures import figure

Report = Mapping[str, Any]
Column = tuple[str, str, float, int]
# A column: heading, path of the figure in a row, factor, and number of decimals.
COLUMNS: tuple[Column, ...] = (
    ("CPU at rest, % of a core", "at_rest.cpu_ratio", 1e2, 2),
    ("CPU, counters change, %", "counting.cpu_ratio", 1e2, 2),
    ("resident, MB", "rss_bytes", 1e-6, 0),
    ("PSS, MB", "pss_bytes", 1e-6, 0),
    ("threads", "threads", 1, 0),
    ("wake-ups/s", "at_rest.wakeups_per_s", 1, 0),
    ("poll, ms", "at_rest.poll_s.median", 1e3, 1),
    ("p99", "at_rest.poll_s.p99", 1e3, 1),
    ("decision, ms", "at_rest.decision_s.median", 1e3, 2),
    ("p99", "at_rest.decision_s.p99", 1e3, 1),
    ("off time, ms", "at_rest.off_time_s.median", 1e3, 1),
    ("failover, ms", "failover_s.median", 1e3, 0),
    ("switch response, ms", "failover_switch_s.median", 1e3, 0),
    ("attach, s", "attach_s.median", 1, 2),
    ("start, s", "start_s", 1, 1),
    ("scrape, CPU s", "scrape.cpu_s", 1, 2),
    ("vswitchd at rest, %", "at_rest.vswitchd_cpu_ratio", 1e2, 1),
)
GROWS = {
    "at_rest.cpu_ratio": "CPU at rest",
    "rss_bytes": "resident memory",
    "threads": "threads",
    "at_rest.decision_s.mean": "a decision",
    "failover_s.median": "a failover",
    "attach_s.median": "an attach",
    "start_s": "the start",
    "scrape.cpu_s": "a scrape",
}

TEXT = """\
`make bench-scale`: one service on many bridges of one Open vSwitch, {ports} patch ports each and two
uplinks, with the policy `load-based`, which polls once a second. The last row has `adaptive`, which polls
ten times a second. *At rest*: {observe_s:g} s in which only polls happen. *Counters change*: the LOCAL port
of each bridge sends two frames a second. *Poll*: from the request until the last reply. *Decision*: from
the last reply until the commands. *Off time*: the deviation of the time between a bridge's decisions from
a multiple of the poll interval. *Failover*: from the switch's notification of a failed link until its
groups have changed. *Switch response*: the longest time in which the switch did not answer during that.
*Start*: until all bridges are connected. *Attach*: from the request until the pipeline is confirmed."""


def section(report: Report, note: str = "") -> str:
    """The section in Markdown; `note` is prose that follows the table."""
    rows = [*report["rows"], report["adaptive"]]
    columns = [c for c in COLUMNS if any(figure(row, c[1]) is not None for row in rows)]
    head = ["bridges", *(heading for heading, *_ in columns)]
    lines = [head, ["---:"] * len(head)]
    for row in report["rows"]:
        lines.append([str(row["bridges"]), *_cells(row, columns)])
    lines.append(["1, `adaptive`", *_cells(report["adaptive"], columns)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = TEXT.format(
        ports=report["adaptive"]["ports_each"], observe_s=report["pace"]["observe_s"]
    )
    growth = report["growth"]
    grows = [f"{name} {growth[key]:.2f}" for key, name in GROWS.items() if growth.get(key)]
    exponents = (
        "Growth with the number of bridges, as the exponent of a power law (1 is"
        f" linear): {', '.join(grows)}."
    )
    failed = f"Not completed: {report['failed']}" if "failed" in report else ""
    environment = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in report["environment"].items())
    parts = ["## scale", text, table, exponents, failed, note, f"Environment: {environment}."]
    return "\n\n".join(part for part in parts if part)


def _cells(row: Report, columns: Sequence[Column]) -> list[str]:
    values = [(figure(row, place), factor, digits) for _, place, factor, digits in columns]
    return ["" if v is None else f"{v * factor:.{digits}f}" for v, factor, digits in values]
