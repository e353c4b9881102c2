"""The definition of a bench, and the options of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.compare.expectation import Expectation
from topologies.compare.figures import Figures
from topologies.compare.pace import Pace
from topologies.compare.result import Result
from topologies.compare.scenario import Scenario
from topologies.loads.web_load import Direction

# Draws the results of a bench into a directory, and returns the files.
Draw = Callable[[Sequence[Result], Path], list[Path]]


@dataclass(frozen=True, slots=True)
class Options:
    """How a bench is run: how fast, and which way web users download."""

    pace: Pace
    direction: Direction = Direction.SEND


def nothing_more(_results: Sequence[Result]) -> Mapping[str, Mapping[str, Figures]]:
    """Derives no further figures."""
    return {}


@dataclass(frozen=True, slots=True)
class Plan:
    """A bench: its scenarios, the main one first, and the conditions on what they find.

    Conditions are judged for those contenders that ran. `derived` gives further figures,
    by scenario and contender, that no run has by itself. `draw` makes further pictures.
    `real_time`: windows and intervals are the documented ones at any pace, since times are what
    is compared.
    """

    scenarios: Callable[[Options], Sequence[Scenario]]
    expectations: Callable[[Options, Sequence[Result]], Sequence[Expectation]]
    derived: Callable[[Sequence[Result]], Mapping[str, Mapping[str, Figures]]] = nothing_more
    draw: Draw | None = None
    real_time: bool = False
