"""Loads that rise at once and fall slowly: the greatest rates of the last seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from policies.model import IDLE, Load, Unit

# A load that repeats within this time has a constant peak.
PEAK_S = 10.0


@dataclass(slots=True)
class Peaks:
    """The greatest rate of each unit in each direction within `PEAK_S`, by name."""

    # Units that are not here are unknown, or have carried nothing.
    _of: dict[str, _Peak] = field(default_factory=dict)
    # When a peak falls next; infinity: none will.
    _falls_s: float = math.inf
    # Until when the same loads were taken again.
    _held_s: float | None = None

    def note_peaks(self, carried: Iterable[tuple[Unit, Load]], now_s: float) -> None:
        """Take what units carry now. Units that are not named are forgotten."""
        self._take_held()
        before, self._of = self._of, {}
        for unit, load in carried:
            known = before.get(unit.name)
            if known is None:
                if not (load.tx_bps or load.rx_bps):
                    continue
                known = _Peak()
            if known.add(load, now_s):
                self._of[unit.name] = known
        self._falls_s = self._next_fall_s()

    def _next_fall_s(self) -> float:
        lowering = [peak.first_s for peak in self._of.values() if peak.lowers]
        return min(lowering, default=math.inf) + PEAK_S

    @property
    def units(self) -> Collection[str]:
        """The units that have a peak, by name."""
        return self._of.keys()

    def peak_of(self, unit: str) -> Load | None:
        """Return the peak of a unit; None if the unit is unknown, or has carried nothing."""
        known = self._of.get(unit)
        return known.load if known else None

    def next_fall_s(self) -> float:
        """When the peak of a unit falls next, if no load changes; infinity: none will fall.

        It may be earlier if units were dropped meanwhile.
        """
        return self._falls_s

    def hold_peaks(self, now_s: float) -> None:
        """Take the same loads as the last time again, until now."""
        self._held_s = now_s
        if now_s >= self._falls_s:
            self._take_held()
            self._of = {name: known for name, known in self._of.items() if known.lower(now_s)}
            self._falls_s = self._next_fall_s()

    def _take_held(self) -> None:
        if self._held_s is not None:
            for known in self._of.values():
                known.hold(self._held_s)
            self._held_s = None

    def drop(self, units: Iterable[str]) -> None:
        """Forget these units, because their earlier rates do not count."""
        for unit in units:
            self._of.pop(unit, None)

    def forget_peaks(self) -> None:
        self._of.clear()
        self._falls_s, self._held_s = math.inf, None


@dataclass(slots=True)
class _Peak:
    """The peak of one unit."""

    load: Load = IDLE
    _tx: _Greatest = field(default_factory=lambda: _Greatest())
    _rx: _Greatest = field(default_factory=lambda: _Greatest())

    def add(self, load: Load, now_s: float) -> bool:
        """Take the present load, and return whether the unit has carried anything."""
        tx_bps, rx_bps = self._tx.add(load.tx_bps, now_s), self._rx.add(load.rx_bps, now_s)
        if tx_bps != self.load.tx_bps or rx_bps != self.load.rx_bps:
            self.load = Load(tx_bps, rx_bps)
        return bool(tx_bps or rx_bps)

    def hold(self, now_s: float) -> None:
        self._tx.hold(now_s)
        self._rx.hold(now_s)

    def lower(self, now_s: float) -> bool:
        """Forget loads that are too long ago, and return whether the unit has carried anything."""
        return self.add(Load(self._tx.last_bps, self._rx.last_bps), now_s)

    @property
    def lowers(self) -> bool:
        """Whether the peak is above the present load, and so lowers in time."""
        return self._tx.lowers or self._rx.lowers

    @property
    def first_s(self) -> float:
        """When the first of its loads was taken that lowers."""
        return min(of.rates[0][0] for of in (self._tx, self._rx) if of.lowers)


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
        self.rates[-1] = now_s, self.last_bps

    @property
    def last_bps(self) -> float:
        """The rate that was taken last."""
        return self.rates[-1][1]

    @property
    def lowers(self) -> bool:
        """Whether the maximum is above the present rate, and so lowers in time."""
        return len(self.rates) > 1
