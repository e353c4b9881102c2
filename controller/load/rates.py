"""From byte counters to rates, on the switch's own clock."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

from controller.api.events import UNSUPPORTED, Sample
from controller.load.beats import LONGEST_BEAT_S, LOOK_BYTES, Beats, Total, more_bytes
from policies.model import IDLE, Load

# A counter that drops from the top sixteenth of its range into the bottom one has wrapped;
# any other drop is a reset.
WRAP_MARGIN = 16
# How much of a window must be covered before its mean counts; polls are never quite on time.
COVERAGE_RATIO = 0.9
# A counter is of whole frames; most bytes are in those of full size.
FRAME_BYTES = 1518
# Readings that are nearer to each other tell of single frames, not of loads.
APART_S = 0.02
# A beat is seen by who reads more often than that.
BEAT_READING_S = 0.2
# Who does not takes the mean over some.
SOME_BEATS_S = 2.0
# In a longer window a beat more or less is nothing.
BEATS_COUNT_S = 10.0
# Beats are seen to a reading: from one to the next a constant load differs by so much.
NEAR_RATIO = 0.3
# The least over which counters make a rate that are read faster than ten times a second.
LATEST_S = 0.05


@dataclass(slots=True)
class Rates:
    """The recent traffic of one port, kept for `keep_s` seconds.

    A port that was re-created or whose counters were reset starts anew, so that a rate
    never spans a gap.
    """

    keep_s: float
    _last: Sample | None = None
    # Oldest first.
    _totals: list[Total] = field(default_factory=list)
    beats: Beats = field(default_factory=Beats)

    def add(self, sample: Sample) -> None:
        """Take a sample; one at the same moment as the last is a repetition and is ignored."""
        last, self._last = self._last, sample
        if last is None or sample.clock_s < last.clock_s:
            return self._restart(sample)
        if sample.clock_s == last.clock_s:
            return None
        tx_bytes = _increase(last.tx_bytes, sample.tx_bytes)
        rx_bytes = _increase(last.rx_bytes, sample.rx_bytes)
        if tx_bytes is None or rx_bytes is None:
            return self._restart(sample)
        totals = self._totals
        _, tx_before, rx_before = totals[-1]
        totals.append(Total(sample.clock_s, tx_before + tx_bytes, rx_before + rx_bytes))
        self.beats.see(totals[-2], totals[-1], self.keep_s)
        while len(totals) > 2 and totals[1].clock_s <= sample.clock_s - self.keep_s:
            del totals[0]
        return None

    @property
    def has_counted(self) -> bool:
        """Whether enough was counted lately to see whether that was by looks."""
        return len(self._totals) > 1 and more_bytes(self._totals[0], self._totals[-1]) >= LOOK_BYTES

    @property
    def total(self) -> Total | None:
        """All that was counted; None before the first sample."""
        return self._totals[-1] if self._totals else None

    def latest(self) -> Load:
        """The load of the last two samples, or of more that came in quick succession.

        That of the last two beats where the counter has beats, and of one of these where it has
        changed. Zero before there are two samples.
        """
        if len(self._totals) < 2:
            return IDLE
        if self.beats.late:
            return self._latest_beat()
        before, last = self._totals[-2:]
        if before.clock_s > last.clock_s - LATEST_S:
            before = self._totals[max(0, _at(self._totals, last.clock_s - LATEST_S))]
        if self.beats.late is None and (look := self.beats.perhaps(before, last)):
            return self._perhaps_a_look(look)
        return _between(before, last)

    def _latest_beat(self) -> Load:
        clock_s = self._totals[-1].clock_s
        if clock_s - self._totals[-2].clock_s > BEAT_READING_S:
            # Read too seldom to see looks: over some of them.
            return self.mean(SOME_BEATS_S) or _between(*self._totals[-2:])
        if self.beats.is_over(clock_s):
            return IDLE
        looks = self.beats.looks[-3:]
        if len(looks) < 2:
            return IDLE
        last = _between(looks[-2], looks[-1])
        both = _between(looks[0], looks[-1])
        return (
            both
            if _is_near(last.tx_bps, both.tx_bps) and _is_near(last.rx_bps, both.rx_bps)
            else last
        )

    def _perhaps_a_look(self, last: Total) -> Load:
        """What was counted after a standstill may have been carried all the time since."""
        assert self.beats.stood_still is not None
        before, still_s = self.beats.stood_still
        seconds = last.clock_s - before.clock_s + min(still_s, LONGEST_BEAT_S)
        tx_bytes, rx_bytes = last.tx_bytes - before.tx_bytes, last.rx_bytes - before.rx_bytes
        return Load(8 * tx_bytes / seconds, 8 * rx_bytes / seconds)

    def of_two(self) -> Load:
        """The load of the last three samples; of the last two where it has changed."""
        if len(self._totals) < 3:
            return self.latest()
        first, middle, last = self._totals[-3:]
        now, both = _between(middle, last), _between(first, last)
        near = _is_near(now.tx_bps, both.tx_bps) and _is_near(now.rx_bps, both.rx_bps)
        return both if near else now

    def rise(self) -> Load:
        """By how much more was carried since the last reading than between those before.

        Beyond what a frame more or less makes of it.
        """
        totals = self._totals
        if len(totals) < 3 or self.beats.late:
            return IDLE
        last = totals[-1]
        middle = _at(totals, last.clock_s - APART_S)
        if middle < 1:
            return IDLE
        before = totals[middle]
        earlier = totals[max(0, _at(totals, before.clock_s - APART_S))]
        then, now = _between(earlier, before), _between(before, last)
        if now is IDLE:
            return IDLE
        frame_bps = 8 * FRAME_BYTES / (last.clock_s - before.clock_s)
        return Load(
            max(0.0, now.tx_bps - then.tx_bps - frame_bps),
            max(0.0, now.rx_bps - then.rx_bps - frame_bps),
        )

    def mean(self, window_s: float, lag_s: float = 0.0) -> Load | None:
        """The mean load over `window_s`, up to `lag_s` ago; None while less is known."""
        totals = self._totals
        if not totals:
            return None
        if self.beats.late and window_s <= BEATS_COUNT_S:
            span = self.beats.span(window_s, totals[-1].clock_s - lag_s)
            if span and not self.beats.is_over(totals[-1].clock_s - lag_s):
                return _between(*span) if self.known_s(lag_s) >= COVERAGE_RATIO * window_s else None
        newest = _at(totals, totals[-1].clock_s - lag_s) if lag_s else len(totals) - 1
        if newest <= 0:
            return None
        last = totals[newest]
        first = totals[max(0, _at(totals, last.clock_s - window_s))]
        if last.clock_s - first.clock_s < COVERAGE_RATIO * window_s:
            return None
        return _between(first, last)

    def known_s(self, lag_s: float = 0.0) -> float:
        """For how long, up to `lag_s` ago, the load is known."""
        if not self._totals:
            return 0.0
        newest = _at(self._totals, self._totals[-1].clock_s - lag_s)
        return self._totals[newest].clock_s - self._totals[0].clock_s if newest >= 0 else 0.0

    def _restart(self, sample: Sample) -> None:
        self._totals.clear()
        self._totals.append(Total(sample.clock_s, 0, 0))
        self.beats = Beats()


def _at(totals: list[Total], clock_s: float) -> int:
    """The index of the last of that time or before; -1: none is."""
    return bisect_right(totals, (clock_s, math.inf)) - 1


def _is_near(one_bps: float, other_bps: float) -> bool:
    return abs(one_bps - other_bps) <= NEAR_RATIO * max(one_bps, other_bps)


def _between(first: Total, last: Total) -> Load:
    tx_bytes, rx_bytes = last.tx_bytes - first.tx_bytes, last.rx_bytes - first.rx_bytes
    if not tx_bytes and not rx_bytes:
        return IDLE
    elapsed_s = last.clock_s - first.clock_s
    return Load(tx_bps=8 * tx_bytes / elapsed_s, rx_bps=8 * rx_bytes / elapsed_s)


def _increase(last: float | None, now: float | None) -> float | None:
    """What was counted between two readings; None when the counter was reset.

    Nothing, where the switch does not count (yet, or any more).
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
