"""The page of docs/benchmarks on the cost of many bridges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies.reports.markdown import table
from topologies.scale.figures import figure

Report = Mapping[str, Any]
Column = tuple[str, str, float, int]
# A column: heading, path of the figure in a row, factor, and number of decimals.
COLUMNS: tuple[Column, ...] = (
    ("CPU at rest, %", "at_rest.cpu_ratio", 1e2, 2),
    ("resident, MB", "rss_bytes", 1e-6, 0),
    ("poll, ms", "at_rest.poll_s.median", 1e3, 1),
    ("failover, ms", "failover_s.median", 1e3, 0),
    ("attach, s", "attach_s.median", 1, 2),
    ("start, s", "start_s", 1, 1),
)

TEXT = """\
`make bench-scale` runs one service on many bridges of one Open vSwitch, with {ports} patch ports and two uplinks each.
The policy is `load-based`, which polls once a second. In the last row it is `adaptive`, which polls ten times a
second.

- *CPU at rest*: the service's share of a core in {observe_s:g} s in which it only polls.
- *Poll*: from the request until the last reply.
- *Failover*: from the switch's notification of a failed link until the bridge's groups have changed.
- *Attach*: from the request until the pipeline is confirmed. *Start*: until all bridges are connected."""


def section(report: Report, note: str = "") -> str:
    """The page in Markdown; `note` is prose that follows the table."""
    rows = [*report["rows"], report["adaptive"]]
    columns = [c for c in COLUMNS if any(figure(row, c[1]) is not None for row in rows)]
    head = ["bridges", *(heading for heading, *_ in columns)]
    lines = [head, ["---:"] * len(head)]
    for row in report["rows"]:
        lines.append([str(row["bridges"]), *_cells(row, columns)])
    lines.append(["1, `adaptive`", *_cells(report["adaptive"], columns)])
    text = TEXT.format(
        ports=report["adaptive"]["ports_each"], observe_s=report["pace"]["observe_s"]
    )
    failed = f"Not completed: {report['failed']}" if "failed" in report else ""
    parts = ["# scale", text, table(lines), failed, f"## Notes\n\n{note}" if note else ""]
    return "\n\n".join(part for part in parts if part)


def _cells(row: Report, columns: Sequence[Column]) -> list[str]:
    values = [(figure(row, place), factor, digits) for _, place, factor, digits in columns]
    return ["" if v is None else f"{v * factor:.{digits}f}" for v, factor, digits in values]
