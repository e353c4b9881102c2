"""An uplink that fills up: since when, who sends, and whether that still changes.

Loads do not all start at one moment, and counters that were read while some start tell half of what
is to come. So while an uplink is nearly full, counters are read faster, and what a VM port carries
now is compared with what it carried a moment before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from policies import failover
from policies.model import Load, Snapshot

# Of capacity: an uplink that offers or carries so much is about to lose frames.
FULL_RATIO = 0.95
# From here on it is worth reading faster.
NEARLY_FULL_RATIO = 0.8
# How often counters are read meanwhile, and for how long at most.
READ_EVERY_S = 0.025
READ_FAST_S = 1.0
# And how long after the beginning of such a time the next one may begin.
REST_S = 4.0
# And only of bridges of which that is cheap.
MOST_UNITS = 512
# Of the smallest uplink's capacity: what all VM ports together may have begun to carry from one
# reading to the next where loads are steady.
STEADY_RATIO = 0.06
# Loads that belong together start within about this time.
CHANGING_S = 0.3
# Loads that do not become steady are not waited for any longer. A queue of 300 kB in front of
# 100 Mbit/s takes 0.1 s to fill at 1.25 times that speed.
PATIENCE_S = 0.1
# A load that repeats itself within `peaks.PEAK_S` is high for less at a time, as a rule.
LASTING_S = 3.0
# What uplinks carry beside their units is the least of so long: queues that empty are none of it.
BESIDE_S = 1.0


@dataclass(slots=True)
class Filling:
    """Of one bridge. `full_s`: since when an uplink is full; None: none is."""

    full_s: float | None = None
    steady: bool = True
    # When loads were last seen to change.
    _changed_s: float = -math.inf
    _late_changed_s: float = -math.inf
    _fast_s: float | None = None
    _concerned: bool = False
    _worst_ratio: float = 0.0
    _beside: deque[tuple[float, Mapping[str, Load]]] = field(default_factory=deque)

    def see(self, snapshot: Snapshot, rise: Load, late_rise: Load, now_s: float) -> None:
        """Take a reading of this moment.

        `rise`: by how much more VM ports carry than a reading ago. `late_rise`: by how much more
        uplinks do that is not theirs, but of what is counted late.
        """
        serving = failover.in_service(snapshot.uplinks)
        worst_ratio = max((u.utilization_ratio for u in serving), default=0.0)
        if worst_ratio < FULL_RATIO:
            self.full_s = None
        elif self.full_s is None:
            self.full_s = now_s
        least_bps = min((u.capacity_bps for u in serving), default=0.0)
        late = max(late_rise.tx_bps, late_rise.rx_bps) > STEADY_RATIO * least_bps
        self.steady = max(rise.tx_bps, rise.rx_bps) <= STEADY_RATIO * least_bps and not late
        if late:
            self._late_changed_s = now_s
        if not self.steady:
            self._changed_s = now_s
        rises = 2.0 * worst_ratio - self._worst_ratio >= FULL_RATIO
        self._worst_ratio = worst_ratio
        concerned = (worst_ratio >= NEARLY_FULL_RATIO or rises) and not self.steady
        rested = self._fast_s is None or now_s - self._fast_s >= REST_S
        if concerned and rested and len(snapshot.units) <= MOST_UNITS:
            self._fast_s = now_s
        self._concerned = concerned

    def is_counted(self, at_s: float) -> bool:
        """Whether what is counted late has not changed since then."""
        return at_s >= self._late_changed_s

    def changes(self, now_s: float) -> bool:
        """Whether loads have changed lately, and others may follow."""
        return now_s - self._changed_s < CHANGING_S

    def lasts(self, now_s: float) -> bool:
        """Whether an uplink has been full for longer than a burst of a load that comes and goes."""
        return self.full_s is not None and now_s - self.full_s >= LASTING_S

    def reads_fast(self, now_s: float) -> bool:
        started_s = self._fast_s
        return self._concerned and started_s is not None and now_s - started_s < READ_FAST_S

    def waits(self, now_s: float) -> bool:
        """Whether the next reading may be judged otherwise, though loads stay."""
        return self.reads_fast(now_s) or (self.full_s is not None and not self.lasts(now_s))

    def is_urgent(self, now_s: float) -> bool:
        """Whether an uplink is full, and it is known by whom or has lasted long enough."""
        if self.full_s is None:
            return False
        return self.steady or now_s - self.full_s >= PATIENCE_S

    def take_beside(self, beside: Mapping[str, Load], now_s: float) -> None:
        """What uplinks carry beside their units, at a moment when nothing moves."""
        self._beside.append((now_s, beside))
        while self._beside[0][0] < now_s - BESIDE_S:
            self._beside.popleft()

    def beside(self, uplink: str) -> Load:
        found = [of.get(uplink, Load()) for _, of in self._beside]
        if not found:
            return Load()
        return Load(min(load.tx_bps for load in found), min(load.rx_bps for load in found))

    def forget(self) -> None:
        self.full_s = self._fast_s = None
        self.steady = True
        self._beside.clear()
