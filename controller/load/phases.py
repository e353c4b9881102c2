"""What units carried at moments of the last seconds, one after another.

Peaks tell how much each unit may carry. They do not tell that some units rest while others are
busy: a placement may have room for all peaks nowhere, and for each phase everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.load.peaks import PEAK_S
from policies.model import IDLE, Load, Unit

# Loads that are not alike begin a phase, but not more often than that.
EVERY_S = 0.5
# Of the smallest uplink's capacity: by so much a unit's loads may differ that are alike.
ALIKE_RATIO = 0.05
# Loads with more phases come and go all the time: what will be busy at once is not known.
MOST_PHASES = 12
# All units are gone through for a move: of more than that none are remembered.
MOST_UNITS = 512


@dataclass(slots=True)
class Phase:
    """What units carried, by name, as long as that was alike; who is not named carried nothing."""

    begun_s: float
    last_s: float
    loads: Mapping[str, Load]

    def is_like(self, loads: Mapping[str, Load], most_bps: float) -> bool:
        """Whether no unit carries now so much more or less than it carried then."""
        names = loads.keys() | self.loads.keys()
        pairs = ((loads.get(name, IDLE), self.loads.get(name, IDLE)) for name in names)
        return all(
            abs(now.tx_bps - then.tx_bps) <= most_bps and abs(now.rx_bps - then.rx_bps) <= most_bps
            for now, then in pairs
        )


@dataclass(slots=True)
class Phases:
    """The phases of the last `PEAK_S`, oldest first."""

    _taken: deque[Phase] = field(default_factory=deque)

    def take(self, carried: Iterable[tuple[Unit, Load]], capacity_bps: float, now_s: float) -> None:
        """Take what units carry now. `capacity_bps`: the smallest uplink's."""
        taken = self._taken
        while taken and taken[0].last_s <= now_s - PEAK_S:
            taken.popleft()
        loads = {unit.name: load for unit, load in carried if load.tx_bps or load.rx_bps}
        if len(loads) > MOST_UNITS:
            taken.clear()
        elif taken and taken[-1].is_like(loads, ALIKE_RATIO * capacity_bps):
            taken[-1].last_s = now_s
        elif not taken or now_s - taken[-1].begun_s >= EVERY_S:
            taken.append(Phase(now_s, now_s, loads))

    @property
    def is_known(self) -> bool:
        """Whether there are so few that others are not to be expected."""
        return 0 < len(self._taken) <= MOST_PHASES

    @property
    def ends_s(self) -> float:
        """When the oldest is forgotten, if loads stay; infinity: there is none but that of now."""
        return self._taken[0].last_s + PEAK_S if len(self._taken) > 1 else float("inf")

    def __iter__(self) -> Iterator[Mapping[str, Load]]:
        return (phase.loads for phase in self._taken)

    def forget(self) -> None:
        """Know nothing."""
        self._taken.clear()
