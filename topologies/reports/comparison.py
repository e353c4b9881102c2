"""Compares our policies in a report with the published document and with the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.compare import expectation
from topologies.compare.expectation import LEAST_THROUGHPUT_RATIO, MOST_CPU_RATIO, UNEVEN_CV
from topologies.reports.known_figures import (
    Figure,
    figure,
    figures,
    is_ours,
    is_peer,
    measured,
    number,
    repetitions,
)

# The largest deviation from a published figure that counts as a match.
MOST_DEVIATION_RATIO = 0.05
# Figures that follow from another one, and would repeat the same comparison.
REDUNDANT_FIGURES = (
    *("share_of_limit", "steady_share_of_limit", "share_of_link", "ten_streams_share"),
    *("stream_stdev_bps", "cpu_ratio"),
)
# Published figures for which the order of the contenders matters more than the values.
ORDERED = ("stream_cv",)


@dataclass(frozen=True, slots=True)
class Best:
    """A contender and its value of a figure."""

    contender: str
    value: float


@dataclass(frozen=True, slots=True)
class Duel:
    """Our best policy and the best peer in a figure, and whether ours is good enough."""

    figure: Figure
    ours: Best
    peer: Best
    holds: bool


@dataclass(frozen=True, slots=True)
class Side:
    """A contender's median of a figure, the range of the runs, and the number of runs.

    A derived figure has no values of single runs. Its range is the median itself, and `count` is
    the number of the contender's runs. `has_range`: several runs have a value.
    """

    contender: str
    value: float
    least: float
    most: float
    count: int
    has_range: bool = True


@dataclass(frozen=True, slots=True)
class Behind:
    """A figure in which a peer's median is better than our policy's."""

    figure: Figure
    ours: Side
    peer: Side

    @property
    def differs(self) -> bool:
        """Whether the ranges of the runs are disjoint. Otherwise there is no difference."""
        return disjoint(self.ours, self.peer)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of contenders by a figure, the best first, as published and as measured here.

    `published` groups the contenders that reproduce the same mode of the document.
    """

    figure: Figure
    published: Sequence[tuple[float, Sequence[str]]]
    here: Sequence[Side]

    @property
    def reproduced(self) -> bool:
        """Whether each mode is better than the published worse ones, with disjoint ranges."""
        sides = {one.contender: one for one in self.here}
        modes = [[sides[name] for name in names] for _, names in self.published]
        return all(
            disjoint(good, bad) and self.figure.better * (good.value - bad.value) > 0
            for place, mode in enumerate(modes)
            for worse in modes[place + 1 :]
            for good in mode
            for bad in worse
        )


@dataclass(frozen=True, slots=True)
class Published:
    """A contender's figure and the published one."""

    figure: Figure
    contender: str
    found: float
    published: float
    count: int = 1

    @property
    def matches(self) -> bool:
        """Whether the figure is within `MOST_DEVIATION_RATIO` of the published one."""
        return abs(self.found - self.published) <= MOST_DEVIATION_RATIO * self.published


def scenarios(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The scenarios of a report. A report without a list of scenarios is one scenario."""
    named: list[Mapping[str, Any]] = report.get("scenarios", [])
    keys = ("limit_bps", "contenders")
    return named or [{"name": report["layout"], **{key: report[key] for key in keys}}]


def by_kind(contenders: Mapping[str, Any], ours: bool) -> dict[str, Any]:
    """Only our policies, or only the peers, in the report's order."""
    of_kind = is_ours if ours else is_peer
    return {name: found for name, found in contenders.items() if of_kind(name)}


def best(contenders: Mapping[str, Any], of: Figure) -> Best | None:
    """The best contender in a figure, and the first in the report of equals. None without values."""
    values = [(name, number(found, of.name)) for name, found in contenders.items()]
    found = [Best(name, value) for name, value in values if value is not None]
    if not found or not of.better:
        return None
    return max(found, key=lambda one: of.better * one.value)


def champions(contenders: Mapping[str, Any]) -> tuple[str, str]:
    """Our best policy and the best peer, as an operator would choose. Empty if none ran."""
    ran = {name: one for name, one in contenders.items() if "throughput_bps" in measured(one)}
    ours, peer = (expectation.best(by_kind(ran, ours=ours)) for ours in (True, False))
    return ours, peer


def duels(contenders: Mapping[str, Any]) -> list[Duel]:
    """Compare our best policy with the best peer: throughput, spread, CPU time per bit.

    The rules are those of `expectation.against_peers`, but placement by hand is a peer, too.
    Empty unless both a policy and a peer ran.
    """
    chosen = champions(contenders)
    if not all(chosen):
        return []
    ran = {name: one for name, one in contenders.items() if "throughput_bps" in measured(one)}
    fastest = [expectation.fastest(by_kind(ran, ours=ours)) for ours in (True, False)]
    found = []
    for name in ("throughput_bps", "spread_cv", "cpu_s_per_gbit"):
        ours, peer = fastest if name == "throughput_bps" else chosen
        mine, theirs = number(contenders[ours], name), number(contenders[peer], name)
        if mine is None or theirs is None or (name == "spread_cv" and theirs <= UNEVEN_CV):
            continue
        holds = {
            "throughput_bps": mine >= LEAST_THROUGHPUT_RATIO * theirs,
            "spread_cv": mine < theirs,
            "cpu_s_per_gbit": mine <= MOST_CPU_RATIO * theirs,
        }[name]
        found.append(Duel(figure(name), Best(ours, mine), Best(peer, theirs), holds))
    return found


def side(contender: str, found: Mapping[str, Any], of: Figure) -> Side:
    """A contender's side of a comparison in a figure that it has."""
    value = number(found, of.name)
    assert value is not None
    values = repetitions(found, of.name)
    count = len(values) or len(found.get("runs", ())) or 1
    least, most = min([value, *values]), max([value, *values])
    return Side(contender, value, least, most, count, has_range=len(values) > 1)


def disjoint(one: Side, other: Side) -> bool:
    """Whether the ranges of two sides do not overlap."""
    return one.most < other.least or other.most < one.least


def behind(contenders: Mapping[str, Any]) -> list[Behind]:
    """The figures in which the best peer is better than our best policy.

    If our champion fails a duel, that figure is included even if another policy of ours is better.
    Figures whose texts are equal are left out.
    """
    pairs: dict[tuple[str, str, str], Figure] = {}
    lost = [one for one in duels(contenders) if not one.holds]
    for of in figures(name for one in contenders.values() for name in measured(one)):
        if not of.better or of.name in REDUNDANT_FIGURES:
            continue
        ours, peer = (best(by_kind(contenders, ours=ours), of) for ours in (True, False))
        if ours and peer:
            pairs[of.name, ours.contender, peer.contender] = of
        for duel in lost:
            if duel.figure.name == of.name:
                pairs[of.name, duel.ours.contender, duel.peer.contender] = of
    found = [
        Behind(of, side(ours, contenders[ours], of), side(peer, contenders[peer], of))
        for (_, ours, peer), of in pairs.items()
    ]
    return [
        one
        for one in found
        if one.figure.better * (one.peer.value - one.ours.value) > 0
        and one.figure.text(one.peer.value) != one.figure.text(one.ours.value)
    ]


def orders(scenario: Mapping[str, Any]) -> list[Order]:
    """The orders by figures for which at least two different values were published and measured."""
    found = []
    for of in map(figure, ORDERED):
        modes: dict[float, list[str]] = {}
        for contender, documented in scenario.get("published", {}).items():
            value = number(documented, of.name)
            here = number(scenario["contenders"].get(contender, {}), of.name)
            if value is not None and here is not None:
                modes.setdefault(value, []).append(contender)
        if len(modes) < 2:
            continue
        published = sorted(modes.items(), key=lambda one: -of.better * one[0])
        sides = [
            side(name, scenario["contenders"][name], of) for _, names in published for name in names
        ]
        found.append(Order(of, published, sorted(sides, key=lambda one: -of.better * one.value)))
    return found


def against_document(scenario: Mapping[str, Any]) -> list[Published]:
    """The comparable published figures, with the measured ones."""
    found = []
    for contender, documented in scenario.get("published", {}).items():
        for name in documented:
            of, published = figure(name), number(documented, name)
            here = number(scenario["contenders"].get(contender, {}), name)
            if of.comparable and published is not None and here is not None:
                count = side(contender, scenario["contenders"][contender], of).count
                found.append(Published(of, contender, here, published, count))
    return found


def unmet(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The expectations that are not met."""
    expectations: Sequence[Mapping[str, Any]] = report.get("expectations", [])
    return [one for one in expectations if not one["met"]]
