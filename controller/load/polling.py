"""When counters are read, and which of them with each poll."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.api.events import ReadStats

# At most so often are the counters of VM ports' flows read: the switch renews them twice a second.
UNITS_INTERVAL_S = 0.5
# And those of 256 buckets, as a policy that moves buckets looks at seconds.
BUCKETS_INTERVAL_S = 1.0
# A poll that nobody has answered for so long is given up.
TIMEOUT_S = 10.0
# After more polls than that were missed, a bridge gets a time of its own anew.
MOST_MISSED = 60
# So near a poll nothing is read beside it.
NEAR_S = 0.01
# Ten times 0.1 s may be less than a second.
ON_TIME_S = 0.001
# Nor have multiples of others: times of polls are whole microseconds, however they were reckoned.
ROUNDING_S = 1e-6
DIGITS = 6


def round_polls(interval_s: float, buckets: bool) -> int:
    """With every how many polls all is read that is read at all; `buckets`: those, too."""
    after_s = BUCKETS_INTERVAL_S - ON_TIME_S if buckets else UNITS_INTERVAL_S - interval_s / 2
    return max(1, math.ceil(after_s / interval_s - ROUNDING_S))


@dataclass(slots=True)
class Polling:
    """The polls of one bridge.

    Ports are read with each, what units count less often, and what buckets and addresses count
    less often still. `with_units`: the poll under way ends with what units count; `with_behind`: also
    with what addresses behind VM ports do. `is_extra`: it is one between two polls.
    """

    poll_due_s: float = 0.0
    with_units: bool = True
    with_behind: bool = False
    is_extra: bool = False
    _units_due_s: float = 0.0
    _buckets_due_s: float = 0.0
    # When ports are read once more before that.
    _extra_s: float = math.inf
    # When the poll under way began.
    _asked_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Poll at once."""
        self.poll_due_s = now_s

    def hasten(self, extra_s: float) -> None:
        """Read the counters of ports once more, unless a poll does that about then."""
        self._extra_s = extra_s if extra_s < self.poll_due_s - NEAR_S else math.inf

    def read_all(self, now_s: float) -> None:
        """Read at once what is not read with each poll."""
        self._units_due_s = self._buckets_due_s = self._extra_s = now_s

    @property
    def due_s(self) -> float:
        """When the next reading is due."""
        return min(self.poll_due_s, self._extra_s)

    def read_buckets_at(self, due_s: float) -> None:
        self._buckets_due_s = due_s

    def forget(self) -> None:
        """The poll under way is answered, or will never be."""
        self._asked_s = None

    def reading_s(self, interval_s: float, buckets: bool) -> float:
        """From when on a poll reads more than ports; `buckets`: those or addresses, too."""
        # As near as polls come to the interval.
        units_s = self._units_due_s - interval_s / 2 - ROUNDING_S
        return min(units_s, self._buckets_due_s - ON_TIME_S) if buckets else units_s

    def poll(
        self, bridge: str, interval_s: float, hashed: bool, behind: bool, now_s: float
    ) -> ReadStats | None:
        """The next poll; None while one is under way.

        `hashed`: buckets are judged; `behind`: there are addresses that are units of their own.

        One that comes late, or not at all, does not make the next one late, too: polls of bridges
        that were due while others were looked at would all come at once from then on.
        """
        self._extra_s = math.inf
        if is_extra := now_s < self.poll_due_s - NEAR_S / 2:
            at_s = now_s
        else:
            missed = max(0.0, (now_s + ROUNDING_S - self.poll_due_s) // interval_s)
            at_s = self.poll_due_s + missed * interval_s if missed < MOST_MISSED else now_s
            at_s = round(at_s, DIGITS)
            self.poll_due_s = round(at_s + interval_s, DIGITS)
        if self._asked_s is not None and 0.0 < now_s - self._asked_s < TIMEOUT_S:
            return None
        self._asked_s = now_s
        if is_extra and now_s < min(self._units_due_s, self._buckets_due_s):
            self.is_extra, self.with_units, self.with_behind = True, False, False
            return ReadStats(bridge, False, False, False)
        self.is_extra = False
        self.with_units = at_s >= self.reading_s(interval_s, hashed or behind)
        buckets = (hashed or behind) and at_s >= self._buckets_due_s - ON_TIME_S
        if buckets:
            self._buckets_due_s = at_s + BUCKETS_INTERVAL_S
        self.with_behind = behind and buckets
        if self.with_units:
            self._units_due_s = at_s + UNITS_INTERVAL_S
        return ReadStats(bridge, hashed and buckets, behind and buckets, self.with_units)
