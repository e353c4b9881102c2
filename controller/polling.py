"""When counters are read, and which of them with each poll."""

from __future__ import annotations

from dataclasses import dataclass

from controller.events import ReadStats

# At most so often are the counters of VM ports' flows read: the switch renews them twice a second.
UNITS_INTERVAL_S = 0.5
# And those of 256 buckets, as a policy that moves buckets looks at seconds.
BUCKETS_INTERVAL_S = 1.0
# A poll that nobody has answered for so long is given up.
TIMEOUT_S = 10.0
# After more polls than that were missed, a bridge gets a time of its own anew.
MOST_MISSED = 60
# Ten times 0.1 s may be less than a second.
ON_TIME_S = 0.001


@dataclass(slots=True)
class Polling:
    """The polls of one bridge.

    Ports are read with each, what units count less often, and what buckets and addresses count
    less often still. `with_units`: the poll under way ends with what units count.
    """

    due_s: float = 0.0
    with_units: bool = True
    _units_due_s: float = 0.0
    _buckets_due_s: float = 0.0
    # When the poll under way began.
    _asked_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Poll at once."""
        self.due_s = now_s

    def read_buckets_at(self, due_s: float) -> None:
        self._buckets_due_s = due_s

    def forget(self) -> None:
        """The poll under way is answered, or will never be."""
        self._asked_s = None

    def reading_s(self, interval_s: float, buckets: bool) -> float:
        """From when on a poll reads more than ports; `buckets`: those or addresses, too."""
        # As near as polls come to the interval.
        units_s = self._units_due_s - interval_s / 2
        return min(units_s, self._buckets_due_s - ON_TIME_S) if buckets else units_s

    def poll(
        self, bridge: str, interval_s: float, hashed: bool, behind: bool, now_s: float
    ) -> ReadStats | None:
        """The next poll; None while one is under way.

        `hashed`: buckets are judged; `behind`: there are addresses that are units of their own.

        One that comes late, or not at all, does not make the next one late, too: polls of bridges
        that were due while others were looked at would all come at once from then on.
        """
        missed = (now_s - self.due_s) // interval_s
        at_s = self.due_s + missed * interval_s if 0 <= missed < MOST_MISSED else now_s
        self.due_s = at_s + interval_s
        if self._asked_s is not None and 0.0 < now_s - self._asked_s < TIMEOUT_S:
            return None
        self._asked_s = now_s
        self.with_units = at_s >= self.reading_s(interval_s, hashed or behind)
        buckets = (hashed or behind) and at_s >= self._buckets_due_s - ON_TIME_S
        if buckets:
            self._buckets_due_s = at_s + BUCKETS_INTERVAL_S
        if self.with_units:
            self._units_due_s = at_s + UNITS_INTERVAL_S
        return ReadStats(bridge, hashed and buckets, behind and buckets, self.with_units)
