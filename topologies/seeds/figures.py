"""Utilization of uplinks, and losses, from counters that are read every 10 ms."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from itertools import pairwise

from topologies.loads.settling import Reading

# Utilization is a mean over spans of this length.
SPAN_S = 0.5
# The interval of the time series in the details of a record.
SERIES_S = 0.1
# The jitter of the interval of 10 ms between readings.
READ_JITTER_S = 0.002
FULL_RATIO = 0.9
# Losses that are no further apart than this count as one gap.
GAP_S = 0.1
# A longer pause between readings means that the machine was busy.
STALL_S = 0.04


def highest_ratio(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    from_s: float,
    to_s: float,
    span_s: float = SPAN_S,
) -> float:
    """The highest utilization of any uplink over any span between these times."""
    used = [peak for _, peak in _span_peaks(readings, capacities_bps, from_s, to_s, span_s)]
    return max(used, default=0.0)


def relieved_s(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    from_s: float,
    to_s: float,
    span_s: float = SPAN_S,
) -> float:
    """The time from `from_s` to the end of the last span with an uplink above `FULL_RATIO`."""
    ends = [
        at_s
        for at_s, peak in _span_peaks(readings, capacities_bps, from_s, to_s, span_s)
        if peak > FULL_RATIO
    ]
    return max(ends, default=from_s) - from_s


def series(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], zero_s: float
) -> list[list[float]]:
    """Each uplink's utilization about every `SERIES_S`, after the end of the span since `zero_s`."""
    found = []
    before = None
    for reading in readings:
        if before is None:
            before = reading
        elif reading.at_s - before.at_s >= SERIES_S - READ_JITTER_S:
            used = _utilization(before, reading, capacities_bps).values()
            found.append([round(reading.at_s - zero_s, 3), *(round(ratio, 4) for ratio in used)])
            before = reading
    return found


def gaps(arrivals: Sequence[tuple[int, float]], sent: int) -> list[tuple[float, int]]:
    """The gaps in a stream of datagrams: the arrival of the next datagram, and the number lost.

    Losses within `GAP_S` are one gap. A gap at the end has the arrival of the last datagram.
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
        if missing and found and last_s - found[-1][0] <= GAP_S:
            found[-1] = (found[-1][0], found[-1][1] + missing)
        elif missing:
            found.append((last_s, missing))
        missing = 0
    return found


def stalls(readings: Sequence[Reading], zero_s: float) -> list[list[float]]:
    """Pauses in the readings, because the machine was busy: when each ended, and its length."""
    return [
        [round(after.at_s - zero_s, 3), round(after.at_s - before.at_s, 3)]
        for before, after in pairwise(readings)
        if after.at_s - before.at_s > STALL_S
    ]


def _span_peaks(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    from_s: float,
    to_s: float,
    span_s: float,
) -> list[tuple[float, float]]:
    """The end of each span, and the utilization of its most utilized uplink."""
    within = [one for one in readings if from_s <= one.at_s <= to_s]
    times_s = [one.at_s for one in within]
    found = []
    for first in within:
        # Spans can be longer than `span_s` by the interval between readings.
        last = bisect.bisect_left(times_s, first.at_s + span_s)
        if last < len(within):
            used = _utilization(first, within[last], capacities_bps)
            found.append((within[last].at_s, max(used.values())))
    return found


def _utilization(
    before: Reading, after: Reading, capacities_bps: Mapping[str, int]
) -> dict[str, float]:
    lasted_s = after.at_s - before.at_s
    return {
        up: (after.sent_bytes[up] - before.sent_bytes[up]) * 8 / lasted_s / bps
        for up, bps in capacities_bps.items()
    }
