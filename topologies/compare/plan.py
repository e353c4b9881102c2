"""Defines a bench: its scenarios, its options, and conditions on figures, published or from comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from topologies.compare.contenders import BONDS, is_ours
from topologies.compare.figures import Figures, PerRun, Phase, Result, nothing_more
from topologies.compare.run import Scenario
from topologies.loads.pace import Pace
from topologies.loads.web_load import Direction

# As `Rule.than` and `Rule.over`: every bond, and the fastest of them.
EACH_PEER, BEST_PEER = ("each peer",), "the best peer"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition, the measured value, and whether the value meets the condition."""

    condition: str
    found: str
    met: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a figure of some contenders in some scenarios, if they ran.

    Attributes:
        what: the condition in words, which follow the scenario and the contender.
        who: the contenders; None: our policies; empty: all of them.
        where: the scenarios; empty: all of them.
        least: the lowest value that meets the condition.
        most: the highest one.
        below: the value must be less than this.
        shown: the format of values.
        missing: the value of a contender without the figure; None leaves such a contender out.
        worst_run: judge the highest value of all runs instead of the median.
        over: judge the ratio to this contender's value.
        than: instead of limits: the value must be less than that of each of these contenders.
        or_equal: it may also be equal.
    """

    what: str
    figure: str
    who: Collection[str] | None = None
    where: Collection[str] = ()
    least: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    shown: str = "{:.3f}"
    missing: float | None = None
    worst_run: bool = False
    over: str = ""
    than: Collection[str] = ()
    or_equal: bool = False

    def check(self, results: Sequence[Result]) -> list[Expectation]:
        """Judge the contenders that ran."""
        return [
            one
            for result in results
            if not self.where or result.scenario.name in self.where
            for one in self._in(result)
        ]

    def _in(self, result: Result) -> Iterator[Expectation]:
        contenders = result.medians()
        for name, found in contenders.items():
            if not (is_ours(name) if self.who is None else name in self.who or not self.who):
                continue
            value = found.get(self.figure, self.missing)
            if self.worst_run:
                value = max(run[self.figure] for run in result.figures[name])
            place = f"{result.scenario.name}, {name}: {self.what}"
            if value is not None and self.than:
                yield from self._better(place, value, contenders)
            elif value is not None:
                base = self._base(contenders)
                if base is not None:
                    value /= base
                    met = self.least <= value <= self.most and value < self.below
                    yield Expectation(place, self.shown.format(value), met)

    def _base(self, contenders: Mapping[str, Figures]) -> float | None:
        """What the value is divided by; None: nothing to compare it with ran."""
        if not self.over:
            return 1.0
        peers = {name: one for name, one in contenders.items() if name in BONDS}
        base = fastest(peers) if self.over == BEST_PEER else self.over
        return max(1.0, contenders[base][self.figure]) if base in contenders else None

    def _better(
        self, place: str, ours: float, contenders: Mapping[str, Figures]
    ) -> Iterator[Expectation]:
        for name, found in contenders.items():
            if name in (BONDS if self.than == EACH_PEER else self.than):
                theirs = found[self.figure]
                both = f"{self.shown.format(ours)} and {self.shown.format(theirs)}"
                met = ours < theirs or (self.or_equal and ours == theirs)
                yield Expectation(f"{place} than {name}", both, met)


def fastest(contenders: Mapping[str, Figures]) -> str:
    """The contender with the highest throughput; ties go by name. Empty without contenders."""
    return min(contenders, key=lambda name: (-contenders[name]["throughput_bps"], name), default="")


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
        pooled: joins the results of scenarios that are one in the report.
        phases: the phases of the main scenario.
        drawn: by scenario, the name of the picture of its uplinks over time, and the event at its time 0.
        draws_slowdowns: whether the slowdowns of each scenario's flows are drawn.
        real_time: whether every pace has the documented window and intervals, because the bench
            compares times.
        campaign_runs: how often the published campaign runs every contender.
    """

    scenarios: Callable[[Options], Sequence[Scenario]]
    rules: Sequence[Rule] = ()
    more: Callable[[Options, Sequence[Result]], Sequence[Expectation]] = lambda *_: ()
    per_run: PerRun = nothing_more
    derived: Callable[[Sequence[Result]], Mapping[str, Mapping[str, Figures]]] = lambda _: {}
    pooled: Callable[[Sequence[Result]], Sequence[Result]] = lambda results: results
    phases: Callable[[Options, Result], Sequence[Phase]] = lambda *_: ()
    drawn: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    draws_slowdowns: bool = False
    real_time: bool = False
    campaign_runs: int = 3

    def expectations(self, options: Options, results: Sequence[Result]) -> list[Expectation]:
        """The conditions on the results, with what was found."""
        checked = (one for rule in self.rules for one in rule.check(results))
        return [*self.more(options, results), *checked]
