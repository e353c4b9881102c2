"""Loads that rise at once and fall slowly: the greatest rates of the last seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.model import Load, Unit

# A load that repeats within this time has a constant peak.
PEAK_S = 10.0


@dataclass(slots=True)
class Peaks:
    """The greatest rate of each unit in each direction within `PEAK_S`, by name."""

    # Units that are not here are unknown, or have carried nothing.
    _of: dict[str, tuple[_Greatest, _Greatest]] = field(default_factory=dict)

    def take(self, carried: Iterable[tuple[Unit, Load]], now_s: float) -> None:
        """Take what units carry now. Units that are not named are forgotten."""
        before, self._of = self._of, {}
        for unit, load in carried:
            known = before.get(unit.name)
            if known is None:
                if not (load.tx_bps or load.rx_bps):
                    continue
                known = _Greatest(), _Greatest()
            tx_bps, rx_bps = known[0].add(load.tx_bps, now_s), known[1].add(load.rx_bps, now_s)
            if tx_bps or rx_bps:
                self._of[unit.name] = known

    def of(self, unit: str) -> Load | None:
        """Return the peak of a unit; None if the unit is unknown, or has carried nothing."""
        known = self._of.get(unit)
        return Load(known[0].value, known[1].value) if known else None

    def next_fall_s(self) -> float:
        """When the peak of a unit falls next, if no load changes; infinity: none will fall."""
        firsts = (of.rates[0][0] for known in self._of.values() for of in known if of.lowers)
        return min(firsts, default=math.inf) + PEAK_S

    def hold(self, now_s: float) -> None:
        """Take the same loads as the last time again, until now. No peak may fall meanwhile."""
        for known in self._of.values():
            for greatest in known:
                greatest.hold(now_s)

    def drop(self, units: Iterable[str]) -> None:
        """Forget these units, because their earlier rates do not count."""
        for unit in units:
            self._of.pop(unit, None)

    def forget(self) -> None:
        self._of.clear()


@dataclass(slots=True)
class _Greatest:
    """The maximum over a sliding window. Rates that a later, greater one follows are left out."""

    rates: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, bps: float, now_s: float) -> float:
        """Take the present rate, and return the maximum."""
        rates = self.rates
        while rates and rates[-1][1] <= bps:
            rates.pop()
        rates.append((now_s, bps))
        while rates[0][0] <= now_s - PEAK_S:
            rates.popleft()
        return rates[0][1]

    def hold(self, now_s: float) -> None:
        """Take the last rate again."""
        self.rates[-1] = now_s, self.rates[-1][1]

    @property
    def lowers(self) -> bool:
        """Whether the maximum is above the present rate, and so lowers in time."""
        return len(self.rates) > 1

    @property
    def value(self) -> float:
        return self.rates[0][1]
