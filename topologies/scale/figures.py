"""Figures of a process and of its Prometheus histograms, and their page of docs/benchmarks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.network.service import Metric
from topologies.reports.markdown import table

BYTES_PER_KB = 1024


def rss_bytes(pid: int) -> int:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(found) * BYTES_PER_KB


def threads(pid: int) -> int:
    """The number of threads of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram: cumulative counts by upper bound, and the sum."""

    buckets: Mapping[float, float]
    total_s: float

    @property
    def count(self) -> float:
        return max(self.buckets.values(), default=0.0)

    def since(self, before: Histogram) -> Histogram:
        """The observations since `before`."""
        buckets = {le: n - before.buckets.get(le, 0.0) for le, n in self.buckets.items()}
        return Histogram(buckets, self.total_s - before.total_s)

    def quantile(self, part: float) -> float | None:
        """Interpolate like `histogram_quantile` of Prometheus. None without observations."""
        rank, below_le, below_n = part * self.count, 0.0, 0.0
        if not self.count:
            return None
        for le, count in sorted(self.buckets.items()):
            if count >= rank and count > below_n:
                if math.isinf(le):
                    return below_le
                return below_le + (le - below_le) * (rank - below_n) / (count - below_n)
            below_le, below_n = le, count
        return below_le


def histogram(metrics: Iterable[Metric], name: str) -> Histogram:
    """A histogram of the service, summed over all bridges."""
    buckets: dict[float, float] = {}
    total_s = 0.0
    for metric in metrics:
        if metric.name == name + "_bucket":
            le = float(metric.labels["le"])
            buckets[le] = buckets.get(le, 0.0) + metric.value
        elif metric.name == name + "_sum":
            total_s += metric.value
    return Histogram(buckets, total_s)


def figure(row: Mapping[str, Any], place: str) -> float | None:
    """A figure of a report row by its path, like `at_rest.cpu_ratio`; None if it was not measured."""
    found: Any = row
    for part in place.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


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
