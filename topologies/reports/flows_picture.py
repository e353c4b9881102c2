"""Draws how many flows were slower than what: the slowdowns of all flows of a scenario."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from topologies.compare.contenders import ORACLE
from topologies.compare.figures import capacities_bps
from topologies.compare.result import Result
from topologies.loads.flow_figures import slowdown
from topologies.loads.flow_load import measured_flows
from topologies.reports.known_figures import is_ours

OUR_COLOURS = ("#1f5fa8", "#5b8fd0", "#0e7490", "#8a4fb0", "#3b3f8f")
PEER_COLOURS = ("#d9730d", "#b3261e", "#8a6d3b", "#c2a100")
ORACLE_COLOUR = "#444444"
# Below this share of all flows, single flows make the line.
LEAST_SHARE = 0.001


def draw(result: Result, directory: Path) -> list[Path]:
    """Draw `SCENARIO.png` and `SCENARIO.svg`, with a line for the flows of all runs of a contender."""
    scenario = result.scenario
    link_bps = max(capacities_bps(scenario.layout).values())
    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    ours, peers = iter(OUR_COLOURS * 9), iter(PEER_COLOURS * 9)
    for contender, runs in result.observed.items():
        slowdowns = sorted(
            slowdown(flow, link_bps) for run in runs for flow in measured_flows(run.outcome.details)
        )
        count = len(slowdowns)
        if contender == ORACLE:
            colour, style = ORACLE_COLOUR, "--"
        else:
            colour, style = next(ours if is_ours(contender) else peers), "-"
        slower = [1 - number / count for number in range(count)]
        axes.plot(slowdowns, slower, style, color=colour, linewidth=1.5, label=contender)
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
    directory.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", scenario.name.lower()).strip("-")
    paths = [directory / f"{name}.png", directory / f"{name}.svg"]
    for path in paths:
        figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return paths
