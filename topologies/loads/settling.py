"""When the uplinks have settled after a change, from frequent readings of their counters."""

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
# An uplink is well placed up to this multiple of its load in the best placement that is left.
NEAR_RATIO = 1.1
# The span of the median for a placement.
PLACED_SPAN_S = 0.5


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
    splits = _within(shares(readings), from_s, last_s)
    last_splits = _within(splits, to_s - END_S, last_s)
    last_rates = _within(rates(readings, capacities_bps), to_s - END_S, last_s)
    if not last_splits or max(_middle(last_rates).values(), default=0.0) >= FULL_RATIO:
        return to_s - from_s
    final = _middle(last_splits)
    return _last_s(
        splits,
        lambda split: any(abs(split[up] - share) > SAME_SHARE for up, share in final.items()),
        *(from_s, to_s),
    )


def placed_s(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    offered_bps: float,
    from_s: float,
    to_s: float,
) -> float:
    """The time from `from_s` until the load is spread over the uplinks by their capacities.

    An uplink may carry `NEAR_RATIO` times its load in the best placement. The result is the whole
    span if an uplink exceeds that in the end. The function compares shares and not rates, because
    a machine that stops for a moment stops all uplinks. It does not see a change that lasts less
    than half of `PLACED_SPAN_S`.
    """
    max_ratio = NEAR_RATIO * offered_bps / sum(capacities_bps.values())
    return _last_s(
        _within(shares(readings, PLACED_SPAN_S), from_s, to_s - PLACED_SPAN_S / 2),
        lambda split: any(
            split[up] * offered_bps / bps > max_ratio for up, bps in capacities_bps.items()
        ),
        *(from_s, to_s),
    )


def _within(values: Values, from_s: float, to_s: float) -> Values:
    return [(at_s, found) for at_s, found in values if from_s <= at_s <= to_s]


def _middle(values: Values) -> dict[str, float]:
    """Each uplink's median."""
    first = values[0][1] if values else {}
    return {up: statistics.median(found[up] for _, found in values) for up in first}


def _last_s(
    values: Values, is_off: Callable[[Mapping[str, float]], bool], from_s: float, to_s: float
) -> float:
    """The time from `from_s` to the first value after the last one that is off."""
    off = [number for number, (_, found) in enumerate(values) if is_off(found)]
    if not off:
        return 0.0
    after = values[off[-1] + 1 :]
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
    for at_s, _ in steps:
        first = bisect.bisect_left(times_s, at_s - span_s / 2)
        last = bisect.bisect_right(times_s, at_s + span_s / 2)
        medians.append((at_s, _middle(steps[first:last])))
    return medians
