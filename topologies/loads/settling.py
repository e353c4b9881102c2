"""From counters that were read often to the moment from which on nothing changes any more."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# A value is the median over this span: a moment in which the machine did something else, and
# the burst after it, are no change of load.
SPAN_S = 0.2
# What is carried in the end is measured over this.
END_S = 3.0
# Of its capacity: an uplink that carries so much is full.
FULL_RATIO = 0.97
# Of all that is carried: nearer than this is the same. A VM of the least load is 3 %.
SAME_SHARE = 0.025


@dataclass(frozen=True, slots=True)
class Reading:
    """The uplinks' counters at a time: bytes sent since whenever they began to count."""

    at_s: float
    sent_bytes: Mapping[str, int]


# Each uplink's value at a time.
Values = list[tuple[float, dict[str, float]]]


def rates(readings: Sequence[Reading], capacities_bps: Mapping[str, int]) -> Values:
    """Each uplink's use as a share of its capacity."""

    def used(lasted_s: float, sent_bytes: Mapping[str, int]) -> dict[str, float]:
        return {up: sent_bytes[up] * 8 / lasted_s / bps for up, bps in capacities_bps.items()}

    return _medians(readings, used)


def shares(readings: Sequence[Reading], span_s: float = SPAN_S) -> Values:
    """Each uplink's share of all that the uplinks carry."""

    def split(_lasted_s: float, sent_bytes: Mapping[str, int]) -> dict[str, float]:
        total = sum(sent_bytes.values())
        return {up: sent / total for up, sent in sent_bytes.items()} if total else {}

    return _medians(readings, split, span_s)


def settle_s(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], from_s: float, to_s: float
) -> float:
    """How long after `from_s` the uplinks have settled.

    That is the first moment from which on, up to `to_s`, the load is split among the uplinks
    as it is in the last `END_S`, each uplink's share within `SAME_SHARE`. An uplink that sends
    at its capacity cannot have the share that it has later. Where one is full in the end
    (`FULL_RATIO` of its capacity), nothing is settled: that takes all of the time that was
    watched. What lasts less than half of `SPAN_S` is not seen.
    """
    last_s = to_s - SPAN_S / 2
    within = [(at_s, split) for at_s, split in shares(readings) if from_s <= at_s <= last_s]
    ending = [split for at_s, split in within if at_s >= to_s - END_S]
    in_the_end = [
        used for at_s, used in rates(readings, capacities_bps) if to_s - END_S <= at_s <= last_s
    ]
    full = any(
        statistics.median(used[uplink] for used in in_the_end) >= FULL_RATIO
        for uplink in capacities_bps
        if in_the_end
    )
    if full or not ending:
        return to_s - from_s
    end = {uplink: statistics.median(split[uplink] for split in ending) for uplink in ending[0]}
    different = [
        number
        for number, (_, split) in enumerate(within)
        if any(abs(split[uplink] - share) > SAME_SHARE for uplink, share in end.items())
    ]
    if not different:
        return 0.0
    after = within[different[-1] + 1 :]
    return after[0][0] - from_s if after else to_s - from_s


def _medians(
    readings: Sequence[Reading],
    of: Callable[[float, Mapping[str, int]], dict[str, float]],
    span_s: float = SPAN_S,
) -> Values:
    """From what was sent between readings, the median around each time; none without load."""
    steps: Values = []
    for before, after in pairwise(readings):
        if after.at_s > before.at_s:
            sent = {up: after.sent_bytes[up] - count for up, count in before.sent_bytes.items()}
            if found := of(after.at_s - before.at_s, sent):
                steps.append(((before.at_s + after.at_s) / 2, found))
    times_s = [at_s for at_s, _ in steps]
    medians: Values = []
    for at_s, found in steps:
        first = bisect.bisect_left(times_s, at_s - span_s / 2)
        last = bisect.bisect_right(times_s, at_s + span_s / 2)
        around = [values for _, values in steps[first:last]]
        medians.append((at_s, {up: statistics.median(v[up] for v in around) for up in found}))
    return medians
