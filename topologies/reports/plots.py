"""What the pictures of all reports have in common. Requires matplotlib, which is optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

COLOURS = ("#1f5fa8", "#d9730d", "#3a8f4d", "#8a4fb0", "#b3261e", "#5b6570", "#0e7490", "#c2a100")
# The points of a line.
Points = Sequence[tuple[float, float]]


def saved(figure: Any, directory: Path, name: str) -> list[Path]:
    """Save a figure as `NAME.png` and `NAME.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths


def lines(axes: Any, of_uplinks: Mapping[str, Points], title: str, most: float) -> None:
    """Draw a line for each uplink over time, up to `most`."""
    for number, (uplink, points) in enumerate(of_uplinks.items()):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.5, label=uplink)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_ylim(0, most)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
