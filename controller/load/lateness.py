"""Measures how late the switch counts flows, by comparing flow counters with uplink counters.

The counters of uplinks are live. Flow counters are updated when revalidators dump the flow cache,
usually twice a second. A busy switch updates them less often. Then no flow counter changes while
uplinks carry traffic, and all catch up in one step. The load of a unit is known only between two
updates of flow counters. A window that begins or ends between two updates would show too little of
the load, or too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.load.rates import UPDATE_BYTES, Total, more_bytes

# Flows that are counted no later than this are on time.
ON_TIME_S = 1.0
# Flows without counter changes for longer than this count as idle; uplinks carry other traffic.
MOST_LATE_S = 10.0
# Flow counters count as unchanged if they grow by less than this share of the uplinks' traffic.
# Even then, new flows are counted once.
STILL_RATIO = 0.2
# Flow counters have caught up when they have grown by at least this share of the uplinks' traffic
# since their last update.
MADE_UP_RATIO = 0.5
# Polls are never exactly on time.
JITTER_S = 0.05


@dataclass(slots=True)
class Lateness:
    """How far one bridge's flow counters lag. Times are counted back from the last reading of flows."""

    _now_s: float = 0.0
    # When flow counters were last updated, and the bytes of uplinks and flow counters since then.
    _counted_s: float = 0.0
    _carried_bytes: float = 0.0
    _counted_bytes: float = 0.0
    # The beginnings and ends of the times when flow counters did not change before they caught up.
    _gaps: list[tuple[float, float]] = field(default_factory=list)
    _every_s: float = 0.0
    _uplinks: Mapping[int, Total] = field(default_factory=dict)

    def take_reading(
        self, uplinks: Mapping[int, Total], counted_bytes: float, keep_s: float
    ) -> None:
        """Store the totals of uplinks, and the bytes that flows counted since the last reading."""
        before, self._uplinks = self._uplinks, uplinks
        pairs = [(before[of], now) for of, now in uplinks.items() if of in before]
        seconds = max((now.clock_s - was.clock_s for was, now in pairs), default=0.0)
        if seconds <= 0.0:
            return
        carried_bytes = sum(max(0.0, more_bytes(was, now)) for was, now in pairs)
        self._now_s += seconds
        self._every_s = seconds
        self._carried_bytes += carried_bytes
        self._counted_bytes += counted_bytes
        if self._carried_bytes < UPDATE_BYTES or counted_bytes > STILL_RATIO * carried_bytes:
            self._count_on()
        while self._gaps and self._gaps[0][1] < self._now_s - keep_s:
            del self._gaps[0]

    def _count_on(self) -> None:
        stood_s = self._now_s - self._counted_s
        made_up = self._counted_bytes >= MADE_UP_RATIO * self._carried_bytes
        longer = stood_s > max(ON_TIME_S, 2 * self._every_s) + JITTER_S
        if longer and stood_s <= MOST_LATE_S and made_up and self._carried_bytes >= UPDATE_BYTES:
            self._gaps.append((self._counted_s, self._now_s))
        self._counted_s = self._now_s
        self._carried_bytes = self._counted_bytes = 0.0

    @property
    def more_s(self) -> float:
        """The additional time, in seconds, that counters must be kept because flow counters lag."""
        still_s = min(self._now_s - self._counted_s, MOST_LATE_S)
        return still_s + sum(end_s - begin_s for begin_s, end_s in self._gaps)

    @property
    def uncounted_s(self) -> float:
        """The time for which the switch has not counted flows, in seconds; 0 if flows are on time."""
        still_s = self._now_s - self._counted_s
        return still_s if still_s > ON_TIME_S else 0.0

    def times(self, window_s: float) -> tuple[float, float] | None:
        """Return the length of the latest window with known unit loads, and the time since its end.

        Both are in seconds. The length is at least `window_s`. All traffic of uplinks until one
        second before the end has been counted. None: there is no such window.
        """
        still_s = self._now_s - self._counted_s
        if not self._gaps and still_s <= ON_TIME_S:
            return window_s, 0.0
        end_s = self._now_s
        if still_s > MOST_LATE_S:
            return (window_s, 0.0) if still_s > window_s + ON_TIME_S else None
        if still_s > max(ON_TIME_S, self._every_s) + JITTER_S:
            end_s = self._counted_s
        elif self._gaps and self._gaps[-1][1] == self._now_s:
            # The switch may not have updated all flows yet.
            end_s = self._gaps[-1][0]
        begin_s = end_s - window_s
        for gap_begin_s, gap_end_s in reversed(self._gaps):
            if gap_begin_s < begin_s < gap_end_s + ON_TIME_S:
                begin_s = gap_begin_s
        return end_s - begin_s, self._now_s - end_s
