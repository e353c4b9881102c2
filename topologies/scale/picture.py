"""Draws how figures grow with the number of bridges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

COLOURS = ("#1f5fa8", "#d9730d", "#3a8f4d", "#8a4fb0")


def draw(report: dict[str, Any], directory: Path) -> list[Path]:
    """Draw `scale.png` and `scale.svg`."""
    rows = report["rows"]
    bridges = [row["bridges"] for row in rows]
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    panels: list[tuple[str, dict[str, list[float]]]] = [
        (
            "CPU, % of a core",
            {
                "at rest": [100 * row["at_rest"]["cpu_ratio"] for row in rows],
                "counters change": [100 * row["counting"]["cpu_ratio"] for row in rows],
            },
        ),
        ("memory, MB", {"resident": [row["rss_bytes"] / 1e6 for row in rows]}),
        (
            "milliseconds",
            {
                "poll to decision": [_ms(row, "decision_s") + _ms(row, "poll_s") for row in rows],
                "failover": [1e3 * row["failover_s"]["median"] for row in rows],
                "attach": [1e3 * row["attach_s"]["median"] for row in rows],
            },
        ),
    ]
    for axis, (title, lines) in zip(axes, panels, strict=True):
        for colour, (name, values) in zip(COLOURS, lines.items(), strict=False):
            axis.plot(bridges, values, marker="o", color=colour, linewidth=1.8, label=name)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(f"bridges of {rows[0]['ports_each']} patch ports each", fontsize=9)
        axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axis.legend(fontsize=8, framealpha=0.9)
    paths = [directory / "scale.png", directory / "scale.svg"]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths


def _ms(row: dict[str, Any], name: str) -> float:
    return 1e3 * float(row["at_rest"][name]["mean"] or 0.0)
