"""Samples of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the uplinks and the bindings at one time.

    Attributes:
        at_s: the time since the start of the load.
        sent_bytes: each uplink's counter, away from the server.
        received_bytes: each uplink's counter, towards the server.
        bindings: the uplink of each loaded vNIC, if the contender binds VM ports.
        moves: a counter of moves since the contender started.
    """

    at_s: float
    sent_bytes: Mapping[str, int]
    received_bytes: Mapping[str, int]
    bindings: Mapping[str, str] = field(default_factory=dict)
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Utilization:
    """Each uplink's mean utilization between two samples, in its busier direction."""

    start_s: float
    end_s: float
    ratio: Mapping[str, float]


def utilizations(samples: list[Sample], capacities_bps: Mapping[str, int]) -> list[Utilization]:
    """The uplinks' utilization between successive samples."""
    return [
        Utilization(
            before.at_s,
            after.at_s,
            {
                uplink: max(
                    after.sent_bytes[uplink] - before.sent_bytes[uplink],
                    after.received_bytes[uplink] - before.received_bytes[uplink],
                )
                * 8
                / (after.at_s - before.at_s)
                / capacity_bps
                for uplink, capacity_bps in capacities_bps.items()
            },
        )
        for before, after in pairwise(samples)
        if after.at_s > before.at_s
    ]


def mean_utilization(
    intervals: list[Utilization], start_s: float, end_s: float
) -> dict[str, float]:
    """Each uplink's mean over a span, with intervals weighted by their overlap with it.

    Empty if no interval overlaps the span.
    """
    weights = [max(0.0, min(i.end_s, end_s) - max(i.start_s, start_s)) for i in intervals]
    total = sum(weights)
    if not total:
        return {}
    return {
        uplink: sum(w * i.ratio[uplink] for w, i in zip(weights, intervals, strict=True)) / total
        for uplink in intervals[0].ratio
    }


def move_times_s(samples: list[Sample]) -> list[float]:
    """The time of the sample in which each move first appears."""
    times: list[float] = []
    for before, after in pairwise(samples):
        times += [after.at_s] * max(0, after.moves - before.moves)
    return times
