"""The load phases of the last seconds: times in which the load of each unit stayed about the same.

Peaks show how much each unit may carry. They do not show that some units are idle while others are
busy. A placement may lack room for all peaks at once, and still have room in every phase.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.load.peaks import PEAK_S
from policies.model import IDLE, Load, Unit

# A phase begins when loads change, but not more often than this.
EVERY_S = 0.5
# Loads of a unit that differ by at most this share of the smallest uplink's capacity are alike.
ALIKE_RATIO = 0.05
# If there are more phases, loads change all the time, and nobody knows which will be high together.
MOST_PHASES = 12
# Every move is checked against all units. If there are more units than this, no phases are kept.
MOST_UNITS = 512


@dataclass(slots=True)
class LoadPhase:
    """A phase: what units carried, by name. Units that are not named carried nothing."""

    begun_s: float
    last_s: float
    loads: Mapping[str, Load]

    def is_like(self, loads: Mapping[str, Load], most_bps: float) -> bool:
        """Whether the load of each unit differs from that in the phase by at most `most_bps`."""
        names = loads.keys() | self.loads.keys()
        pairs = ((loads.get(name, IDLE), self.loads.get(name, IDLE)) for name in names)
        return all(
            abs(now.tx_bps - then.tx_bps) <= most_bps and abs(now.rx_bps - then.rx_bps) <= most_bps
            for now, then in pairs
        )


@dataclass(slots=True)
class LoadPhases:
    """The phases of the last `PEAK_S`, oldest first."""

    _taken: deque[LoadPhase] = field(default_factory=deque)
    # When a phase begins, because present loads are not those of the last one; infinity: they are.
    _begins_s: float = math.inf

    def take_carried(
        self, carried: Iterable[tuple[Unit, Load]], capacity_bps: float, now_s: float
    ) -> None:
        """Take what units carry now. `capacity_bps`: the capacity of the smallest uplink."""
        taken = self._taken
        self._forget_before(now_s - PEAK_S)
        loads = {unit.name: load for unit, load in carried if load.tx_bps or load.rx_bps}
        self._begins_s = math.inf
        if len(loads) > MOST_UNITS:
            taken.clear()
        elif taken and taken[-1].is_like(loads, ALIKE_RATIO * capacity_bps):
            taken[-1].last_s = now_s
        elif not taken or now_s - taken[-1].begun_s >= EVERY_S:
            taken.append(LoadPhase(now_s, now_s, loads))
        else:
            self._begins_s = taken[-1].begun_s + EVERY_S

    def _forget_before(self, at_s: float) -> None:
        while self._taken and self._taken[0].last_s <= at_s:
            self._taken.popleft()

    @property
    def begins_s(self) -> float:
        """When a phase begins, if no load changes; infinity: none does."""
        return self._begins_s

    @property
    def next_change_s(self) -> float:
        """When other phases are remembered than now, if no load changes; infinity: time changes none.

        Until then, only the present phase gets longer.
        """
        forgotten_s = self._taken[0].last_s + PEAK_S if len(self._taken) > 1 else math.inf
        return min(forgotten_s, self._begins_s)

    def hold_phases(self, now_s: float) -> None:
        """Take the same loads as the last time again, until now: the present phase goes on.

        No phase may begin meanwhile (`begins_s`).
        """
        if self._taken and self._begins_s == math.inf:
            self._taken[-1].last_s = now_s
        self._forget_before(now_s - PEAK_S)

    @property
    def is_known(self) -> bool:
        """Whether there are so few phases that no others have to be expected."""
        return 0 < len(self._taken) <= MOST_PHASES

    def __iter__(self) -> Iterator[Mapping[str, Load]]:
        return (phase.loads for phase in self._taken)

    def forget_phases(self) -> None:
        """Forget all phases."""
        self._taken.clear()
        self._begins_s = math.inf
