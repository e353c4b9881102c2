"""The rate of broadcasts that arrive on all members of a LAG, so that VMs receive them twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Enough to distinguish frames that arrive on all uplinks from frames that a LAG's hash divides.
ENOUGH_TO_COMPARE, SAME_RATIO = 100, 0.01


def same_by_all(came: Mapping[str, int] | Mapping[int, int]) -> bool:
    """Whether each frame arrives on all uplinks. `came`: the number of frames on each uplink."""
    least, most = min(came.values(), default=0), max(came.values(), default=0)
    return len(came) > 1 and least >= ENOUGH_TO_COMPARE and most - least <= SAME_RATIO * most


@dataclass(slots=True)
class Repeated:
    """The repeated broadcasts of one bridge. `pps`: their rate in the last measured interval."""

    pps: float = 0.0
    _began: dict[int, int] = field(default_factory=dict)
    _began_s: float = 0.0

    def take_flooded(self, flooded: Mapping[int, int], now_s: float) -> None:
        """Store the number of flooded frames from each LAG member that is up, by ofport."""
        came = {ofport: count - self._began.get(ofport, 0) for ofport, count in flooded.items()}
        if came.keys() != self._began.keys() or min(came.values(), default=0) < 0:
            self.pps = 0.0
        elif max(came.values(), default=0) < ENOUGH_TO_COMPARE:
            return
        else:
            self.pps = min(came.values()) / (now_s - self._began_s) if same_by_all(came) else 0.0
        self._began, self._began_s = dict(flooded), now_s
