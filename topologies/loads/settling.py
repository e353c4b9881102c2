"""Computes the settling time of the uplinks from frequent readings of their counters."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# The span of the median that gives a value. It filters short stalls of the machine and the bursts
# that follow them, which are no change of load.
SPAN_S = 0.2
# The last part of a run, which defines the final split.
END_S = 3.0
# An uplink is full above this share of its capacity.
FULL_RATIO = 0.97
# The tolerance for an uplink's share of the load. The smallest VM has 3 % of the load.
SAME_SHARE = 0.025


@dataclass(frozen=True, slots=True)
class Reading:
    """The uplinks' counters of sent bytes at a time."""

    at_s: float
    sent_bytes: Mapping[str, int]


# Each uplink's value at a time.
Values = list[tuple[float, dict[str, float]]]


def rates(readings: Sequence[Reading], capacities_bps: Mapping[str, int]) -> Values:
    """Each uplink's utilization over time."""

    def used(lasted_s: float, sent_bytes: Mapping[str, int]) -> dict[str, float]:
        return {up: sent_bytes[up] * 8 / lasted_s / bps for up, bps in capacities_bps.items()}

    return _medians(readings, used)


def shares(readings: Sequence[Reading], span_s: float = SPAN_S) -> Values:
    """Each uplink's share of the total load over time."""

    def split(_lasted_s: float, sent_bytes: Mapping[str, int]) -> dict[str, float]:
        total = sum(sent_bytes.values())
        return {up: sent / total for up, sent in sent_bytes.items()} if total else {}

    return _medians(readings, split, span_s)


def settle_s(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], from_s: float, to_s: float
) -> float:
    """The time from `from_s` until the uplinks have settled.

    From then on, each uplink's share of the load stays within `SAME_SHARE` of its share in the last
    `END_S`. If an uplink is full in the end (`FULL_RATIO` of its capacity), the uplinks have not
    settled, and the result is the whole span. The function does not see a change that lasts less
    than half of `SPAN_S`.
    """
    last_s = to_s - SPAN_S / 2
    splits = [(at_s, split) for at_s, split in shares(readings) if from_s <= at_s <= last_s]
    last_splits = [split for at_s, split in splits if at_s >= to_s - END_S]
    last_rates = [
        used for at_s, used in rates(readings, capacities_bps) if to_s - END_S <= at_s <= last_s
    ]
    full = any(
        statistics.median(used[uplink] for used in last_rates) >= FULL_RATIO
        for uplink in capacities_bps
        if last_rates
    )
    if full or not last_splits:
        return to_s - from_s
    final = {
        uplink: statistics.median(split[uplink] for split in last_splits)
        for uplink in last_splits[0]
    }
    different = [
        number
        for number, (_, split) in enumerate(splits)
        if any(abs(split[uplink] - share) > SAME_SHARE for uplink, share in final.items())
    ]
    if not different:
        return 0.0
    after = splits[different[-1] + 1 :]
    return after[0][0] - from_s if after else to_s - from_s


def _medians(
    readings: Sequence[Reading],
    evaluate: Callable[[float, Mapping[str, int]], dict[str, float]],
    span_s: float = SPAN_S,
) -> Values:
    """Evaluate the duration and the bytes between readings, and take running medians.

    Intervals for which `evaluate` returns nothing have no value.
    """
    steps: Values = []
    for before, after in pairwise(readings):
        if after.at_s > before.at_s:
            sent = {up: after.sent_bytes[up] - count for up, count in before.sent_bytes.items()}
            if found := evaluate(after.at_s - before.at_s, sent):
                steps.append(((before.at_s + after.at_s) / 2, found))
    times_s = [at_s for at_s, _ in steps]
    medians: Values = []
    for at_s, found in steps:
        first = bisect.bisect_left(times_s, at_s - span_s / 2)
        last = bisect.bisect_right(times_s, at_s + span_s / 2)
        around = [values for _, values in steps[first:last]]
        medians.append((at_s, {up: statistics.median(v[up] for v in around) for up in found}))
    return medians
