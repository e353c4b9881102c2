"""How late the switch counts flows, told by what uplinks carry meanwhile.

Uplinks are counted as they forward, flows when the switch looks through its flow cache: half a
second later, as a rule. One that is busy looks less often. Then the counters of all flows stand
still while uplinks carry, and make up for it at once: what a unit carried is known from one of these
moments to another, and a time that begins or ends in between tells too little of it, or too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.load.beats import LOOK_BYTES, Total

# As late as that flows always may be.
ON_TIME_S = 1.0
# Who stands still for longer than that carries nothing, as far as anybody knows; what uplinks
# carry is others'.
MOST_LATE_S = 10.0
# Counters that stand still tell of less than that of what uplinks carry: new flows are counted once.
STILL_RATIO = 0.2
# What makes up for a standstill tells of so much of what was carried meanwhile.
MADE_UP_RATIO = 0.5
# Polls are never quite on time.
JITTER_S = 0.05


@dataclass(slots=True)
class Lateness:
    """Of one bridge; times are of a clock of its own, which goes on with each reading of flows."""

    _now_s: float = 0.0
    # Up to then flows have been counted; what uplinks carried and flows counted since.
    _counted_s: float = 0.0
    _carried_bytes: float = 0.0
    _counted_bytes: float = 0
    # From when to when flows stood still, and then made up for it.
    _gaps: list[tuple[float, float]] = field(default_factory=list)
    _every_s: float = 0.0
    _uplinks: Mapping[int, Total] = field(default_factory=dict)

    def take(self, uplinks: Mapping[int, Total], counted_bytes: float, keep_s: float) -> None:
        """A reading: what uplinks have carried so far, and what flows counted since the last."""
        before, self._uplinks = self._uplinks, uplinks
        pairs = [(before[of], now) for of, now in uplinks.items() if of in before]
        seconds = max((now.clock_s - was.clock_s for was, now in pairs), default=0.0)
        if seconds <= 0.0:
            return
        carried_bytes = sum(max(0, sum(now[1:]) - sum(was[1:])) for was, now in pairs)
        self._now_s += seconds
        self._every_s = seconds
        self._carried_bytes += carried_bytes
        self._counted_bytes += counted_bytes
        if self._carried_bytes < LOOK_BYTES or counted_bytes > STILL_RATIO * carried_bytes:
            self._count_on()
        while self._gaps and self._gaps[0][1] < self._now_s - keep_s:
            del self._gaps[0]

    def _count_on(self) -> None:
        stood_s = self._now_s - self._counted_s
        made_up = self._counted_bytes >= MADE_UP_RATIO * self._carried_bytes
        longer = stood_s > max(ON_TIME_S, 2 * self._every_s) + JITTER_S
        if longer and stood_s <= MOST_LATE_S and made_up and self._carried_bytes >= LOOK_BYTES:
            self._gaps.append((self._counted_s, self._now_s))
        self._counted_s = self._now_s
        self._carried_bytes = self._counted_bytes = 0

    @property
    def more_s(self) -> float:
        """For how much longer than on time counters are to be remembered."""
        still_s = min(self._now_s - self._counted_s, MOST_LATE_S)
        return still_s + sum(end_s - begin_s for begin_s, end_s in self._gaps)

    def times(self, window_s: float) -> tuple[float, float] | None:
        """How long the latest time is over which units are known, and how long ago it ended.

        At least a window; None: none is known. All that uplinks carried before the last second of
        it has been counted.
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
            # Some flows may be looked at next.
            end_s = self._gaps[-1][0]
        begin_s = end_s - window_s
        for gap_begin_s, gap_end_s in reversed(self._gaps):
            if gap_begin_s < begin_s < gap_end_s + ON_TIME_S:
                begin_s = gap_begin_s
        return end_s - begin_s, self._now_s - end_s
