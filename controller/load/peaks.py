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

    # Of a unit that is not here, nothing is known, or that it carried nothing.
    _of: dict[str, tuple[_Greatest, _Greatest]] = field(default_factory=dict)

    def take(self, carried: Iterable[tuple[Unit, Load]], now_s: float) -> None:
        """Add what units carry now; those that are not named are forgotten."""
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
        """None for a unit that is not known, or has carried nothing."""
        known = self._of.get(unit)
        return Load(known[0].value, known[1].value) if known else None

    def drop(self, units: Iterable[str]) -> None:
        """Forget these: what they carry is something else now."""
        for unit in units:
            self._of.pop(unit, None)

    def forget(self) -> None:
        self._of.clear()

    @property
    def falls_s(self) -> float:
        """When one of them may be less next, if loads stay; infinity: none will."""
        all_of = (greatest for known in self._of.values() for greatest in known)
        return min((greatest.falls_s for greatest in all_of), default=float("inf"))


@dataclass(slots=True)
class _Greatest:
    """The maximum over a sliding window: what is followed by something greater is left out."""

    _rates: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, bps: float, now_s: float) -> float:
        """Take what is now; the maximum."""
        rates = self._rates
        while rates and rates[-1][1] <= bps:
            rates.pop()
        rates.append((now_s, bps))
        while rates[0][0] <= now_s - PEAK_S:
            rates.popleft()
        return rates[0][1]

    @property
    def value(self) -> float:
        return self._rates[0][1]

    @property
    def falls_s(self) -> float:
        return self._rates[0][0] + PEAK_S if len(self._rates) > 1 else float("inf")
