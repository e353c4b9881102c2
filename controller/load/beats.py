"""Recognizes late counters, which are updated only about twice a second.

The counters of a physical port are live. Open vSwitch counts the traffic of patch ports and flows
in its flow cache. About twice a second, its revalidators dump the cache, and add these counts to
the counters of patch ports and flows. This is an *update*. Between two updates, such a counter does
not change. Then it grows in one step by all traffic since the previous update. So a rate must be
computed from two updates, not from any two readings. Late counters are recognized by these steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

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


class Total(NamedTuple):
    """Bytes counted since the first sample, across wraps of the counters."""

    clock_s: float
    tx_bytes: float
    rx_bytes: float


@dataclass(slots=True)
class Beats:
    """The updates of one counter.

    `late`: whether the counter is late; None: not known yet. `updates`: the counter's total right
    after each update, oldest first. `stood_still`: the last reading in the last period of at least
    `STILL_S` in which the counter did not change, and the length of this period in seconds.
    """

    late: bool | None = None
    updates: list[Total] = field(default_factory=list)
    stood_still: tuple[Total, float] | None = None
    # When the counter last grew, or was first read.
    counted_s: float | None = None
    _in_a_row: int = 0

    def see(self, before: Total, now: Total, keep_s: float) -> None:
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

    def possible_update(self, before: Total, now: Total) -> Total | None:
        """Return the last update if it may contain the bytes between two readings; otherwise None.

        Until the next update is due, it is not known whether there will be one.
        """
        update = self.updates[-1] if self.updates else None
        if update is None or self.is_over(now.clock_s):
            return None
        return update if update.clock_s > before.clock_s or update[1:] == now[1:] else None

    def is_over(self, clock_s: float) -> bool:
        """Whether the counter has not changed for so long that there is no traffic."""
        return not self.updates or clock_s - self.updates[-1].clock_s > LONGEST_BEAT_S

    def span(self, window_s: float, clock_s: float) -> tuple[Total, Total] | None:
        """Return the first and the last update of a window that ends at `clock_s`.

        The window is at least one update interval long. None: there are fewer than two updates.
        """
        last = last_until(self.updates, clock_s)
        if last < 1:
            return None
        first = last_until(self.updates, self.updates[last].clock_s - window_s)
        return self.updates[max(0, min(first, last - 1))], self.updates[last]


def more_bytes(before: Total, now: Total) -> float:
    """Return the bytes, sent and received, between two readings."""
    return now.tx_bytes - before.tx_bytes + now.rx_bytes - before.rx_bytes


def last_until(totals: list[Total], clock_s: float) -> int:
    """Return the index of the last total at or before `clock_s`; -1: there is none."""
    # It is usually one of the last totals.
    for back in range(1, min(len(totals), 3) + 1):
        if totals[-back][0] <= clock_s:
            return len(totals) - back
    return bisect_right(totals, (clock_s, math.inf)) - 1
