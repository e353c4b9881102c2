"""Draws the cost of many connections. Requires matplotlib, which only this package's command needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from topologies.connections.section import cpu_percent, medians

MARKS = "osD^v<>P"


def draw(report: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw `connections.png` and `connections.svg`: a line for each contender."""
    panels: tuple[tuple[str, Callable[[Mapping[str, Any]], float]], ...] = (
        ("datapath flows", lambda one: float(one["flows"])),
        ("CPU of ovs-vswitchd, % of a core", cpu_percent),
        ("memory of ovs-vswitchd, MB", lambda one: float(one["switch_rss_bytes"]) / 1e6),
    )
    names = list(dict.fromkeys(row["contender"] for row in report["rows"]))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(13, 4), layout="constrained")
    for axis, (title, of) in zip(axes, panels, strict=True):
        for number, name in enumerate(names):
            points = medians(report["rows"], name, of)
            mark = MARKS[number % len(MARKS)]
            axis.plot(*zip(*points, strict=True), marker=mark, linewidth=1.6, label=name)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xscale("log")
        axis.set_xlabel("cached connections of one VM", fontsize=9)
        axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=8, framealpha=0.9)
    paths = [directory / "connections.png", directory / "connections.svg"]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths
