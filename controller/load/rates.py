"""Turns byte counters into rates, using the switch's own clock, and recognizes late counters.

The counters of a physical port are live. Open vSwitch counts the traffic of patch ports and flows
in its flow cache. About twice a second, its revalidators dump the cache, and add these counts to
the counters of patch ports and flows. This is an *update*. Between two updates, such a counter does
not change. Then it grows in one step by all traffic since the previous update. So a rate must be
computed from two updates, not from any two readings. Late counters, which are updated only about
twice a second, are recognized by these steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.api.events import UNSUPPORTED, Sample
from policies.model import IDLE, Load

# A counter that does not change for this long while it is read often may be late.
STILL_S = 0.2
# The longest time between two updates. A counter that does not change for longer has no traffic.
LONGEST_BEAT_S = 1.2
# The fewest bytes that count as an update: half a second of half a Mbit/s.
UPDATE_BYTES = 32_000
# A counter that grows with this many readings in a row is live.
LIVE_READINGS = 3
# How long an update takes. A counter may be read during an update.
UPDATE_S = 0.06
# A counter that drops from the top sixteenth of its range into the bottom one has wrapped;
# any other drop is a reset.
WRAP_MARGIN = 16
# How much of a window must be covered before its mean is used; polls are never exactly on time.
COVERAGE_RATIO = 0.9
# Counters grow by whole frames, and most bytes are in frames of full size.
FRAME_BYTES = 1518
# Readings closer together than this show single frames, not loads.
APART_S = 0.02
# Updates of late counters are detected only if a counter is read at least this often.
BEAT_READING_S = 0.2
# If the counter is read less often, the rate is the mean over this time, which has some updates.
SOME_BEATS_S = 2.0
# In a longer window, one update more or less does not matter.
BEATS_COUNT_S = 10.0
# Readings do not coincide with updates, so measured rates of a constant load differ by this share.
NEAR_RATIO = 0.3
# A rate covers at least this time, if counters are read more than ten times a second.
LATEST_S = 0.05


class Total(NamedTuple):
    """Bytes counted since the first sample, corrected for counter wraps."""

    clock_s: float
    tx_bytes: float
    rx_bytes: float


@dataclass(slots=True)
class Rates:
    """The recent traffic that one counter has counted.

    If a port is re-created or its counters are reset, measurement starts again.

    `late`: whether the counter is late; None: not known yet. `updates`: the counter's total right
    after each update, oldest first. `stood_still`: the last reading in the last period of at least
    `STILL_S` in which the counter did not change, and the length of this period in seconds.
    """

    _last: Sample | None = None
    # Oldest first.
    _totals: list[Total] = field(default_factory=list)
    late: bool | None = None
    updates: list[Total] = field(default_factory=list)
    stood_still: tuple[Total, float] | None = None
    # When the counter last grew, or was first read.
    counted_s: float | None = None
    _in_a_row: int = 0

    def add_reading(self, sample: Sample, keep_s: float) -> tuple[float, float]:
        """Add a sample; return the bytes sent and received since the last one. Keep samples for `keep_s`.

        A sample at the same time as the last one is ignored.
        """
        last, self._last = self._last, sample
        clock_s = sample.clock_s
        if last is None or clock_s < last.clock_s:
            return self._restart(sample)
        if clock_s == last.clock_s:
            return 0.0, 0.0
        tx_bytes = _increase(last.tx_bytes, sample.tx_bytes)
        rx_bytes = _increase(last.rx_bytes, sample.rx_bytes)
        if tx_bytes is None or rx_bytes is None:
            return self._restart(sample)
        totals = self._totals
        before = totals[-1]
        now = Total(clock_s, before[1] + tx_bytes, before[2] + rx_bytes)
        assert now.tx_bytes >= before.tx_bytes and now.rx_bytes >= before.rx_bytes, "totals grow"
        totals.append(now)
        self._recognize(before, now, keep_s)
        oldest_s = clock_s - keep_s
        while len(totals) > 2 and totals[1][0] <= oldest_s:
            del totals[0]
        return tx_bytes, rx_bytes

    def _recognize(self, before: Total, now: Total, keep_s: float) -> None:
        """Compare the reading `now` with the reading `before` it. Keep updates for `keep_s` seconds."""
        counted_s = before.clock_s if self.counted_s is None else self.counted_s
        self.counted_s = counted_s
        if now[1:] == before[1:]:
            return
        self.counted_s = now.clock_s
        if before.clock_s - counted_s >= STILL_S:
            self.stood_still = before, before.clock_s - counted_s
            # Single frames are not an update.
            if more_bytes(before, now) >= UPDATE_BYTES:
                self._add_update(now, keep_s)
        elif (
            self.updates
            and now.clock_s - self.updates[-1].clock_s <= UPDATE_S + now.clock_s - before.clock_s
            and self._in_a_row == 0
        ):
            # This is the rest of the same update.
            self.updates[-1] = now
            self._in_a_row = 1
        else:
            self._in_a_row += 1
            if self._in_a_row >= LIVE_READINGS:
                self.late = False
                self.updates.clear()

    def _add_update(self, now: Total, keep_s: float) -> None:
        self._in_a_row = 0
        updates = self.updates
        if updates and now.clock_s - updates[-1].clock_s > LONGEST_BEAT_S:
            # There was no traffic in between, and it is not known when traffic began again.
            updates.clear()
        updates.append(now)
        if len(updates) > 1:
            self.late = True
        while len(updates) > 3 and updates[1].clock_s <= now.clock_s - keep_s:
            del updates[0]

    @property
    def just_updated(self) -> bool:
        """Whether the counter is late, and the last reading was an update."""
        updates = self.updates
        return bool(self.late and updates) and updates[-1].clock_s == self.clock_s

    @property
    def has_counted(self) -> bool:
        """Whether enough bytes were counted recently to find out whether the counter is late."""
        return (
            len(self._totals) > 1 and more_bytes(self._totals[0], self._totals[-1]) >= UPDATE_BYTES
        )

    @property
    def total(self) -> Total | None:
        """The total of all counted bytes; None before the first sample."""
        return self._totals[-1] if self._totals else None

    @property
    def clock_s(self) -> float:
        """The time of the last sample, on the switch's clock. Requires at least one sample."""
        return self._totals[-1].clock_s

    def latest(self, steady_s: float = math.inf) -> Load:
        """Return the load between the last two samples, or over `LATEST_S` if that is longer.

        Zero before the second sample. For a late counter: the load over the last two update
        intervals, or over one if the load has changed. `steady_s`: how long loads have not changed.
        """
        if len(self._totals) < 2:
            return IDLE
        if self.late:
            return self._latest_beat(steady_s)
        before, last = self._totals[-2:]
        if before.clock_s > last.clock_s - LATEST_S:
            before = self._totals[max(0, _last_until(self._totals, last.clock_s - LATEST_S))]
        if self.late is None and (update := self._possible_update(before, last)):
            # As if the bytes were carried since the counter last stopped changing.
            assert self.stood_still is not None
            still, still_s = self.stood_still
            began_s = still.clock_s - min(still_s, LONGEST_BEAT_S)
            return _between(still._replace(clock_s=began_s), update)
        return _between(before, last)

    def _latest_beat(self, steady_s: float) -> Load:
        clock_s = self._totals[-1].clock_s
        if clock_s - self._totals[-2].clock_s > BEAT_READING_S:
            # Read too rarely to detect updates, so use a mean over several updates.
            return self.mean(SOME_BEATS_S) or _between(*self._totals[-2:])
        if self.is_over(clock_s):
            return IDLE
        updates = self.updates[-3:]
        if len(updates) < 2:
            return IDLE
        last = _between(updates[-2], updates[-1])
        if clock_s - updates[0].clock_s > steady_s:
            return last
        both = _between(updates[0], updates[-1])
        near = _is_near(last.tx_bps, both.tx_bps) and _is_near(last.rx_bps, both.rx_bps)
        return both if near else last

    def _possible_update(self, before: Total, now: Total) -> Total | None:
        """Return the last update if it may contain the bytes between two readings; otherwise None.

        Until the next update is due, it is not known whether there will be one.
        """
        update = self.updates[-1] if self.updates else None
        if update is None or self.is_over(now.clock_s):
            return None
        return update if update.clock_s > before.clock_s or update[1:] == now[1:] else None

    def is_over(self, clock_s: float) -> bool:
        """Whether the counter has been unchanged for so long that traffic must have ended."""
        return not self.updates or clock_s - self.updates[-1].clock_s > LONGEST_BEAT_S

    def last_interval(self) -> Load:
        """Return the load between the last two samples; zero if there are fewer than two."""
        return _between(*self._totals[-2:]) if len(self._totals) > 1 else IDLE

    def rise(self, recent_s: float = 0.0) -> Load:
        """Return by how much the load exceeds the load at the previous reading.

        `recent_s`: compare instead with the highest load in the `recent_s` seconds up to the
        previous reading, because readings of a steady load vary. One additional frame is not a rise.
        """
        totals = self._totals
        if len(totals) < 3 or self.late:
            return IDLE
        last, before = totals[-1], totals[-2]
        if before.clock_s > last.clock_s - APART_S:
            middle = _last_until(totals, last.clock_s - APART_S)
            if middle < 1:
                return IDLE
            before = totals[middle]
        now = _between(before, last)
        if now is IDLE:
            return IDLE
        frame_bps = 8 * FRAME_BYTES / (last.clock_s - before.clock_s)
        tx_bps, rx_bps = now.tx_bps - frame_bps, now.rx_bps - frame_bps
        if tx_bps <= 0.0 and rx_bps <= 0.0:
            return IDLE
        then = self._highest(before, recent_s)
        if tx_bps <= then.tx_bps and rx_bps <= then.rx_bps:
            return IDLE
        return Load(max(0.0, tx_bps - then.tx_bps), max(0.0, rx_bps - then.rx_bps))

    def _highest(self, last: Total, recent_s: float) -> Load:
        """Return the highest load between two readings in the `recent_s` seconds before `last`."""
        highest, end = IDLE, last
        while True:
            begin = self._totals[max(0, _last_until(self._totals, end.clock_s - APART_S))]
            load = _between(begin, end)
            if highest is IDLE:
                highest = load
            elif load is not IDLE:
                tx_bps = max(highest.tx_bps, load.tx_bps)
                highest = Load(tx_bps, max(highest.rx_bps, load.rx_bps))
            if begin is end or begin.clock_s <= last.clock_s - recent_s:
                return highest
            end = begin

    def mean(self, window_s: float, lag_s: float = 0.0) -> Load | None:
        """Return the mean load over a window that ended `lag_s` ago; None while it is not known."""
        span = self._span(window_s, lag_s)
        return _between(*span) if span else None

    def covers(self, window_s: float, lag_s: float = 0.0) -> bool:
        """Whether the load is known over a window that ended `lag_s` ago."""
        return self._span(window_s, lag_s) is not None

    def _span(self, window_s: float, lag_s: float) -> tuple[Total, Total] | None:
        """Return the first and last total of the window that ended `lag_s` ago; None if unknown."""
        totals = self._totals
        if not totals:
            return None
        if self.late and window_s <= BEATS_COUNT_S:
            end_s = totals[-1].clock_s - lag_s
            span = self._span_of_updates(window_s, end_s)
            if span and not self.is_over(end_s):
                return span if self.known_s(lag_s) >= COVERAGE_RATIO * window_s else None
        newest = _last_until(totals, totals[-1].clock_s - lag_s) if lag_s else len(totals) - 1
        if newest <= 0:
            return None
        last = totals[newest]
        first = totals[max(0, _last_until(totals, last.clock_s - window_s))]
        if last.clock_s - first.clock_s < COVERAGE_RATIO * window_s:
            return None
        return first, last

    def _span_of_updates(self, window_s: float, clock_s: float) -> tuple[Total, Total] | None:
        """Return the first and the last update of a window that ends at `clock_s`.

        The window is at least one update interval long. None: there are fewer than two updates.
        """
        last = _last_until(self.updates, clock_s)
        if last < 1:
            return None
        first = _last_until(self.updates, self.updates[last].clock_s - window_s)
        return self.updates[max(0, min(first, last - 1))], self.updates[last]

    def known_s(self, lag_s: float = 0.0) -> float:
        """Return the time, in seconds, over which the load is known, up to `lag_s` ago."""
        if not self._totals:
            return 0.0
        newest = _last_until(self._totals, self._totals[-1].clock_s - lag_s)
        return self._totals[newest].clock_s - self._totals[0].clock_s if newest >= 0 else 0.0

    def _restart(self, sample: Sample) -> tuple[float, float]:
        self._totals.clear()
        self._totals.append(Total(sample.clock_s, 0, 0))
        self.late = self.stood_still = self.counted_s = None
        self.updates, self._in_a_row = [], 0
        return 0.0, 0.0


def more_bytes(before: Total, now: Total) -> float:
    """Return the number of bytes sent and received between two readings."""
    return now.tx_bytes - before.tx_bytes + now.rx_bytes - before.rx_bytes


def _last_until(totals: list[Total], clock_s: float) -> int:
    """Return the index of the last total at or before `clock_s`; -1: there is none."""
    # It is usually one of the last totals.
    for back in range(1, min(len(totals), 3) + 1):
        if totals[-back][0] <= clock_s:
            return len(totals) - back
    return bisect_right(totals, (clock_s, math.inf)) - 1


def _is_near(one_bps: float, other_bps: float) -> bool:
    return abs(one_bps - other_bps) <= NEAR_RATIO * max(one_bps, other_bps)


def _between(first: Total, last: Total) -> Load:
    first_s, first_tx_bytes, first_rx_bytes = first
    last_s, last_tx_bytes, last_rx_bytes = last
    tx_bytes, rx_bytes = last_tx_bytes - first_tx_bytes, last_rx_bytes - first_rx_bytes
    if not tx_bytes and not rx_bytes:
        return IDLE
    elapsed_s = last_s - first_s
    assert elapsed_s > 0.0, "bytes are counted over some time"
    return Load(8 * tx_bytes / elapsed_s, 8 * rx_bytes / elapsed_s)


def _increase(last: float | None, now: float | None) -> float | None:
    """Return the bytes counted between two readings. None: the counter was reset.

    If the switch does not support the counter (yet, or any more), the result is 0.
    """
    if last is None or now is None:
        return 0
    if last <= now < UNSUPPORTED:
        return now - last
    if UNSUPPORTED in (last, now):
        return 0
    for size in (2**32, 2**64):
        margin = size // WRAP_MARGIN
        if size - margin <= last < size and now < margin:
            return size - last + now
    return None
