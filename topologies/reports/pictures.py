"""The pictures of benches: uplinks over time, around a jump or a failure, and slowdowns of flows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot

from topologies.compare.contenders import ORACLE, THRESHOLD_PERCENT
from topologies.compare.figures import Phase, Result, capacities_bps, intervals
from topologies.compare.run import Observed
from topologies.compare.samples import mean_utilization, move_times_s
from topologies.loads.flow_figures import slowdown
from topologies.loads.flow_load import measured_flows
from topologies.loads.settling import Reading, rates
from topologies.reports.known_figures import is_ours
from topologies.reports.plots import COLOURS, Points, lines, saved

PHASE_SHADES = ("#f3f5f8", "#e3e9f1")
MOVE_COLOUR, JUMP_COLOUR = "#b3261e", "#444444"
# Samples are too frequent for a clear line, so each point is a mean over this span.
POINT_S = 1.0
# The small drawings of a row. They have the axes and the colours of the large one.
MOST_COLUMNS = 4
# Below this share of all flows, single flows make the line.
LEAST_SHARE = 0.001
LARGE = "load-based"


def ramp(result: Result, phases: Sequence[Phase], title: str, directory: Path) -> list[Path]:
    """Draw `uplinks.png` and `uplinks.svg`, with `load-based` large and the others below it."""
    runs = {name: observed[0] for name, observed in result.observed.items()}
    rest = [name for name in runs if name != LARGE]
    columns = max(1, min(len(rest), MOST_COLUMNS))
    rows = -(-len(rest) // columns)
    figure = pyplot.figure(figsize=(10, 4.6 + 2.2 * rows), layout="constrained")
    figure.suptitle(title, fontsize=12)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[2.1, *[1] * rows])
    most_mbps = max(capacities_bps(result.scenario.layout).values()) / 1e6
    if LARGE in runs:
        axes = figure.add_subplot(grid[0, :])
        lines(axes, _over_time(result, runs[LARGE], most_mbps), LARGE, 1.05 * most_mbps)
        for index, phase in enumerate(phases):
            axes.axvspan(phase.start_s, phase.end_s, color=PHASE_SHADES[index % 2], zorder=0)
            middle_s = (phase.start_s + phase.end_s) / 2
            axes.text(middle_s, most_mbps, phase.name, fontsize=9, ha="center", va="center")
        for number, at_s in enumerate(move_times_s(runs[LARGE].samples), start=1):
            axes.axvline(at_s, color=MOVE_COLOUR, linewidth=1.4)
            text = f" move {number}\n {at_s:.1f} s"
            axes.text(at_s, 0.86 * most_mbps, text, color=MOVE_COLOUR, fontsize=9, va="center")
        limit_mbps = THRESHOLD_PERCENT / 100 * most_mbps
        axes.axhline(limit_mbps, color="#666666", linestyle="--", linewidth=1)
        axes.text(0, limit_mbps, f" threshold {THRESHOLD_PERCENT} %", fontsize=9, va="bottom")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.7), fontsize=9, framealpha=0.9)
        axes.set_xlabel("seconds since the start of the load", fontsize=9)
        axes.set_ylabel("Mbit/s, busier direction", fontsize=9)
    for place, name in enumerate(rest):
        axes = figure.add_subplot(grid[1 + place // columns, place % columns])
        lines(axes, _over_time(result, runs[name], most_mbps), name, 1.05 * most_mbps)
        if LARGE not in runs:
            axes.legend(loc="upper left", fontsize=8, framealpha=0.9)
    return saved(figure, directory, "uplinks")


def _over_time(result: Result, observed: Observed, most_mbps: float) -> dict[str, Points]:
    """What each uplink carried, in Mbit/s."""
    spans = intervals(result.scenario.layout, observed)
    marks_s = [number * POINT_S for number in range(int(spans[-1].end_s / POINT_S) + 1)]
    means = [(at_s, mean_utilization(spans, at_s, at_s + POINT_S)) for at_s in marks_s]
    return {
        uplink: [(at_s + POINT_S / 2, mean[uplink] * most_mbps) for at_s, mean in means if mean]
        for uplink in spans[0].ratio
    }


def around(result: Result, directory: Path, name: str, event: str) -> list[Path]:
    """Draw `NAME.png` and `NAME.svg` with the first run of each contender, around an event."""
    capacities = capacities_bps(result.scenario.layout)
    figure, rows = pyplot.subplots(
        len(result.observed),
        1,
        figsize=(10, 0.9 + 1.7 * len(result.observed)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    figure.suptitle(f"{result.scenario.layout.name}: uplinks around a {event}")
    for (axes,), (contender, (observed, *_)) in zip(rows, result.observed.items(), strict=True):
        found, details = observed.outcome.figures, observed.outcome.details
        settled = (
            f"settled after {found['settle_s']:.2f} s"
            if "settle_s" in found
            else f"no loss after {found['lossless_s']:.2f} s, placed after {found['placed_s']:.2f} s"
        )
        jump_s = details["shift_s"]
        used = rates([Reading(at_s, sent) for at_s, sent in details["readings"]], capacities)
        points: Mapping[str, Points] = {
            uplink: [(at_s - jump_s, ratios[uplink] * 100) for at_s, ratios in used]
            for uplink in capacities
        }
        lines(axes, points, f"{contender}: {settled}, {found['loss_ratio']:.2%} lost", 110)
        axes.axvline(0, color=JUMP_COLOUR, linewidth=1.2, linestyle="--")
        for at_s in move_times_s(observed.samples):
            axes.axvline(at_s - jump_s, color=MOVE_COLOUR, linewidth=1)
        axes.axhline(100, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_xlim(-jump_s, observed.load_s - jump_s)
        axes.set_ylabel("% of capacity", fontsize=9)
    rows[0][0].legend(loc="upper right", fontsize=8, framealpha=0.9, ncols=4)
    rows[-1][0].set_xlabel(f"seconds since the {event}; a line is a move", fontsize=9)
    return saved(figure, directory, name)


def slowdowns(result: Result, directory: Path) -> list[Path]:
    """Draw `SCENARIO.png` and `SCENARIO.svg`, with a line for the flows of all runs of a contender."""
    scenario = result.scenario
    link_bps = max(capacities_bps(scenario.layout).values())
    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    for place, (contender, runs) in enumerate(result.observed.items()):
        found = sorted(
            slowdown(flow, link_bps) for run in runs for flow in measured_flows(run.outcome.details)
        )
        slower = [1 - number / len(found) for number in range(len(found))]
        style = "--" if contender == ORACLE else "-" if is_ours(contender) else "-."
        colour = JUMP_COLOUR if contender == ORACLE else COLOURS[place % len(COLOURS)]
        axes.plot(found, slower, style, color=colour, linewidth=1.5, label=contender)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(LEAST_SHARE, 1)
    for share in (0.5, 0.05, 0.01):
        axes.axhline(share, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_yticks([1, 0.5, 0.05, 0.01, LEAST_SHARE], ["all", "50 %", "5 %", "1 %", "0.1 %"])
    axes.minorticks_off()
    axes.set_xlabel("slowdown: the time over that on an idle uplink", fontsize=9)
    axes.set_ylabel("flows that were slower", fontsize=9)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=8, framealpha=0.9)
    figure.suptitle(f"{scenario.layout.name}: {scenario.name}", fontsize=12)
    return saved(figure, directory, re.sub(r"[^a-z0-9]+", "-", scenario.name.lower()).strip("-"))
