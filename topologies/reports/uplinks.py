"""Draws the charts of a scenario: the uplinks over time with each contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies.compare.contenders import ORACLE
from topologies.compare.samples import Sample, move_times_s, utilizations
from topologies.reports import chart as page_chart
from topologies.reports.comparison import by_kind
from topologies.reports.known_figures import figure, is_ours
from topologies.reports.markup import Markup, tag


def over_time(
    capacities_bps: Mapping[str, int], runs: Sequence[Mapping[str, Any]]
) -> Markup | None:
    """Charts of each contender's first run, all with the same axes. None without runs."""
    first: dict[str, Mapping[str, Any]] = {}
    for run in sorted(runs, key=lambda one: one.get("repetition", 0)):
        first.setdefault(run["contender"], run)
    if not first or not capacities_bps:
        return None
    samples = {name: [Sample(**one) for one in run["samples"]] for name, run in first.items()}
    points = {
        name: page_chart.points(utilizations(found, capacities_bps))
        for name, found in samples.items()
    }
    top_ratio = page_chart.highest(list(points.values()))
    end_s = max(float(run["load_s"]) for run in first.values())
    charts = []
    oracle = [name for name in first if name == ORACLE]
    for name in (*oracle, *by_kind(first, ours=False), *by_kind(first, ours=True)):
        moves_s = move_times_s(samples[name])
        measured_s = first[name].get("measured_s")
        svg = page_chart.chart(
            points[name],
            moves_s=moves_s,
            measured_s=(measured_s[0], measured_s[1]) if measured_s else None,
            end_s=end_s,
            top_ratio=top_ratio,
            label=f"{name}: utilization of the uplinks over time",
        )
        side = "ours" if is_ours(name) else "oracle" if name == ORACLE else "peers"
        moved = f"{len(moves_s)} {'move' if len(moves_s) == 1 else 'moves'}"
        caption = tag("figcaption", tag("span", name, class_=f"of-{side}"), tag("small", moved))
        charts.append(tag("figure", caption, svg))
    return tag(
        "div",
        tag("h3", "Uplinks over time"),
        _key(capacities_bps),
        tag("div", *charts, class_="charts"),
    )


def _key(capacities_bps: Mapping[str, int]) -> Markup:
    classes = page_chart.line_classes(list(capacities_bps))
    speed = figure("speed_bps")
    items = (
        tag("li", page_chart.swatch(classes[uplink]), f"{uplink}, {speed.with_unit(capacity_bps)}")
        for uplink, capacity_bps in capacities_bps.items()
    )
    return tag("ul", *items, class_="key")
