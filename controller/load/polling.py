"""Schedules the polls of a bridge: when to read counters, and which counters each poll reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controller.api.engine_commands import ReadStats
from controller.load.rates import BEAT_READING_S

# The shortest interval between readings of VM ports' flows. The switch updates their counters twice
# a second.
UNITS_INTERVAL_S = 0.5
# The shortest interval between readings of the (up to 256) buckets. Policies that move buckets use
# means over several seconds.
BUCKETS_INTERVAL_S = 1.0
# The interval between readings of address units while a decision waits for them. The switch updates
# their counters at least once in this time.
ADDRESSES_SOON_S = 0.7
# A poll that the switch has not answered within this time is abandoned.
TIMEOUT_S = 10.0
# If a bridge has missed more polls than this, its polls start again from the current time.
MOST_MISSED = 60
# Ports are not read once more if a poll is due within this time.
NEAR_S = 0.01
# A tolerance for intervals: ten times 0.1 s may be less than a second.
ON_TIME_S = 0.001
# Times of polls are rounded to whole microseconds, because sums of intervals are not exact either.
ROUNDING_S = 1e-6
DIGITS = 6
# How long counters are read often to find out whether a port's counter is late: some updates.
UNSURE_S = 2.5


@dataclass(slots=True)
class Polling:
    """The schedule of one bridge's polls, and the counters that the current poll reads.

    Each poll reads the counters of ports. Some polls also read VM ports' flows, and fewer read
    buckets and address units. `with_units`: the current poll reads VM ports' flows. `with_behind`:
    the current poll reads address units. `is_extra`: the poll is between two regular polls.
    """

    poll_due_s: float = 0.0
    # When to read buckets and address units next.
    buckets_due_s: float = 0.0
    with_units: bool = True
    with_behind: bool = False
    is_extra: bool = False
    _units_due_s: float = 0.0
    # When to read ports once more before the next poll; infinity: not at all.
    _extra_s: float = math.inf
    # When the current poll began.
    _asked_s: float | None = None
    # Since when it has been unknown whether the counter of a port that carries traffic is late.
    _unsure_s: float | None = None

    def begin_polling(self, now_s: float) -> None:
        """Schedule the next poll for `now_s`."""
        self.poll_due_s, self._extra_s = now_s, math.inf

    def hasten(self, extra_s: float) -> None:
        """Read ports once more at `extra_s`, unless a poll is due at about the same time."""
        self._extra_s = extra_s if extra_s < self.poll_due_s - NEAR_S else math.inf

    def read_often(self, unsure: bool, interval_s: float, now_s: float) -> None:
        """Read ports often for `UNSURE_S` if it is not known whether one of their counters lags.

        `unsure`: True if this is not known. If polls are frequent enough, no readings are added.
        """
        if interval_s <= BEAT_READING_S:
            return
        if not unsure:
            self._unsure_s = None
            return
        if self._unsure_s is None:
            self._unsure_s = now_s
        if now_s - self._unsure_s < UNSURE_S:
            self.hasten(now_s + BEAT_READING_S / 2)

    def read_all(self, now_s: float) -> None:
        """Make the next poll now, and read all counters with it."""
        self._units_due_s = self.buckets_due_s = self._extra_s = now_s

    @property
    def due_s(self) -> float:
        """The time when the next reading is due."""
        return min(self.poll_due_s, self._extra_s)

    def forget_poll(self) -> None:
        """End the current poll, because it has been answered, or will never be answered."""
        self._asked_s = None

    def reading_s(self, interval_s: float, buckets: bool) -> float:
        """Return when a poll next reads unit counters. `buckets`: as in `take_turn`."""
        # The poll that is nearest to the due time.
        units_s = self._units_due_s - interval_s / 2 - ROUNDING_S
        return min(units_s, self.buckets_s) if buckets else units_s

    @property
    def buckets_s(self) -> float:
        """The time from which a poll reads buckets and address units, if any exist."""
        return self.buckets_due_s - ON_TIME_S

    def take_turn(self, at_s: float, interval_s: float, buckets: bool) -> tuple[bool, bool]:
        """Record a poll. Return whether it reads VM ports' flows, and whether it reads all units.

        All units include buckets and address units. `buckets`: whether any of these exist.
        """
        with_units = at_s >= self.reading_s(interval_s, buckets)
        with_buckets = buckets and at_s >= self.buckets_s
        if with_buckets:
            self.buckets_due_s = at_s + BUCKETS_INTERVAL_S
        if with_units:
            self._units_due_s = at_s + UNITS_INTERVAL_S
        return with_units, with_buckets

    def poll(
        self, bridge: str, interval_s: float, hashed: bool, behind: bool, now_s: float
    ) -> ReadStats | None:
        """Return the next poll; None while another poll is in progress.

        `hashed`: whether policies use buckets. `behind`: whether address units exist.

        If a poll is late or missed, the next one is still due at its usual time. Otherwise the
        polls of all bridges that were late together would coincide from that time on.
        """
        self._extra_s = math.inf
        if is_extra := now_s < self.poll_due_s - NEAR_S / 2:
            at_s = now_s
        else:
            missed = max(0.0, (now_s + ROUNDING_S - self.poll_due_s) // interval_s)
            at_s = self.poll_due_s + missed * interval_s if missed < MOST_MISSED else now_s
            at_s = round(at_s, DIGITS)
            self.poll_due_s = round(at_s + interval_s, DIGITS)
        assert self.poll_due_s > now_s - ROUNDING_S, "the next poll is due later"
        if self._asked_s is not None and 0.0 < now_s - self._asked_s < TIMEOUT_S:
            return None
        self._asked_s = now_s
        self.is_extra = is_extra and now_s < min(self._units_due_s, self.buckets_due_s)
        self.with_units = buckets = False
        if not self.is_extra:
            self.with_units, buckets = self.take_turn(at_s, interval_s, hashed or behind)
        self.with_behind = behind and buckets
        return ReadStats(bridge, hashed and buckets, self.with_behind, self.with_units)
