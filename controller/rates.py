"""From byte counters to rates, on the switch's own clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from policies.model import Load

UNSUPPORTED = 2**64 - 1
# A counter that drops from the top sixteenth of its range into the bottom one has wrapped;
# any other drop is a reset.
WRAP_MARGIN = 16
# How much of a window must be covered before its mean counts; polls are never quite on time.
COVERAGE_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Sample:
    """Byte counters at `clock_s`, the age that the switch gives the port or flow.

    `tx_bytes` go towards the network. None: the switch does not count them.
    """

    clock_s: float
    tx_bytes: int | None
    rx_bytes: int | None


@dataclass(slots=True)
class Rates:
    """The recent counters of one port, kept for `keep_s` seconds.

    A port that was re-created or whose counters were reset starts anew, so that a rate
    never spans a gap.
    """

    keep_s: float
    _samples: deque[Sample] = field(default_factory=deque)

    def add(self, sample: Sample) -> None:
        """Take a sample; one no newer than the last is a repetition and is ignored."""
        sample = Sample(sample.clock_s, _supported(sample.tx_bytes), _supported(sample.rx_bytes))
        if self._samples:
            last = self._samples[-1]
            if sample.clock_s == last.clock_s:
                return
            tx_bytes = _continued(last.tx_bytes, sample.tx_bytes)
            rx_bytes = _continued(last.rx_bytes, sample.rx_bytes)
            if sample.clock_s < last.clock_s or tx_bytes is None or rx_bytes is None:
                self._samples.clear()
            else:
                sample = Sample(sample.clock_s, tx_bytes, rx_bytes)
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].clock_s <= sample.clock_s - self.keep_s:
            self._samples.popleft()

    def latest(self) -> Load:
        """The load between the last two samples; zero before there are two."""
        if len(self._samples) < 2:
            return Load()
        return _between(self._samples[-2], self._samples[-1])

    def mean(self, window_s: float) -> Load | None:
        """The mean load over the last `window_s`; None while less than that is known."""
        if len(self._samples) < 2:
            return None
        newest = self._samples[-1]
        start_s = newest.clock_s - window_s
        oldest = self._samples[0]
        for sample in self._samples:
            if sample.clock_s > start_s:
                break
            oldest = sample
        if newest.clock_s - oldest.clock_s < COVERAGE_RATIO * window_s:
            return None
        return _between(oldest, newest)


def _between(first: Sample, last: Sample) -> Load:
    elapsed_s = last.clock_s - first.clock_s
    return Load(
        tx_bps=8 * ((last.tx_bytes or 0) - (first.tx_bytes or 0)) / elapsed_s,
        rx_bps=8 * ((last.rx_bytes or 0) - (first.rx_bytes or 0)) / elapsed_s,
    )


def _supported(counter: int | None) -> int | None:
    return None if counter == UNSUPPORTED else counter


def _continued(last: int | None, now: int | None) -> int | None:
    """`now` made to count on from `last`; None when the counter was reset.

    An unsupported counter counts as one that stands at zero.
    """
    if now is None or last is None:
        return now or 0
    if now >= last:
        return now
    for bits in (32, 64):
        size = 1 << bits
        margin = size // WRAP_MARGIN
        if size - margin <= last % size and last < size and now < margin:
            return last + (size - last) + now
    return None
