"""The pictures of benches: uplinks over time with what happened, and slowdowns of flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot

from topologies.compare.contenders import ORACLE, is_ours
from topologies.compare.figures import (
    Phase,
    Result,
    intervals,
    mean_utilization,
    move_times_s,
)
from topologies.compare.run import Observed
from topologies.loads.flow_load import Completion, slowdown
from topologies.loads.settling import Reading, rates
from topologies.reports.plots import COLOURS, saved

PHASE_SHADES = ("#f3f5f8", "#e3e9f1")
MOVE_COLOUR, EVENT_COLOUR = "#b3261e", "#444444"
# Samples are too frequent for a clear line, so each point is a mean over this span.
POINT_S = 1.0
# The points of a line.
Points = Sequence[tuple[float, float]]
# Below this share of all flows, single flows make the line.
LEAST_SHARE = 0.001


def over_time(
    result: Result, directory: Path, name: str, event: str, phases: Sequence[Phase] = ()
) -> list[Path]:
    """Draw `NAME.png` and `NAME.svg` with the first run of each contender.

    Times are since the `event`, which is the start of the load or has a time in the details of a run.
    """
    contenders = result.observed
    figure, rows = pyplot.subplots(
        len(contenders),
        1,
        figsize=(10, 0.9 + 1.7 * len(contenders)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    figure.suptitle(f"{result.scenario.layout.name}: uplinks, {result.scenario.name}")
    for (axes,), (contender, (observed, *_)) in zip(rows, contenders.items(), strict=True):
        details = observed.outcome.details
        zero_s = details["shift_s"] if isinstance(details, dict) and "shift_s" in details else 0.0
        for number, (uplink, points) in enumerate(_used(result, observed).items()):
            times_s = [at_s - zero_s for at_s, _ in points]
            percents = [100 * ratio for _, ratio in points]
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(times_s, percents, color=colour, linewidth=1.5, label=uplink)
        axes.set_title(": ".join([contender, *_outcome(observed)]), fontsize=10, loc="left")
        axes.set_ylim(0, 110)
        axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
        for index, phase in enumerate(phases if contender == "load-based" else ()):
            axes.axvspan(phase.start_s, phase.end_s, color=PHASE_SHADES[index % 2], zorder=0)
            axes.text((phase.start_s + phase.end_s) / 2, 95, phase.name, fontsize=9, ha="center")
        axes.axvline(0, color=EVENT_COLOUR, linewidth=1.2, linestyle="--")
        for at_s in move_times_s(observed.samples):
            axes.axvline(at_s - zero_s, color=MOVE_COLOUR, linewidth=1)
        axes.axhline(100, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_xlim(-zero_s, observed.load_s - zero_s)
        axes.set_ylabel("% of capacity", fontsize=9)
    rows[0][0].legend(loc="upper right", fontsize=8, framealpha=0.9, ncols=4)
    rows[-1][0].set_xlabel(f"seconds since the {event}; a line is a move", fontsize=9)
    return saved(figure, directory, name)


def _used(result: Result, observed: Observed) -> dict[str, Points]:
    """Each uplink's utilization over time, from the load's own readings if it has some."""
    layout, details = result.scenario.layout, observed.outcome.details
    if isinstance(details, dict) and "readings" in details:
        readings = [Reading(at_s, sent) for at_s, sent in details["readings"]]
        means = rates(readings, layout.capacities_bps)
    else:
        spans = intervals(layout, observed)
        marks_s = [number * POINT_S for number in range(int(spans[-1].end_s / POINT_S) + 1)]
        means = [(at_s, mean_utilization(spans, at_s, at_s + POINT_S)) for at_s in marks_s]
    return {
        uplink: [(at_s, ratios[uplink]) for at_s, ratios in means if ratios]
        for uplink in layout.capacities_bps
    }


def _outcome(observed: Observed) -> list[str]:
    """What happened in a run, in words, if its load has such figures."""
    found = observed.outcome.figures
    texts = {
        "settle_s": "settled after {:.2f} s",
        "lossless_s": "no loss after {:.2f} s",
        "placed_s": "placed after {:.2f} s",
        "loss_ratio": "{:.2%} lost",
        "qos_ratio": "{:.2%} at the required rate",
    }
    said = [text.format(found[name]) for name, text in texts.items() if name in found]
    return [", ".join(said)] if said else []


def slowdowns(result: Result, directory: Path) -> list[Path]:
    """Draw `SCENARIO.png` and `SCENARIO.svg`, with a line for the flows of all runs of a contender."""
    scenario = result.scenario
    link_bps = max(scenario.layout.capacities_bps.values())
    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    for place, (contender, runs) in enumerate(result.observed.items()):
        found = sorted(
            slowdown(Completion(*flow), link_bps) for run in runs for flow in run.outcome.details
        )
        slower = [1 - number / len(found) for number in range(len(found))]
        style = "--" if contender == ORACLE else "-" if is_ours(contender) else "-."
        colour = EVENT_COLOUR if contender == ORACLE else COLOURS[place % len(COLOURS)]
        axes.plot(found, slower, style, color=colour, linewidth=1.5, label=contender)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(LEAST_SHARE, 1)
    axes.set_yticks([1, 0.5, 0.05, 0.01, LEAST_SHARE], ["all", "50 %", "5 %", "1 %", "0.1 %"])
    axes.minorticks_off()
    axes.set_xlabel("slowdown: the time over that on an idle uplink", fontsize=9)
    axes.set_ylabel("flows that were slower", fontsize=9)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=8, framealpha=0.9)
    figure.suptitle(f"{scenario.layout.name}: {scenario.name}", fontsize=12)
    return saved(figure, directory, re.sub(r"[^a-z0-9]+", "-", scenario.name.lower()).strip("-"))
