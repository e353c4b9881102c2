"""Draws the uplinks of runs over time, like the published figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from topologies.compare.phases import Phase
from topologies.compare.samples import Utilization, mean_utilization

COLOURS = ("#1f5fa8", "#d9730d", "#3a8f4d", "#8a4fb0")
PHASE_SHADES = ("#f3f5f8", "#e3e9f1")
MOVE_COLOUR = "#b3261e"
# Samples are too frequent for a clear line, so each point is a mean over this span.
POINT_S = 1.0
# The small drawings of a row. They have the axes and the colours of the large one.
MOST_COLUMNS = 4


def draw(
    runs: Mapping[str, list[Utilization]],
    phases: Sequence[Phase],
    moves_s: Sequence[float],
    threshold_ratio: float,
    capacity_bps: int,
    title: str,
    directory: Path,
) -> list[Path]:
    """Draw `uplinks.png` and `uplinks.svg`, with `load-based` large and the others below it."""
    rest = [name for name in runs if name != "load-based"]
    columns = max(1, min(len(rest), MOST_COLUMNS))
    rows = -(-len(rest) // columns)
    figure = pyplot.figure(figsize=(10, 4.6 + 2.2 * rows), layout="constrained")
    figure.suptitle(title, fontsize=12)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[2.1, *[1] * rows])
    capacity_mbps = capacity_bps / 1e6
    if "load-based" in runs:
        axes = figure.add_subplot(grid[0, :])
        _uplinks(axes, runs["load-based"], capacity_mbps, "load-based")
        _phases(axes, phases, capacity_mbps)
        for number, at_s in enumerate(moves_s, start=1):
            axes.axvline(at_s, color=MOVE_COLOUR, linewidth=1.4)
            axes.annotate(
                f"move {number}\n{at_s:.1f} s",
                (at_s, 0.86 * capacity_mbps),
                xytext=(5, 0),
                textcoords="offset points",
                color=MOVE_COLOUR,
                fontsize=9,
                va="center",
            )
        limit_mbps = threshold_ratio * capacity_mbps
        axes.axhline(limit_mbps, color="#666666", linestyle="--", linewidth=1)
        axes.annotate(
            f"threshold {threshold_ratio:.0%}",
            (0, limit_mbps),
            xytext=(4, 3),
            textcoords="offset points",
            color="#444444",
            fontsize=9,
        )
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.7), fontsize=9, framealpha=0.9)
        axes.set_xlabel("seconds since the start of the load", fontsize=9)
        axes.set_ylabel("Mbit/s, busier direction", fontsize=9)
    for place, name in enumerate(rest):
        row, column = divmod(place, columns)
        axes = figure.add_subplot(grid[1 + row, column])
        _uplinks(axes, runs[name], capacity_mbps, name)
        if "load-based" not in runs:
            axes.legend(loc="upper left", fontsize=8, framealpha=0.9)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / "uplinks.png", directory / "uplinks.svg"]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths


def _uplinks(axes: Any, intervals: list[Utilization], capacity_mbps: float, name: str) -> None:
    end_s = intervals[-1].end_s
    marks = [number * POINT_S for number in range(int(end_s / POINT_S) + 1)]
    points = [mean_utilization(intervals, mark, mark + POINT_S) for mark in marks]
    for index, uplink in enumerate(intervals[0].ratio):
        seen = [(m + POINT_S / 2, p[uplink]) for m, p in zip(marks, points, strict=True) if p]
        axes.plot(
            [at_s for at_s, _ in seen],
            [ratio * capacity_mbps for _, ratio in seen],
            color=COLOURS[index % len(COLOURS)],
            linewidth=1.8,
            label=uplink,
        )
    axes.set_title(name, fontsize=10, loc="left")
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1.05 * capacity_mbps)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)


def _phases(axes: Any, phases: Sequence[Phase], capacity_mbps: float) -> None:
    for index, phase in enumerate(phases):
        axes.axvspan(phase.start_s, phase.end_s, color=PHASE_SHADES[index % 2], zorder=0)
        axes.annotate(
            phase.name,
            ((phase.start_s + phase.end_s) / 2, 1.0 * capacity_mbps),
            ha="center",
            va="center",
            fontsize=9,
            color="#333333",
        )
