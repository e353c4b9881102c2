"""The peaks of loads: the highest rates of the last seconds, which rise fast and fall slowly."""

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
    """The highest rate of each unit in each direction within `PEAK_S`, by name."""

    # Units without an entry are unknown, or have carried nothing.
    _of: dict[str, Peak] = field(default_factory=dict)

    def note_peaks(self, units: Iterable[Unit], until_s: float, now_s: float) -> None:
        """Update the peaks with the current loads of units. Other units are forgotten.

        `until_s`: the time until which the last loads were carried.
        """
        before, self._of = self._of, {}
        for unit in units:
            known, load = before.get(unit.name), unit.own_load
            if known is None:
                if not (load.tx_bps or load.rx_bps):
                    continue
                known = Peak()
            if known.add(load, until_s, now_s - PEAK_S):
                self._of[unit.name] = known

    @property
    def falls_s(self) -> float:
        """The time at which a peak next falls if loads do not change; infinity: none will fall."""
        return forgotten_s(self._of.values(), PEAK_S)

    @property
    def units(self) -> Collection[str]:
        """The units that have a peak, by name."""
        return self._of.keys()

    def peak_of(self, unit: str) -> Load | None:
        """Return the peak of a unit; None if the unit is unknown, or has carried nothing."""
        known = self._of.get(unit)
        return known.load if known else None

    def drop(self, units: Iterable[str]) -> None:
        """Forget these units, because their earlier rates are no longer valid."""
        for unit in units:
            self._of.pop(unit, None)


@dataclass(slots=True)
class Peak:
    """The highest rates within a time, in each direction."""

    load: Load = IDLE
    # For sent traffic, and for received traffic.
    both: tuple[_Greatest, _Greatest] = field(default_factory=lambda: (_Greatest(), _Greatest()))

    def add(self, load: Load, until_s: float, oldest_s: float) -> bool:
        """Store the current rates, and forget those until `oldest_s`; return whether any is left.

        `until_s`: the time until which the last rates were carried.
        """
        sent, received = self.both
        tx_bps = sent.add(load.tx_bps, until_s, oldest_s)
        rx_bps = received.add(load.rx_bps, until_s, oldest_s)
        if tx_bps != self.load.tx_bps or rx_bps != self.load.rx_bps:
            self.load = Load(tx_bps, rx_bps)
        return bool(tx_bps or rx_bps)


@dataclass(slots=True)
class _Greatest:
    """The maximum over a sliding window.

    `past`: rates higher than the current one, each with the time until which it was carried. Rates
    before a later, higher rate are omitted.
    """

    now_bps: float = 0.0
    past: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, bps: float, until_s: float, oldest_s: float) -> float:
        """Store the current rate, forget those until `oldest_s`, and return the maximum."""
        past = self.past
        if bps < self.now_bps:
            past.append((until_s, self.now_bps))
        while past and past[-1][1] <= bps:
            past.pop()
        while past and past[0][0] <= oldest_s:
            past.popleft()
        self.now_bps = bps
        return past[0][1] if past else bps


def forgotten_s(peaks: Iterable[Peak], for_s: float) -> float:
    """Return when the first past rate will be `for_s` old; infinity if there are no past rates."""
    past = (of.past[0][0] for peak in peaks for of in peak.both if of.past)
    return min(past, default=math.inf) + for_s
