"""Defines a bench, and the options of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.compare.expectation import Expectation, Rule
from topologies.compare.figures import Figures, PerRun, Phase, Result, nothing_more
from topologies.compare.run import Scenario
from topologies.loads.pace import Pace
from topologies.loads.web_load import Direction


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a bench: the pace, and the direction of web downloads."""

    pace: Pace
    direction: Direction = Direction.SEND


@dataclass(frozen=True, slots=True)
class Plan:
    """A bench.

    Attributes:
        scenarios: the scenarios, the main one first.
        rules: the conditions on the results, for the contenders that ran.
        more: conditions that are no rules.
        per_run: further figures of each run.
        derived: figures that need several runs, by scenario and contender.
        phases: the phases of the main scenario.
        draw: draws pictures of the results into a directory, and returns the files.
        real_time: whether every pace has the documented window and intervals, because the bench
            compares times.
        campaign_runs: how often the published campaign runs every contender.
    """

    scenarios: Callable[[Options], Sequence[Scenario]]
    rules: Sequence[Rule] = ()
    more: Callable[[Options, Sequence[Result]], Sequence[Expectation]] = lambda *_: ()
    per_run: PerRun = nothing_more
    derived: Callable[[Sequence[Result]], Mapping[str, Mapping[str, Figures]]] = lambda _: {}
    phases: Callable[[Options, Result], Sequence[Phase]] = lambda *_: ()
    draw: Callable[[Options, Sequence[Result], Path], list[Path]] = lambda *_: []
    real_time: bool = False
    campaign_runs: int = 3

    def expectations(self, options: Options, results: Sequence[Result]) -> list[Expectation]:
        """The conditions on the results, with what was found."""
        checked = (one for rule in self.rules for one in rule.check(results))
        return [*self.more(options, results), *checked]
