"""Draws the uplinks around a load jump or an uplink failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from topologies.compare.figures import capacities_bps
from topologies.compare.result import Result
from topologies.compare.run import Observed
from topologies.compare.samples import move_times_s
from topologies.loads.settling import Reading, rates
from topologies.reports.picture import COLOURS, MOVE_COLOUR

JUMP_COLOUR = "#444444"


def draw(
    result: Result, directory: Path, name: str = "shift", event: str = "load jump"
) -> list[Path]:
    """Draw `NAME.png` and `NAME.svg` with the first run of each contender, around `event`."""
    first = {name: runs[0] for name, runs in result.observed.items()}
    figure, rows = pyplot.subplots(
        len(first),
        1,
        figsize=(10, 0.9 + 1.7 * len(first)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    figure.suptitle(f"{result.scenario.layout.name}: uplinks around a {event}")
    capacities = capacities_bps(result.scenario.layout)
    for (axes,), (contender, observed) in zip(rows, first.items(), strict=True):
        _uplinks(axes, observed, capacities)
        found = observed.outcome.figures
        settled = (
            f"settled after {found['settle_s']:.2f} s"
            if "settle_s" in found
            else f"no loss after {found['lossless_s']:.2f} s, placed after {found['placed_s']:.2f} s"
        )
        axes.set_title(
            f"{contender}: {settled}, {found['loss_ratio']:.2%} lost", fontsize=10, loc="left"
        )
    rows[0][0].legend(loc="upper right", fontsize=8, framealpha=0.9, ncols=4)
    rows[-1][0].set_xlabel(f"seconds since the {event}; a line is a move", fontsize=9)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.png", directory / f"{name}.svg"]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths


def _uplinks(axes: Any, observed: Observed, capacities: dict[str, int]) -> None:
    details = observed.outcome.details
    jump_s = details["shift_s"]
    used = rates([Reading(at_s, sent) for at_s, sent in details["readings"]], capacities)
    for index, uplink in enumerate(capacities):
        axes.plot(
            [at_s - jump_s for at_s, _ in used],
            [ratios[uplink] * 100 for _, ratios in used],
            color=COLOURS[index % len(COLOURS)],
            linewidth=1.4,
            label=uplink,
        )
    axes.axvline(0, color=JUMP_COLOUR, linewidth=1.2, linestyle="--")
    for at_s in move_times_s(observed.samples):
        axes.axvline(at_s - jump_s, color=MOVE_COLOUR, linewidth=1)
    axes.axhline(100, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 110)
    axes.set_xlim(-jump_s, observed.load_s - jump_s)
    axes.set_ylabel("% of capacity", fontsize=9)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
