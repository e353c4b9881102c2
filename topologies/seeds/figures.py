"""How full uplinks were, from counters that were read often."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from itertools import pairwise

from topologies.loads.settling import Reading

# An uplink's use is the mean over any span of this length.
SPAN_S = 0.5
# What is kept to look at is the mean over this.
SERIES_S = 0.1
# Readings are a hundredth of a second apart, and not exactly.
READ_WITHIN_S = 0.002
FULL_RATIO = 0.9
TOGETHER_S = 0.1
# Readings are a hundredth of a second apart; this is no accident any more.
STALL_S = 0.04


def highest_ratio(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    from_s: float,
    to_s: float,
    span_s: float = SPAN_S,
) -> float:
    """The most that any uplink was used over any span that lies within these times."""
    used = [worst for _, worst in _worst(readings, capacities_bps, from_s, to_s, span_s)]
    return max(used, default=0.0)


def relieved_s(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    from_s: float,
    to_s: float,
    span_s: float = SPAN_S,
) -> float:
    """How long after `from_s` the last span ends in which an uplink was above `FULL_RATIO`."""
    ends = [
        at_s
        for at_s, worst in _worst(readings, capacities_bps, from_s, to_s, span_s)
        if worst > FULL_RATIO
    ]
    return max(ends, default=from_s) - from_s


def series(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], zero_s: float
) -> list[list[float]]:
    """Every `SERIES_S` or a little more: the end of a span after `zero_s`, and each uplink's use."""
    found = []
    before = None
    for reading in readings:
        if before is None:
            before = reading
        elif reading.at_s - before.at_s >= SERIES_S - READ_WITHIN_S:
            used = _used(before, reading, capacities_bps).values()
            found.append([round(reading.at_s - zero_s, 3), *(round(ratio, 4) for ratio in used)])
            before = reading
    return found


def gaps(arrivals: Sequence[tuple[int, float]], sent: int) -> list[tuple[float, int]]:
    """Where datagrams are missing: when the next one after them arrived, and how many.

    What is lost within `TOGETHER_S` is one gap. At the end there is no next one: the last.
    """
    times_s: dict[int, float] = {}
    for number, at_s in arrivals:
        times_s.setdefault(number, at_s)
    found: list[tuple[float, int]] = []
    missing, last_s = 0, 0.0
    for number in range(sent + 1):
        if number < sent and number not in times_s:
            missing += 1
            continue
        last_s = times_s.get(number, last_s)
        if missing and found and last_s - found[-1][0] <= TOGETHER_S:
            found[-1] = (found[-1][0], found[-1][1] + missing)
        elif missing:
            found.append((last_s, missing))
        missing = 0
    return found


def stalls(readings: Sequence[Reading], zero_s: float) -> list[list[float]]:
    """When the machine let the reader of the counters wait, and how long."""
    return [
        [round(after.at_s - zero_s, 3), round(after.at_s - before.at_s, 3)]
        for before, after in pairwise(readings)
        if after.at_s - before.at_s > STALL_S
    ]


def _worst(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    from_s: float,
    to_s: float,
    span_s: float,
) -> list[tuple[float, float]]:
    """The end of each span, and the use of the uplink that was used most."""
    within = [one for one in readings if from_s <= one.at_s <= to_s]
    times_s = [one.at_s for one in within]
    found = []
    for first in within:
        # The next reading is later than wished by as much as readings are apart.
        last = bisect.bisect_left(times_s, first.at_s + span_s)
        if last < len(within):
            used = _used(first, within[last], capacities_bps)
            found.append((within[last].at_s, max(used.values())))
    return found


def _used(before: Reading, after: Reading, capacities_bps: Mapping[str, int]) -> dict[str, float]:
    lasted_s = after.at_s - before.at_s
    return {
        up: (after.sent_bytes[up] - before.sent_bytes[up]) * 8 / lasted_s / bps
        for up, bps in capacities_bps.items()
    }
