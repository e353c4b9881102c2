"""Loads that rise at once and fall slowly: the greatest rates of the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.model import Load, Unit

# A load that repeats itself within that has a constant peak.
PEAK_S = 10.0


@dataclass(slots=True)
class Peaks:
    """Of each unit, by name, the greatest rate in each direction within `PEAK_S`."""

    _tx_bps: dict[str, _Greatest] = field(default_factory=dict)
    _rx_bps: dict[str, _Greatest] = field(default_factory=dict)

    def take(self, carried: Iterable[tuple[Unit, Load]], now_s: float) -> None:
        """Add what units carry now; those that are not named are forgotten."""
        tx_bps, rx_bps = self._tx_bps, self._rx_bps
        self._tx_bps, self._rx_bps = {}, {}
        for unit, load in carried:
            name = unit.name
            self._tx_bps[name] = tx_bps.get(name) or _Greatest()
            self._rx_bps[name] = rx_bps.get(name) or _Greatest()
            self._tx_bps[name].add(load.tx_bps, now_s)
            self._rx_bps[name].add(load.rx_bps, now_s)

    def of(self, unit: str) -> Load | None:
        """None for a unit that is not known yet."""
        if unit not in self._tx_bps:
            return None
        return Load(self._tx_bps[unit].value, self._rx_bps[unit].value)

    def drop(self, units: Iterable[str]) -> None:
        """Forget these: what they carry is something else now."""
        for unit in units:
            self._tx_bps.pop(unit, None)
            self._rx_bps.pop(unit, None)

    def forget(self) -> None:
        self._tx_bps.clear()
        self._rx_bps.clear()

    def falls_s(self, least_bps: float) -> float:
        """When one of them may be less by so much next, if loads stay; infinity: none will."""
        all_of = (*self._tx_bps.values(), *self._rx_bps.values())
        return min((g.falls_s(least_bps) for g in all_of), default=float("inf"))


@dataclass(slots=True)
class _Greatest:
    """The maximum over a sliding window: what is followed by something greater is left out."""

    _rates: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, bps: float, now_s: float) -> None:
        while self._rates and self._rates[-1][1] <= bps:
            self._rates.pop()
        self._rates.append((now_s, bps))
        while self._rates[0][0] <= now_s - PEAK_S:
            self._rates.popleft()

    @property
    def value(self) -> float:
        return self._rates[0][1]

    def falls_s(self, least_bps: float) -> float:
        value, last_s = self.value, self._rates[-1][0]
        for at_s, bps in reversed(self._rates):
            if value - bps < least_bps:
                return at_s + PEAK_S if at_s < last_s else float("inf")
        return float("inf")
