"""Compares a report's policies with its peers, with the published document, and with the published runs.

A median differs if the ranges of the runs do not overlap. That happens by chance, too: if n and m
runs come from the same distribution, their ranges are disjoint in 2 / C(n + m, n) of all cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.compare.contenders import is_ours
from topologies.reports import stored
from topologies.reports.known_figures import (
    Figure,
    figure,
    figures,
    is_peer,
    measured,
    number,
    repetitions,
)
from topologies.reports.markdown import code, plain, report_name
from topologies.reports.origin import ROOT

# The largest deviation from a published figure that counts as a match.
MOST_DEVIATION_RATIO = 0.05
# Figures that follow from another one, and would repeat the same comparison.
REDUNDANT_FIGURES = (
    *("share_of_limit", "steady_share_of_limit", "share_of_link", "ten_streams_share"),
    *("stream_stdev_bps", "cpu_ratio"),
)

# The reports of the published runs. Only a checkout has them.
PUBLISHED = ROOT / "docs" / "results"
# A derived figure that says the same as this one, which single runs have.
DERIVED_FROM = {"cpu_ratio": "cpu_s_per_gbit"}


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

    def text(self, of: Figure, with_count: bool = True) -> str:
        """The median with the range and the number of the runs. An even range is left out."""
        least, most = of.text(self.least), of.text(self.most)
        runs = [f"{least} to {most}"] if least != most else []
        runs += [f"n = {self.count}"] if with_count else []
        median = f"{code(self.contender)} {of.with_unit(self.value)}"
        return f"{median} ({', '.join(runs)})" if runs else median


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure of two sides: ovs-lbt's and a peer's, or the measured and the published one."""

    scenario: str
    figure: Figure
    here: Side
    other: Side

    @property
    def differs(self) -> bool:
        """Whether the ranges of the runs are disjoint, and a reader sees different numbers."""
        one, two = self.here, self.other
        texts = {self.figure.text(one.value), self.figure.text(two.value)}
        return len(texts) > 1 and (one.most < two.least or two.most < one.least)

    @property
    def other_is_better(self) -> bool:
        """Whether the ranges are disjoint, and the other side has the better median."""
        return self.differs and self.figure.better * (self.other.value - self.here.value) > 0

    @property
    def has_ranges(self) -> bool:
        """Whether both sides have a range."""
        return self.here.has_range and self.other.has_range

    @property
    def by_chance(self) -> float:
        """The probability that the ranges of runs of the same distribution are disjoint."""
        return 2 / math.comb(self.here.count + self.other.count, self.here.count)

    @property
    def distance(self) -> float:
        """The difference of the medians, relative to the larger one."""
        most = max(abs(self.here.value), abs(self.other.value))
        return abs(self.here.value - self.other.value) / most if most else 0.0


def by_kind(contenders: Mapping[str, Any], ours: bool) -> dict[str, Any]:
    """Only our policies, or only the peers, in the report's order."""
    of_kind = is_ours if ours else is_peer
    return {name: found for name, found in contenders.items() if of_kind(name)}


def best(contenders: Mapping[str, Any], of: Figure) -> Side | None:
    """The best contender in a figure, and the first in the report of equals. None without values."""
    found = [
        side(name, one, of)
        for name, one in contenders.items()
        if number(one, of.name) is not None and of.better
    ]
    return max(found, key=lambda one: of.better * one.value, default=None)


def side(contender: str, found: Mapping[str, Any], of: Figure) -> Side:
    """A contender's side of a comparison in a figure that it has."""
    value = number(found, of.name)
    assert value is not None
    values = repetitions(found, of.name)
    count = len(values) or len(found.get("runs", ())) or 1
    least, most = min([value, *values]), max([value, *values])
    return Side(contender, value, least, most, count, has_range=len(values) > 1)


def against_peers(report: Mapping[str, Any]) -> list[Pair]:
    """Our best policy and the best peer in each figure of each scenario."""
    found = []
    for scenario in report.get("scenarios", ()):
        contenders = scenario["contenders"]
        for of in figures(name for one in contenders.values() for name in measured(one)):
            if of.name in REDUNDANT_FIGURES:
                continue
            ours, peer = (best(by_kind(contenders, ours=ours), of) for ours in (True, False))
            if ours and peer:
                found.append(Pair(scenario["name"], of, ours, peer))
    return found


def matches_document(report: Mapping[str, Any]) -> list[bool]:
    """For each comparable published figure, whether the measured one matches it."""
    found = []
    for scenario in report["scenarios"]:
        for contender, documented in scenario.get("published", {}).items():
            for name in documented:
                published = number(documented, name)
                here = number(scenario["contenders"].get(contender, {}), name)
                if figure(name).comparable and published is not None and here is not None:
                    found.append(abs(here - published) <= MOST_DEVIATION_RATIO * published)
    return found


def met(report: Mapping[str, Any], what: str = "expectations") -> str:
    """How many expectations are met, as text in which `what` follows; empty without expectations."""
    expectations: Sequence[Mapping[str, Any]] = report.get("expectations", [])
    count = sum(one["met"] for one in expectations)
    return f"{count} of {len(expectations)} {what}." if expectations else ""


def unmet(report: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """The expectations that are not met: the scenarios of each condition, and the found values."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in report.get("expectations", []):
        if not one["met"]:
            scenario, colon, condition = one["condition"].partition(": ")
            if not colon:
                scenario, condition = "", one["condition"]
            found.setdefault(condition, []).append((scenario, one["found"]))
    return found


def published(report: Mapping[str, Any], directory: Path = PUBLISHED) -> Mapping[str, Any] | None:
    """The published report of the same layout and settings; None if there is none."""
    try:
        found = stored.read(directory / f"{report_name(report)}.json")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def repeated(report: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """What the comparison with the published runs came to, in sentences, and each figure that differs.

    It compares the figures that the tables show, contender by contender, if the settings are the same.
    """
    here, there = report["environment"], before["environment"]
    paces = [one.get("pace", {}) for one in (here, there)]
    named = [
        {"pace": pace.get("name"), "direction": one.get("direction")}
        for pace, one in zip(paces, (here, there), strict=True)
    ]
    if obstacle := _differences(*named) or _differences(*paces):
        yield plain(f"Not comparable with the published runs: {obstacle}.")
        return
    known = {one["name"]: one for one in before["scenarios"]}
    pairs: list[Pair] = []
    missing: list[str] = []
    for scenario in report["scenarios"]:
        name = scenario["name"]
        if name not in known or known[name]["limit_bps"] != scenario["limit_bps"]:
            missing.append(name)
            continue
        for contender, found in scenario["contenders"].items():
            other = known[name]["contenders"].get(contender)
            if other is None:
                missing.append(f"{name}, {contender}")
                continue
            pairs += [
                Pair(name, of, side(contender, found, of), side(contender, other, of))
                for of in _compared(found, other)
            ]
    several = [one for one in pairs if one.other.count > 1]
    different = [one for one in several if one.differs]
    if several:
        yield (
            f"{len(different)} of {len(several)} figures differ from the published ones by more than"
            f" the ranges of the runs. By chance alone, up to"
            f" {sum(one.by_chance for one in several):.1f} would."
        )
    if single := len(pairs) - len(several):
        yield f"{single} figures are not compared: they were published from one run."
    if missing:
        yield plain(f"Not among the published runs: {'; '.join(missing)}.")
    machines = ({k: v for k, v in one.items() if k not in named[0]} for one in (here, there))
    if differences := _differences(*machines):
        yield plain(f"The machine or its programs differ: {differences}.")
    for one in different:
        text, theirs = one.here.text(one.figure), one.other.text(one.figure)
        yield f"{plain(one.scenario)}: {one.figure.label}: {text}; published {theirs}."


def _differences(here: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """The settings that differ, of those that both have: what is recorded grows over time."""
    return "; ".join(
        f"{name} {one}, published {before[name]}"
        for name, one in here.items()
        if name in before and one != before[name]
    )


def _compared(found: Mapping[str, Any], other: Mapping[str, Any]) -> list[Figure]:
    """The figures of the tables that runs of both sides have."""
    shown = figures(set(measured(found)) & set(measured(other)))
    wanted = [DERIVED_FROM.get(one.name, one.name) for one in shown if not one.minor]
    return [
        of for of in figures(wanted) if repetitions(found, of.name) and repetitions(other, of.name)
    ]
