"""The phases of a load-based run, as in the published figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.compare.samples import Utilization, mean_utilization


@dataclass(frozen=True, slots=True)
class Phase:
    """A span of the load (seconds since its start) and the uplinks' mean utilization in it."""

    name: str
    start_s: float
    end_s: float
    uplink_utilization: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "start_s": round(self.start_s, 3),
            "end_s": round(self.end_s, 3),
            "uplink_utilization": {u: round(r, 4) for u, r in self.uplink_utilization.items()},
        }


def cut(
    moves_s: Sequence[float], ramp_end_s: float, load_end_s: float, intervals: list[Utilization]
) -> list[Phase]:
    """Divide a run into phases, which begin at 0, at move 1, at move 2, and after the ramp.

    A phase is absent if its move did not happen. If a move was late, the phases are out of order.
    """
    begins = {"phase 1": 0.0}
    for number, at_s in enumerate(moves_s[:2], start=2):
        begins[f"phase {number}"] = at_s
    begins["phase 4"] = ramp_end_s
    ends = [*list(begins.values())[1:], load_end_s]
    return [
        Phase(name, start_s, end_s, mean_utilization(intervals, start_s, end_s))
        for (name, start_s), end_s in zip(begins.items(), ends, strict=True)
    ]


def in_order(phases: Sequence[Phase]) -> bool:
    """Whether all four phases happened in order."""
    names = [phase.name for phase in phases]
    return names == ["phase 1", "phase 2", "phase 3", "phase 4"] and all(
        phase.start_s < phase.end_s for phase in phases
    )
