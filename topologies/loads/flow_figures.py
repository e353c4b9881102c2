"""Completion times of flows, by size class, and as a slowdown against an idle network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.loads.flow_arrivals import wire_bytes

PERCENTILES = (50, 95, 99)
# The bounds of the published classes, 100 kB and 10 MB, divided by ten as the sizes are.
SMALL_BYTES, LARGE_BYTES = 10_000, 1_000_000
SMALL, MIDDLE, LARGE = CLASSES = ("small", "middle", "large")
# The approximate duration of a one-byte flow on an idle network of this bench: connection and request.
BASE_LATENCY_S = 0.001


@dataclass(frozen=True, slots=True)
class Completion:
    """One flow that has ended.

    Attributes:
        size_bytes: the size that was requested.
        start_s: when the flow was due to start, in seconds since the start of the load.
        late_s: how much later than that it was started.
        duration_s: the time from its start to its last byte, or until it was aborted.
        complete: whether all bytes arrived.
    """

    size_bytes: int
    start_s: float
    late_s: float
    duration_s: float
    complete: bool = True


def size_class(size_bytes: int) -> str:
    """The class of a size. Both bounds are middle."""
    if size_bytes < SMALL_BYTES:
        return SMALL
    return LARGE if size_bytes > LARGE_BYTES else MIDDLE


def ideal_s(size_bytes: int, link_bps: float) -> float:
    """The duration of a flow that has a link to itself."""
    return BASE_LATENCY_S + wire_bytes(size_bytes) * 8 / link_bps


def slowdown(flow: Completion, link_bps: float) -> float:
    """The duration of a flow divided by its duration on an idle link."""
    return flow.duration_s / ideal_s(flow.size_bytes, link_bps)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The lowest value that this percentage of all values does not exceed (nearest rank).

    None if no value is above it, because it would then be the maximum, which is random.
    """
    rank = math.ceil(len(values) * percent / 100)
    if rank < 1 or rank >= len(values):
        return None
    return sorted(values)[rank - 1]


def figures(flows: Sequence[Completion], link_bps: float) -> dict[str, float]:
    """The percentiles of completion times and slowdowns, and the number of flows.

    A flow that did not complete counts with the time until it was aborted, which is less than its
    full duration. A percentile for which there are too few flows is absent.
    """
    found: dict[str, float] = {}
    by_class: dict[str, list[Completion]] = {name: [] for name in CLASSES}
    for flow in flows:
        by_class[size_class(flow.size_bytes)].append(flow)
    for name, ones in by_class.items():
        found[f"flows_{name}"] = float(len(ones))
        found |= _percentiles(f"fct_{name}", [one.duration_s * 1000 for one in ones], "_ms")
        found |= _percentiles(f"slowdown_{name}", [slowdown(one, link_bps) for one in ones])
    found |= _percentiles("slowdown", [slowdown(one, link_bps) for one in flows])
    if flows:
        found["unfinished_ratio"] = sum(not one.complete for one in flows) / len(flows)
    return found


def lateness_figures(flows: Sequence[Completion]) -> dict[str, float]:
    """How much later than planned flows were started, which is due to the machine, not to a contender."""
    late_ms = [one.late_s * 1000 for one in flows]
    found = _percentiles("late", late_ms, "_ms", (99,))
    return {**found, "late_worst_ms": max(late_ms)} if late_ms else found


def _percentiles(
    name: str, values: Sequence[float], suffix: str = "", percents: Sequence[int] = PERCENTILES
) -> dict[str, float]:
    found = {f"{name}_p{percent}{suffix}": percentile(values, percent) for percent in percents}
    return {key: value for key, value in found.items() if value is not None}
