"""Conditions on the figures of a bench, from published documents and from comparisons."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topologies.compare.contenders import BONDS, is_ours
from topologies.compare.figures import Figures, Result

# The limits for our best policy, relative to the best bond of Open vSwitch.
LEAST_THROUGHPUT_RATIO = 0.98
MOST_CPU_RATIO = 1.05
# A peer with a higher spread counts as uneven. With a lower one, there is nothing to gain.
UNEVEN_CV = 0.1
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
                    met = self.least <= value <= self.most
                    yield Expectation(place, self.shown.format(value), met)

    def _base(self, contenders: Mapping[str, Figures]) -> float | None:
        """What the value is divided by; None: nothing to compare it with ran."""
        if not self.over:
            return 1.0
        peers = {name: one for name, one in contenders.items() if is_peer(name)}
        base = fastest(peers) if self.over == BEST_PEER else self.over
        return max(1.0, contenders[base][self.figure]) if base in contenders else None

    def _better(
        self, place: str, ours: float, contenders: Mapping[str, Figures]
    ) -> Iterator[Expectation]:
        for name, found in contenders.items():
            if is_peer(name) if self.than == EACH_PEER else name in self.than:
                theirs = found[self.figure]
                both = f"{self.shown.format(ours)} and {self.shown.format(theirs)}"
                met = ours < theirs or (self.or_equal and ours == theirs)
                yield Expectation(f"{place} than {name}", both, met)


def is_peer(contender: str) -> bool:
    """Whether a contender is one of Open vSwitch's own bonds."""
    return contender in BONDS


def against_peers(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Compare our best policy with the best peer: throughput, spread, CPU time per bit.

    The throughput comparison is between the fastest contenders of both sides. For spread and CPU
    time, each side has its most even contender among those within 2 % of its fastest, because an
    operator would choose that one.
    """
    of_ours = {name: one for name, one in contenders.items() if is_ours(name)}
    of_peers = {name: one for name, one in contenders.items() if is_peer(name)}
    if not of_ours or not of_peers:
        return []
    ours, peer = fastest(of_ours), fastest(of_peers)
    most_bps = contenders[peer]["throughput_bps"]
    ratio = contenders[ours]["throughput_bps"] / max(1.0, most_bps)
    found = [
        Expectation(
            f"{scenario}: throughput of our best policy >= {LEAST_THROUGHPUT_RATIO} x best peer",
            f"{ours} {ratio:.3f} x {peer}",
            ratio >= LEAST_THROUGHPUT_RATIO,
        )
    ]
    ours, peer = best(of_ours), best(of_peers)
    mine, theirs = contenders[ours], contenders[peer]
    if "spread_cv" in theirs and theirs["spread_cv"] > UNEVEN_CV:
        found.append(
            Expectation(
                f"{scenario}: spread of our best policy better than the best peer's",
                f"CV {ours} {mine['spread_cv']:.3f}, {peer} {theirs['spread_cv']:.3f}",
                mine["spread_cv"] < theirs["spread_cv"],
            )
        )
    if mine.get("cpu_s_per_gbit") and theirs.get("cpu_s_per_gbit"):
        ratio = mine["cpu_s_per_gbit"] / theirs["cpu_s_per_gbit"]
        found.append(
            Expectation(
                f"{scenario}: CPU time per bit of our best policy <= {MOST_CPU_RATIO} x best peer",
                f"{ours} {ratio:.3f} x {peer}",
                ratio <= MOST_CPU_RATIO,
            )
        )
    return found


def fastest(contenders: Mapping[str, Figures]) -> str:
    """The contender with the highest throughput; ties go by name. Empty without contenders."""
    return min(contenders, key=lambda name: (-contenders[name]["throughput_bps"], name), default="")


def best(contenders: Mapping[str, Figures]) -> str:
    """The most even contender within 2 % of the highest throughput. Empty without contenders."""
    if not contenders:
        return ""
    most_bps = max(one["throughput_bps"] for one in contenders.values())
    least_bps = LEAST_THROUGHPUT_RATIO * most_bps
    good = (name for name, one in contenders.items() if one["throughput_bps"] >= least_bps)
    return min(good, key=lambda name: (contenders[name].get("spread_cv", 0.0), name))
