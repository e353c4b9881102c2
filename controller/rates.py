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
# The least over which counters that are read ten times a second make a rate.
LATEST_S = 0.08


@dataclass(frozen=True, slots=True)
class Sample:
    """Byte counters at `clock_s`, the age that the switch gives the port or flow.

    `tx_bytes` go towards the network. None: the switch does not count them.
    """

    clock_s: float
    tx_bytes: int | None
    rx_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Total:
    """Bytes counted since the first sample, across wraps of the counters."""

    clock_s: float
    tx_bytes: int
    rx_bytes: int


@dataclass(slots=True)
class Rates:
    """The recent traffic of one port, kept for `keep_s` seconds.

    A port that was re-created or whose counters were reset starts anew, so that a rate
    never spans a gap.
    """

    keep_s: float
    _last: Sample | None = None
    _totals: deque[_Total] = field(default_factory=deque)

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
        before = self._totals[-1]
        self._totals.append(
            _Total(sample.clock_s, before.tx_bytes + tx_bytes, before.rx_bytes + rx_bytes)
        )
        while len(self._totals) > 2 and self._totals[1].clock_s <= sample.clock_s - self.keep_s:
            self._totals.popleft()
        return None

    def latest(self) -> Load:
        """The load of the last two samples, or of more that came in quick succession.

        Zero before there are two.
        """
        if len(self._totals) < 2:
            return Load()
        return self.mean(LATEST_S) or _between(self._totals[-2], self._totals[-1])

    def mean(self, window_s: float, lag_s: float = 0.0) -> Load | None:
        """The mean load over `window_s`, up to `lag_s` ago; None while less is known."""
        if not self._totals:
            return None
        end_s = self._totals[-1].clock_s - lag_s
        newest = next((total for total in reversed(self._totals) if total.clock_s <= end_s), None)
        if newest is None or newest is self._totals[0]:
            return None
        oldest = self._totals[0]
        for total in self._totals:
            if total.clock_s > newest.clock_s - window_s:
                break
            oldest = total
        if newest.clock_s - oldest.clock_s < COVERAGE_RATIO * window_s:
            return None
        return _between(oldest, newest)

    def known_s(self, lag_s: float = 0.0) -> float:
        """For how long, up to `lag_s` ago, the load is known."""
        if not self._totals:
            return 0.0
        end_s = self._totals[-1].clock_s - lag_s
        known = [total.clock_s for total in self._totals if total.clock_s <= end_s]
        return known[-1] - known[0] if known else 0.0

    def _restart(self, sample: Sample) -> None:
        self._totals.clear()
        self._totals.append(_Total(sample.clock_s, 0, 0))


def _between(first: _Total, last: _Total) -> Load:
    elapsed_s = last.clock_s - first.clock_s
    return Load(
        tx_bps=8 * (last.tx_bytes - first.tx_bytes) / elapsed_s,
        rx_bps=8 * (last.rx_bytes - first.rx_bytes) / elapsed_s,
    )


def _increase(last: int | None, now: int | None) -> int | None:
    """What was counted between two readings; None when the counter was reset.

    Nothing, where the switch does not count (yet, or any more).
    """
    if last in (None, UNSUPPORTED) or now in (None, UNSUPPORTED):
        return 0
    if now >= last:
        return now - last
    for size in (2**32, 2**64):
        margin = size // WRAP_MARGIN
        if size - margin <= last < size and now < margin:
            return size - last + now
    return None
