"""Defines a bench, and the options of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.compare.expectation import Expectation
from topologies.compare.figures import Figures, Result
from topologies.compare.scenario import Scenario
from topologies.loads.pace import Pace
from topologies.loads.web_load import Direction

# Draws the results of a bench into a directory, and returns the files.
Draw = Callable[[Sequence[Result], Path], list[Path]]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a bench: the pace, and the direction of web downloads."""

    pace: Pace
    direction: Direction = Direction.SEND


def no_derived_figures(_results: Sequence[Result]) -> Mapping[str, Mapping[str, Figures]]:
    """The default of `Plan.derived`."""
    return {}


@dataclass(frozen=True, slots=True)
class Plan:
    """A bench.

    Attributes:
        scenarios: the scenarios, the main one first.
        expectations: the conditions on the results, for the contenders that ran.
        derived: figures that need several runs, by scenario and contender.
        draw: draws additional pictures.
        real_time: whether every pace has the documented window and intervals, because the bench
            compares times.
        campaign_runs: how often the published campaign runs every contender.
    """

    scenarios: Callable[[Options], Sequence[Scenario]]
    expectations: Callable[[Options, Sequence[Result]], Sequence[Expectation]]
    derived: Callable[[Sequence[Result]], Mapping[str, Mapping[str, Figures]]] = no_derived_figures
    draw: Draw | None = None
    real_time: bool = False
    campaign_runs: int = 3
