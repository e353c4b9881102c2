"""Observations while a contender is running, and the machine's counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the uplinks and the bindings.

    Attributes:
        at_s: since the start of the load.
        sent_bytes: by each uplink, away from the server; a counter.
        received_bytes: by each uplink; a counter.
        bindings: the uplink of each loaded vNIC, where the contender has such a thing.
        moves: moves since the contender started; a counter.
    """

    at_s: float
    sent_bytes: Mapping[str, int]
    received_bytes: Mapping[str, int]
    bindings: Mapping[str, str] = field(default_factory=dict)
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """What an interface has sent and received."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


def interface_counters() -> dict[str, Counters]:
    """The counters of every interface of this thread's network namespace.

    From the kernel and not from any service that is measured. /proc and not /sys: the
    latter shows the namespace in which it was mounted.
    """
    found = {}
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, _, fields = line.partition(":")
        numbers = [int(field) for field in fields.split()]
        found[name.strip()] = Counters(numbers[8], numbers[0], numbers[9], numbers[1])
    return found


@dataclass(frozen=True, slots=True)
class Utilization:
    """Mean utilization of each uplink between two samples: max(send, receive) / capacity."""

    start_s: float
    end_s: float
    ratio: Mapping[str, float]


def utilizations(samples: list[Sample], capacities_bps: Mapping[str, int]) -> list[Utilization]:
    """The uplinks' utilization in every interval between samples."""
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
    """Each uplink's mean over a span; an interval counts by its overlap with the span.

    Empty where the span meets no interval.
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
    """The time of each move, as first seen, since the start of the load."""
    times: list[float] = []
    for before, after in pairwise(samples):
        times += [after.at_s] * max(0, after.moves - before.moves)
    return times
