"""From counters that were read often to the moment from which on nothing changes any more."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# A rate is the median of what the counters show over this span: a moment in which the machine
# did something else, and the burst after it, are no change of load.
SPAN_S = 0.2
# What is carried in the end is measured over this.
END_S = 3.0
# Of its capacity, with what comes in bursts: from here on an uplink is full.
FULL_RATIO = 0.97
# Of its capacity: nearer than this is the same. Programs that share a machine are uneven by some
# percent, and the least load of a VM is less than this: its move alone is not seen.
SAME_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """The uplinks' counters at a time: bytes sent since whenever they began to count."""

    at_s: float
    sent_bytes: Mapping[str, int]


def rates(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int]
) -> list[tuple[float, dict[str, float]]]:
    """Each uplink's use as a share of its capacity at a time, by the span around that time."""
    steps = [(a, b) for a, b in pairwise(readings) if b.at_s > a.at_s]
    at_s = [(a.at_s + b.at_s) / 2 for a, b in steps]
    used = {
        uplink: [
            (b.sent_bytes[uplink] - a.sent_bytes[uplink]) * 8 / (b.at_s - a.at_s) / capacity_bps
            for a, b in steps
        ]
        for uplink, capacity_bps in capacities_bps.items()
    }
    found = []
    for middle_s in at_s:
        first = bisect.bisect_left(at_s, middle_s - SPAN_S / 2)
        last = bisect.bisect_right(at_s, middle_s + SPAN_S / 2)
        shares = {up: statistics.median(ratios[first:last]) for up, ratios in used.items()}
        found.append((middle_s, shares))
    return found


def settle_s(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], from_s: float, to_s: float
) -> float:
    """How long after `from_s` the uplinks have settled.

    That is the first moment from which on, up to `to_s`, no uplink is full (`FULL_RATIO`) and
    each one carries what it carries in the last `END_S` (within `SAME_RATIO` of its capacity).
    What lasts less than half of `SPAN_S` is not seen. Where that never comes it is all of the
    time that was watched.
    """
    within = [(at_s, used) for at_s, used in rates(readings, capacities_bps) if at_s >= from_s]
    within = [(at_s, used) for at_s, used in within if at_s <= to_s - SPAN_S / 2]
    ending = [used for at_s, used in within if at_s >= to_s - END_S]
    if not ending:
        return to_s - from_s
    end = {uplink: statistics.median(used[uplink] for used in ending) for uplink in capacities_bps}

    def settled(used: Mapping[str, float]) -> bool:
        return all(
            used[uplink] < FULL_RATIO and abs(used[uplink] - end[uplink]) <= SAME_RATIO
            for uplink in end
        )

    unsettled = [number for number, (_, used) in enumerate(within) if not settled(used)]
    if not unsettled:
        return 0.0
    if unsettled[-1] + 1 == len(within):
        return to_s - from_s
    return max(0.0, within[unsettled[-1] + 1][0] - from_s)
