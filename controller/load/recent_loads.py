"""The loads of units in the last seconds: their peaks, and the phases in which loads stay the same.

Peaks show how much each unit can carry. They do not show that some units are idle while others are
busy. A placement may lack room for all peaks at once, and still have room in every phase.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from policies.model import IDLE, Load, Unit

# A load that repeats within this time has a constant peak.
PEAK_S = 10.0
# A phase begins when loads change, but not more often than this.
EVERY_S = 0.5
# Loads of a unit that differ by at most this share of the smallest uplink's capacity are alike.
ALIKE_RATIO = 0.05
# If there are more phases, loads change all the time, so it is unknown which are high together.
MOST_PHASES = 12
# Every move is checked against all units. If there are more units than this, no phases are kept.
MOST_UNITS = 512


@dataclass(slots=True)
class RecentLoads:
    """The highest rate of each unit in each direction within `PEAK_S`, and the phases in that time."""

    # By name. Units without an entry are unknown, or have carried nothing.
    _peaks: dict[str, Peak] = field(default_factory=dict)
    # Oldest first.
    _phases: deque[LoadPhase] = field(default_factory=deque)

    def note_loads(
        self, units: Iterable[Unit], capacity_bps: float, until_s: float, now_s: float
    ) -> None:
        """Store the current loads of units, and forget other units.

        `capacity_bps`: the capacity of the slowest uplink. `until_s`: the time until which the
        previous loads were carried.
        """
        before, self._peaks = self._peaks, {}
        loads = {}
        for unit in units:
            name, load = unit.name, unit.own_load
            known = before.get(name)
            if load.tx_bps or load.rx_bps:
                loads[name] = load
                known = known or Peak()
            if known is not None and known.add(load, until_s, now_s - PEAK_S):
                self._peaks[name] = known
        self._note_phase(loads, ALIKE_RATIO * capacity_bps, until_s, now_s)

    def _note_phase(
        self, loads: Mapping[str, Load], alike_bps: float, until_s: float, now_s: float
    ) -> None:
        phases = self._phases
        last = phases[-1] if phases else None
        if len(loads) > MOST_UNITS:
            phases.clear()
        elif last and last.is_like(loads, alike_bps):
            last.until_s = math.inf
        else:
            if last and last.until_s == math.inf:
                last.until_s = until_s
            if not last or now_s - last.begun_s >= EVERY_S:
                phases.append(LoadPhase(now_s, loads))
        while phases and phases[0].until_s <= now_s - PEAK_S:
            phases.popleft()

    @property
    def begins_s(self) -> float:
        """When the current loads begin a new phase if they stay the same; infinity: never."""
        ended = self._phases and self._phases[-1].until_s < math.inf
        return self._phases[-1].begun_s + EVERY_S if ended else math.inf

    @property
    def next_change_s(self) -> float:
        """When a peak next falls or the phases next change, if loads stay the same; infinity if never."""
        forgotten_s = self._phases[0].until_s + PEAK_S if self._phases else math.inf
        return min(forgotten_s, self.begins_s, falls_s(self._peaks.values(), PEAK_S))

    def peaks(self) -> dict[str, Load]:
        """Return the peaks of units. Units without an entry are unknown, or have carried nothing."""
        return {name: known.load for name, known in self._peaks.items()}

    def drop_peaks(self, units: Iterable[str]) -> None:
        """Forget the peaks of these units, because their earlier rates are no longer valid."""
        for unit in units:
            self._peaks.pop(unit, None)

    def phases(self) -> list[Mapping[str, Load]]:
        """Return the loads of units in each phase, by name. Units without an entry carried nothing.

        The list is empty if there are no phases, or too many (more than `MOST_PHASES`).
        """
        return [of.loads for of in self._phases] if len(self._phases) <= MOST_PHASES else []


@dataclass(slots=True)
class LoadPhase:
    """A phase: the loads of units, by name. Units without an entry carried nothing.

    `until_s`: when the phase ended; infinity: it is the current phase.
    """

    begun_s: float
    loads: Mapping[str, Load]
    until_s: float = math.inf

    def is_like(self, loads: Mapping[str, Load], most_bps: float) -> bool:
        """Whether each unit's load differs from its load in this phase by at most `most_bps`."""
        names = loads.keys() | self.loads.keys()
        pairs = ((loads.get(name, IDLE), self.loads.get(name, IDLE)) for name in names)
        return all(
            abs(now.tx_bps - then.tx_bps) <= most_bps and abs(now.rx_bps - then.rx_bps) <= most_bps
            for now, then in pairs
        )


@dataclass(slots=True)
class Peak:
    """The highest rates in each direction within a sliding window."""

    load: Load = IDLE
    # For sent traffic, and for received traffic.
    both: tuple[_Greatest, _Greatest] = field(default_factory=lambda: (_Greatest(), _Greatest()))

    def add(self, load: Load, until_s: float, oldest_s: float) -> bool:
        """Store the current rates, forget those that ended by `oldest_s`; return whether any is above 0.

        `until_s`: the time until which the previous rates were carried.
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


def falls_s(peaks: Iterable[Peak], for_s: float) -> float:
    """Return when the oldest past rate will be `for_s` old; infinity if there are no past rates."""
    past = (of.past[0][0] for peak in peaks for of in peak.both if of.past)
    return min(past, default=math.inf) + for_s
