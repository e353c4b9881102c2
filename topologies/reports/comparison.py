"""What a report says of us: beside the document, and beside the best of the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.compare import expectation
from topologies.compare.expectation import LEAST_THROUGHPUT_RATIO, MOST_CPU_RATIO, UNEVEN_CV
from topologies.reports.known_figures import Figure, figure, is_ours, measured, number

# Of the published figure.
MOST_DEVIATION_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class Best:
    """A contender and its value of a figure."""

    contender: str
    value: float


@dataclass(frozen=True, slots=True)
class Duel:
    """The best of ours and the best peer in one figure, and whether ours is good enough."""

    figure: Figure
    ours: Best
    peer: Best
    holds: bool


@dataclass(frozen=True, slots=True)
class Published:
    """A contender's figure beside the published one."""

    figure: Figure
    contender: str
    found: float
    published: float

    @property
    def matches(self) -> bool:
        """Whether it is near enough to the published one."""
        return abs(self.found - self.published) <= MOST_DEVIATION_RATIO * self.published


def scenarios(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A report's scenarios; one that names none has one."""
    named: list[Mapping[str, Any]] = report.get("scenarios", [])
    keys = ("limit_bps", "contenders")
    return named or [{"name": report["layout"], **{key: report[key] for key in keys}}]


def by_kind(contenders: Mapping[str, Any], ours: bool) -> dict[str, Any]:
    """Only ours, or only the peers, in the report's order."""
    return {name: found for name, found in contenders.items() if is_ours(name) == ours}


def best(contenders: Mapping[str, Any], of: Figure) -> Best | None:
    """Who is best in a figure; of equals the first in the report. None without any."""
    values = [(name, number(found, of.name)) for name, found in contenders.items()]
    found = [Best(name, value) for name, value in values if value is not None]
    if not found or not of.better:
        return None
    return max(found, key=lambda one: of.better * one.value)


def champions(contenders: Mapping[str, Any]) -> tuple[str, str]:
    """The best of ours and the best peer, as an operator would choose; empty if none ran."""
    ran = {name: one for name, one in contenders.items() if "throughput_bps" in measured(one)}
    ours, peer = (expectation.best(by_kind(ran, ours=ours)) for ours in (True, False))
    return ours, peer


def duels(contenders: Mapping[str, Any]) -> list[Duel]:
    """The best of ours against the best peer: throughput, spread, CPU time per bit.

    Spread only where the peer's is uneven. By the rules of `expectation.against_peers`,
    but placement by hand is a peer, too. Empty unless both kinds took part.
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


def against_document(scenario: Mapping[str, Any]) -> list[Published]:
    """Everything comparable that was published of a contender, and what it is here."""
    found = []
    for contender, figures in scenario.get("published", {}).items():
        for name in figures:
            of, published = figure(name), number(figures, name)
            here = number(scenario["contenders"].get(contender, {}), name)
            if of.comparable and published is not None and here is not None:
                found.append(Published(of, contender, here, published))
    return found


def unmet(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The expectations that are not met."""
    expectations: Sequence[Mapping[str, Any]] = report.get("expectations", [])
    return [one for one in expectations if not one["met"]]
