"""The load phases of the last seconds: times in which the load of each unit stayed about the same.

Peaks show how much each unit can carry. They do not show that some units are idle while others are
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
# If there are more phases, loads change all the time, so it is unknown which are high together.
MOST_PHASES = 12
# Every move is checked against all units. If there are more units than this, no phases are kept.
MOST_UNITS = 512


@dataclass(slots=True)
class LoadPhase:
    """A phase: the loads of units, by name. Units without an entry carried nothing.

    `until_s`: when it ended; infinity: current loads belong to it.
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
class LoadPhases:
    """The phases of the last `PEAK_S`, oldest first.

    `begins_s`: when a phase begins if loads do not change, because current loads differ from the
    last phase; infinity: they do not differ.
    """

    _taken: deque[LoadPhase] = field(default_factory=deque)
    begins_s: float = math.inf

    def take_carried(
        self,
        carried: Iterable[tuple[Unit, Load]],
        capacity_bps: float,
        until_s: float,
        now_s: float,
    ) -> None:
        """Store the current loads of units. The last loads were carried until `until_s`.

        `capacity_bps`: the capacity of the smallest uplink.
        """
        taken = self._taken
        loads = {unit.name: load for unit, load in carried if load.tx_bps or load.rx_bps}
        last = taken[-1] if taken else None
        self.begins_s = math.inf
        if len(loads) > MOST_UNITS:
            taken.clear()
        elif last and last.is_like(loads, ALIKE_RATIO * capacity_bps):
            last.until_s = math.inf
        else:
            if last and last.until_s == math.inf:
                last.until_s = until_s
            if not last or now_s - last.begun_s >= EVERY_S:
                taken.append(LoadPhase(now_s, loads))
            else:
                self.begins_s = last.begun_s + EVERY_S
        while taken and taken[0].until_s <= now_s - PEAK_S:
            taken.popleft()

    @property
    def next_change_s(self) -> float:
        """The time of the next change of phases if loads stay the same; infinity: there is none."""
        forgotten_s = self._taken[0].until_s + PEAK_S if self._taken else math.inf
        return min(forgotten_s, self.begins_s)

    @property
    def is_known(self) -> bool:
        """Whether there are few enough phases to assume that loads only repeat them."""
        return 0 < len(self._taken) <= MOST_PHASES

    def __iter__(self) -> Iterator[Mapping[str, Load]]:
        return (phase.loads for phase in self._taken)
