"""Detects how long an uplink has been full or nearly full, and whether loads still change.

Related loads do not start at exactly the same time. Counters that are read while some of these
loads start show only a part of the final load. So while an uplink is nearly full, counters are read
more often, and the load of VM ports is compared with the load at the last reading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.load.recent_loads import Peak, falls_s
from policies import failover, gain
from policies.model import IDLE, Load, Snapshot

# An uplink is full at this share of its capacity: it is about to lose frames.
FULL_RATIO = 0.95
# From this share on, counters are read more often.
READ_FAST_RATIO = 0.8
# The interval between such fast readings, and the longest time for which they last.
READ_EVERY_S = 0.025
READ_FAST_S = 1.0
# The shortest time between the beginnings of two such periods.
FAST_EVERY_S = 4.0
# Counters of bridges with more units are not read more often, because that would cost too much.
MOST_UNITS = 512
# Loads are steady while those of all VM ports together rise, from one reading to the next, by at
# most this share of the smallest uplink's capacity.
STEADY_RATIO = 0.06
# Related loads start within about this time of each other.
CHANGING_S = 0.3
# How long to wait for loads to become steady while an uplink is full. A queue of 300 kB in front of
# 100 Mbit/s takes 0.1 s to fill at 1.25 times that speed.
PATIENCE_S = 0.1
# A load that repeats within `recent_loads.PEAK_S` is usually high for less than this at a time.
LASTING_S = 3.0
# Traffic that belongs to no unit is its lowest rate in this time, so that queues do not count. The
# rate of exactly one second ago still counts.
UNEXPLAINED_S = 1.000_001

NEVER = -math.inf, -math.inf, -math.inf


@dataclass(slots=True)
class Filling:
    """The utilization of one bridge's uplinks, and the changes of its loads.

    `full_s`: the engine time since which an uplink has been full; None: no uplink is full.
    `high_s`: the same for a nearly full uplink (`gain.NEARLY_FULL_RATIO`). `steady`: whether loads
    were steady in the last reading. `taken_s`: when `note_unexplained` last stored traffic.
    """

    full_s: float | None = None
    high_s: float | None = None
    steady: bool = True
    # When loads were last found to change; and when loads with late counters were.
    _changed_s: float = -math.inf
    late_changed_s: float = -math.inf
    _fast_s: float | None = None
    _concerned: bool = False
    _worst_ratio: float = 0.0
    # The times of the last three readings of addresses behind VM ports.
    _addresses_s: tuple[float, float, float] = NEVER
    taken_s: float = -math.inf
    # The lowest traffic of each uplink outside all units, as the peak of its negative.
    _lowest: dict[str, Peak] = field(default_factory=dict)

    def see(self, snapshot: Snapshot, rise: Load, late_rise: Load, now_s: float) -> None:
        """Store the current loads.

        `rise`: the rise, since the last reading, of the loads of VM ports with live counters.
        `late_rise`: the additional rise of uplink loads, caused by VM ports whose counters lag.
        """
        serving = failover.in_service(snapshot.uplinks)
        worst_ratio = gain.worst_ratio(serving)
        self.full_s = _since_s(self.full_s, worst_ratio >= FULL_RATIO, now_s)
        self.high_s = _since_s(self.high_s, worst_ratio > gain.NEARLY_FULL_RATIO, now_s)
        least_bps = min((uplink.capacity_bps for uplink in serving), default=0.0)
        late = max(late_rise.tx_bps, late_rise.rx_bps) > STEADY_RATIO * least_bps
        self.steady = max(rise.tx_bps, rise.rx_bps) <= STEADY_RATIO * least_bps and not late
        if late:
            self.late_changed_s = now_s
        if not self.steady:
            self._changed_s = now_s
        rises = 2.0 * worst_ratio - self._worst_ratio >= FULL_RATIO
        self._worst_ratio = worst_ratio
        concerned = (worst_ratio >= READ_FAST_RATIO or rises) and not self.steady
        may_begin = self._fast_s is None or now_s - self._fast_s >= FAST_EVERY_S
        if concerned and may_begin and len(snapshot.units) <= MOST_UNITS:
            self._fast_s = now_s
        self._concerned = concerned

    def is_counted(self, at_s: float) -> bool:
        """Whether the loads that lagging counters measure have stayed the same since `at_s`."""
        return at_s >= self.late_changed_s

    def read_addresses(self, now_s: float) -> None:
        """Record that the counters of addresses behind VM ports have been read."""
        self._addresses_s = (*self._addresses_s[1:], now_s)

    def addresses_known(self, lag_s: float | None) -> bool:
        """Whether the counters of addresses were read after loads last changed.

        `lag_s`: the lag of the counters that were read; None: they are read whenever the switch has
        updated them.
        """
        if lag_s is None:
            # Between the first two readings, the switch has not counted everything.
            return self._addresses_s[0] > -math.inf
        began_s = self._addresses_s[1]
        return began_s > -math.inf and self.is_counted(began_s - lag_s)

    def changes(self, now_s: float) -> bool:
        """Whether loads have changed recently, so that further changes may follow."""
        return now_s - self._changed_s < CHANGING_S

    def reads_fast(self, now_s: float) -> bool:
        started_s = self._fast_s
        return self._concerned and started_s is not None and now_s - started_s < READ_FAST_S

    def is_urgent(self, now_s: float) -> bool:
        """Whether an uplink is full, and loads are steady or it has been full for `PATIENCE_S`."""
        if self.full_s is None:
            return False
        return self.steady or now_s - self.full_s >= PATIENCE_S

    def note_unexplained(self, unexplained: Mapping[str, Load], now_s: float) -> None:
        """Store traffic that belongs to no unit, by uplink. Call while no move is in progress."""
        before, self._lowest = self._lowest, {}
        for name, load in unexplained.items():
            lowest = self._lowest[name] = before.get(name) or Peak()
            lowest.add(IDLE - load, self.taken_s, now_s - UNEXPLAINED_S)
        self.taken_s = now_s

    def least_unexplained(self, uplinks: Iterable[str]) -> Mapping[str, Load]:
        """Return, by uplink, the lowest rate that `note_unexplained` stored in `UNEXPLAINED_S`."""
        lowest = ((name, self._lowest.get(name)) for name in uplinks)
        return {name: IDLE - known.load if known else IDLE for name, known in lowest}

    def next_change_s(self, now_s: float) -> float:
        """Return when this state next changes if loads stay the same; infinity if it does not change.

        `now_s`: when loads were last stored; also the result while the next change is unknown.
        """
        if self.reads_fast(now_s) or (self.full_s is not None and not self.steady):
            return now_s
        since_s = [at_s for at_s in (self.full_s, self.high_s) if at_s is not None]
        lasting_s = (at_s + LASTING_S for at_s in since_s if not lasts(at_s, now_s))
        # When earlier traffic is forgotten, the result of `least_unexplained` rises.
        return min([*lasting_s, falls_s(self._lowest.values(), UNEXPLAINED_S)])


def _since_s(since_s: float | None, is_so: bool, now_s: float) -> float | None:
    """Return since when a condition has held; None if it does not. `since_s`: the last result."""
    if not is_so:
        return None
    return now_s if since_s is None else since_s


def lasts(since_s: float | None, now_s: float) -> bool:
    """Whether an uplink has been full, or nearly full, for longer than bursts usually last."""
    return since_s is not None and now_s - since_s >= LASTING_S
