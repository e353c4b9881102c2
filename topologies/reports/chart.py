"""Draws the uplinks of a run over time, as SVG with colours from the style of the page."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence

from topologies.compare.samples import Utilization, mean_utilization
from topologies.reports.markup import Markup, tag

WIDTH, HEIGHT = 340, 172
LEFT, RIGHT, TOP, BOTTOM = 34, 332, 10, 148
# Samples are too frequent for a clear line, so each point is a mean over this span.
POINT_S = 1.0
MOST_TIME_MARKS = 7
# With more moves, they are only marked on the time axis.
MOST_LINES = 8
COLOURS, DASHES = 8, 3
TICK = 7

Points = Mapping[str, Sequence[tuple[float, float]]]


def points(intervals: list[Utilization]) -> dict[str, list[tuple[float, float]]]:
    """Each uplink's mean utilization per second, as pairs of the second's middle and the ratio."""
    if not intervals:
        return {}
    found: dict[str, list[tuple[float, float]]] = {uplink: [] for uplink in intervals[0].ratio}
    ends_s = [one.end_s for one in intervals]
    start_s, last_s = 0.0, ends_s[-1]
    while start_s < last_s - POINT_S / 4:  # a shorter remainder is not drawn
        end_s = min(start_s + POINT_S, last_s)
        first = bisect.bisect_right(ends_s, start_s)
        within = intervals[first : bisect.bisect_left(ends_s, end_s) + 1]
        for uplink, ratio in mean_utilization(within, start_s, end_s).items():
            found[uplink].append(((start_s + end_s) / 2, ratio))
        start_s += POINT_S
    return found


def highest(all_points: Sequence[Points]) -> float:
    """The top of the axis that several charts share; at least the capacity."""
    ratios = (ratio for one in all_points for line in one.values() for _, ratio in line)
    return max(1.06, max(ratios, default=0.0) * 1.03)


def line_classes(uplinks: Sequence[str]) -> dict[str, str]:
    """Each uplink's style: the colour by its index at its server, the dash by the server."""
    servers = list(dict.fromkeys(uplink.rpartition("-")[0] for uplink in uplinks))
    places: Counter[str] = Counter()
    classes = {}
    for uplink in uplinks:
        server = uplink.rpartition("-")[0]
        colour, dash = places[server] % COLOURS + 1, servers.index(server) % DASHES + 1
        classes[uplink] = f"line u{colour} d{dash}"
        places[server] += 1
    return classes


def chart(
    drawn: Points,
    *,
    moves_s: Sequence[float],
    measured_s: tuple[float, float] | None,
    end_s: float,
    top_ratio: float,
    label: str,
) -> Markup:
    """The uplinks of a run, on axes that end at `top_ratio` of the capacity and at `end_s`."""
    end_s = max(end_s, POINT_S)

    def x(at_s: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, at_s / end_s)), 1)

    def y(ratio: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * min(1.0, max(0.0, ratio / top_ratio)), 1)

    parts: list[Markup] = []
    if measured_s is not None:
        from_x, to_x = (x(at_s) for at_s in measured_s)
        width = round(to_x - from_x, 1)
        area = {"x": from_x, "y": TOP, "width": width, "height": BOTTOM - TOP}
        parts.append(tag("rect", class_="measured", **area))
    for ratio in (0.0, 0.5, 1.0):
        style = "capacity" if ratio == 1 else "grid"
        parts.append(_line(style, LEFT, y(ratio), RIGHT, y(ratio)))
        parts.append(_text(f"{ratio:.0%}", LEFT - 5, y(ratio) + 3, "end"))
    for mark_s in _marks(end_s):
        parts.append(_line("grid", x(mark_s), BOTTOM, x(mark_s), BOTTOM + 3))
        parts.append(_text(f"{mark_s:g}", x(mark_s), BOTTOM + 15, "middle"))
    classes = line_classes(list(drawn))
    for uplink, line in drawn.items():
        path = " ".join(f"{x(at_s)},{y(ratio)}" for at_s, ratio in line)
        parts.append(tag("polyline", tag("title", uplink), class_=classes[uplink], points=path))
    foot = TOP if len(moves_s) <= MOST_LINES else BOTTOM - TICK
    for at_s, moves in sorted(Counter(moves_s).items()):
        title = tag("title", f"{moves} {'move' if moves == 1 else 'moves'} at {at_s:.1f} s")
        if foot == TOP:
            parts.append(_line("moved", x(at_s), TOP, x(at_s), BOTTOM))
        parts.append(_line("move", x(at_s), BOTTOM - TICK, x(at_s), BOTTOM, title))
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *parts, viewBox=box, role="img", aria_label=label)


def swatch(line_class: str) -> Markup:
    """A sample of a line of the charts, for their key."""
    return tag("svg", _line(line_class, 1, 5, 25, 5), viewBox="0 0 26 10", class_="swatch")


def _line(
    style: str, x1: float, y1: float, x2: float, y2: float, title: Markup | None = None
) -> Markup:
    return tag("line", title, class_=style, x1=x1, y1=y1, x2=x2, y2=y2)


def _text(words: str, x: float, y: float, anchor: str) -> Markup:
    return tag("text", words, x=x, y=y, text_anchor=anchor)


def _marks(end_s: float) -> list[float]:
    """Round times from 0 to `end_s` for the time axis."""
    step_s = next(
        step * 10**power
        for power in range(6)
        for step in (1, 2, 5)
        if end_s / (step * 10**power) <= MOST_TIME_MARKS
    )
    return [float(number * step_s) for number in range(int(end_s / step_s) + 1)]
