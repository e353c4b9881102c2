"""Compares a report with the report of the same bench that was published before.

A median differs if the ranges of the runs do not overlap. That happens by chance, too: if n and m
runs come from the same distribution, their ranges are disjoint in 2 / C(n + m, n) of all cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.reports import stored
from topologies.reports.comparison import Pair, scenarios, side
from topologies.reports.known_figures import Figure, figures, measured, repetitions
from topologies.reports.markdown import report_name, setting, setting_name
from topologies.reports.origin import ROOT

# The reports of the published runs. Only a checkout has them.
PUBLISHED = ROOT / "docs" / "results"
# A derived figure that says the same as this one, which single runs have.
DERIVED_FROM = {"cpu_ratio": "cpu_s_per_gbit"}


@dataclass(frozen=True, slots=True)
class Repeated:
    """The comparison of a report with the published one.

    Attributes:
        pairs: the figures that both have, if the published ones are of several runs.
        single: how many figures were published from a single run, which has no range.
        missing: the scenarios and contenders of the report that were not published.
        machines: how the machines and their programs differ.
        obstacle: why nothing can be compared; empty if the settings are the same.
    """

    pairs: Sequence[Pair] = ()
    single: int = 0
    missing: Sequence[str] = ()
    machines: str = ""
    obstacle: str = ""

    @property
    def different(self) -> list[Pair]:
        """The figures that differ by more than the ranges."""
        return [one for one in self.pairs if one.differs]

    @property
    def by_chance(self) -> float:
        """How many of the figures would differ by chance alone, as a mean; fewer if runs have equal values."""
        return sum(one.by_chance for one in self.pairs)


def published(report: Mapping[str, Any], directory: Path = PUBLISHED) -> Mapping[str, Any] | None:
    """The published report of the same layout and settings; None if there is none."""
    try:
        found = stored.read(directory / f"{report_name(report)}.json")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def repeated(report: Mapping[str, Any], before: Mapping[str, Any]) -> Repeated:
    """Compare the figures that the tables show, contender by contender."""
    here, there = report["environment"], before["environment"]
    if obstacle := _obstacle(here, there):
        return Repeated(obstacle=obstacle)
    known = {one["name"]: one for one in scenarios(before)}
    pairs: list[Pair] = []
    missing: list[str] = []
    single = 0
    for scenario in scenarios(report):
        name = scenario["name"]
        if name not in known or known[name]["limit_bps"] != scenario["limit_bps"]:
            missing.append(name)
            continue
        for contender, found in scenario["contenders"].items():
            other = known[name]["contenders"].get(contender)
            if other is None:
                missing.append(f"{name}, {contender}")
                continue
            for of in _compared(found, other):
                pair = Pair(name, of, side(contender, found, of), side(contender, other, of))
                if pair.other.count > 1:
                    pairs.append(pair)
                else:
                    single += 1
    return Repeated(pairs, single, missing, _differences(_machine(here), _machine(there)))


def sentences(found: Repeated) -> list[str]:
    """What the comparison came to, in words."""
    if found.obstacle:
        return [f"Not comparable with the published runs: {found.obstacle}."]
    said = []
    if found.pairs:
        said.append(
            f"{len(found.different)} of {len(found.pairs)} figures differ from the published ones by"
            f" more than the ranges of the runs. By chance alone, up to {found.by_chance:.1f} would."
        )
    if found.single:
        said.append(f"{found.single} figures are not compared: they were published from one run.")
    if found.missing:
        said.append(f"Not among the published runs: {'; '.join(found.missing)}.")
    if found.machines:
        said.append(f"The machine or its programs differ: {found.machines}.")
    return said


def _differences(here: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """The settings that differ, of those that both have: what is recorded grows over time."""
    return "; ".join(
        f"{setting_name(name)} {setting(name, one)}, published {setting(name, before[name])}"
        for name, one in here.items()
        if name in before and one != before[name]
    )


def _obstacle(here: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """The settings that differ, by the name of the pace or by what it has; empty without any."""
    paces = [one.get("pace", {}) for one in (here, before)]
    named = [
        {"pace": pace.get("name"), "direction": one.get("direction")}
        for pace, one in zip(paces, (here, before), strict=True)
    ]
    return _differences(*named) or _differences(*paces)


def _machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in environment.items() if key not in ("pace", "direction")}


def _compared(found: Mapping[str, Any], other: Mapping[str, Any]) -> list[Figure]:
    """The figures of the tables that runs of both sides have."""
    shown = figures(set(measured(found)) & set(measured(other)))
    wanted = [DERIVED_FROM.get(one.name, one.name) for one in shown if not one.minor]
    return [
        of for of in figures(wanted) if repetitions(found, of.name) and repetitions(other, of.name)
    ]
