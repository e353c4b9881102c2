"""What all pictures have in common, and the picture of a replay. Requires matplotlib, which is optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

COLOURS = ("#1f5fa8", "#d9730d", "#3a8f4d", "#8a4fb0", "#b3261e", "#5b6570", "#0e7490", "#c2a100")
DIRECTIONS = ("transmit", "receive")
# The largest number of points of a line. Each is a mean over samples.
POINTS = 400


def saved(figure: Any, directory: Path, name: str) -> list[Path]:
    """Save a figure as `NAME.png` and `NAME.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths


def draw_replay(
    excess: Mapping[str, Sequence[tuple[float, float, float]]], title: str, directory: Path
) -> list[Path]:
    """Draw `replay.png` and `replay.svg`: traffic above capacity over time, by policy.

    `excess` has for each policy the start of each sample, and the shares of the bytes sent and
    received in it that exceeded the capacity.
    """
    figure, rows = pyplot.subplots(
        2, 1, figsize=(10, 6.4), sharex=True, sharey=True, layout="constrained"
    )
    figure.suptitle(f"Traffic above capacity: {title}", fontsize=12)
    for direction, axes in enumerate(rows):
        for index, (policy, samples) in enumerate(excess.items()):
            step = -(-len(samples) // POINTS)
            points = [samples[n : n + step] for n in range(0, len(samples), step)]
            axes.plot(
                [(of[0][0] - samples[0][0]) / 3600 for of in points],
                [100 * sum(s[1 + direction] for s in of) / len(of) for of in points],
                color=COLOURS[index % len(COLOURS)],
                linewidth=1.2,
                label=policy,
                drawstyle="steps-post",
            )
        axes.set_title(DIRECTIONS[direction], fontsize=10, loc="left")
        axes.set_ylabel("% of the bytes", fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    rows[0].legend(loc="upper right", fontsize=9, framealpha=0.9)
    rows[1].set_xlabel("hours", fontsize=9)
    return saved(figure, directory, "replay")
