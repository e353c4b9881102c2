"""Counters that stand still and then make up for it.

A switch counts what a physical port forwards as it happens. What it forwards through a patch port,
and what flows match, it counts in its flow cache, and adds to the counters of those when it looks
through the cache, about twice a second. Between two looks such a counter stands still; then it says
in one reading what was carried since the look before. So a rate is known from one look to the next,
never from one reading to the next. Which counters are like that is told by how they behave.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

# A counter that stands still for so long while it is read often may be one of those.
STILL_S = 0.2
# The longest time between two looks; who waits longer for more has none.
LONGEST_BEAT_S = 1.2
# What a look adds at least: half a second of half a Mbit/s.
LOOK_BYTES = 32_000
# So often in a row a counter has counted on, and is live.
LIVE_READINGS = 3
# A look may be under way while a counter is read.
LOOK_S = 0.06


class Total(NamedTuple):
    """Bytes counted since the first sample, across wraps of the counters."""

    clock_s: float
    tx_bytes: float
    rx_bytes: float


@dataclass(slots=True)
class Beats:
    """Of one counter, what it had counted right after each look, oldest first.

    `late`: it is counted by looks; None: not known yet. `stood_still`: the reading at which
    it had stood still, before it counted on last, and for how long.
    """

    late: bool | None = None
    looks: list[Total] = field(default_factory=list)
    stood_still: tuple[Total, float] | None = None
    _counted_s: float | None = None
    _in_a_row: int = 0

    def see(self, before: Total, now: Total, keep_s: float) -> None:
        """Take a reading, and the one before it."""
        counted_s = before.clock_s if self._counted_s is None else self._counted_s
        self._counted_s = counted_s
        if now[1:] == before[1:]:
            return
        self._counted_s = now.clock_s
        if before.clock_s - counted_s >= STILL_S:
            self.stood_still = before, before.clock_s - counted_s
        if before.clock_s - counted_s >= STILL_S:
            # Single frames now and then are no beat.
            if more_bytes(before, now) >= LOOK_BYTES:
                self._look(now, keep_s)
        elif (
            self.looks
            and now.clock_s - self.looks[-1].clock_s <= LOOK_S + now.clock_s - before.clock_s
            and self._in_a_row == 0
        ):
            # The rest of the same look.
            self.looks[-1] = now
            self._in_a_row = 1
        else:
            self._in_a_row += 1
            if self._in_a_row >= LIVE_READINGS:
                self.late = False
                self.looks.clear()

    def _look(self, now: Total, keep_s: float) -> None:
        self._in_a_row = 0
        looks = self.looks
        if looks and now.clock_s - looks[-1].clock_s > LONGEST_BEAT_S:
            # Nothing was carried meanwhile: since when it is again, nobody knows.
            looks.clear()
        looks.append(now)
        if len(looks) > 1:
            self.late = True
        while len(looks) > 3 and looks[1].clock_s <= now.clock_s - keep_s:
            del looks[0]

    def has_looked(self, clock_s: float) -> bool:
        """Whether a look was just seen."""
        return bool(self.looks) and self.looks[-1].clock_s == clock_s

    def perhaps(self, before: Total, now: Total) -> Total | None:
        """What may have been a look: after `before`, or all that was counted since.

        Whether the next one is to come, nobody knows until it should have.
        """
        look = self.looks[-1] if self.looks else None
        if look is None or self.is_over(now.clock_s):
            return None
        return look if look.clock_s > before.clock_s or look[1:] == now[1:] else None

    def is_over(self, clock_s: float) -> bool:
        """Whether nothing was counted for so long that nothing is carried any more."""
        return not self.looks or clock_s - self.looks[-1].clock_s > LONGEST_BEAT_S

    def span(self, window_s: float, clock_s: float) -> tuple[Total, Total] | None:
        """The looks that a time ends and begins with, at least one beat; None: none are known."""
        last = bisect_right(self.looks, clock_s, key=_clock) - 1
        if last < 1:
            return None
        first = bisect_right(self.looks, self.looks[last].clock_s - window_s, key=_clock) - 1
        return self.looks[max(0, min(first, last - 1))], self.looks[last]


def more_bytes(before: Total, now: Total) -> float:
    """What was counted from one reading to another."""
    return now.tx_bytes - before.tx_bytes + now.rx_bytes - before.rx_bytes


def _clock(total: Total) -> float:
    return total.clock_s
