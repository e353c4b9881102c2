"""Runs the contenders of a scenario in turn, as often as asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from topologies.compare import contenders, figures, run
from topologies.compare.pace import Pace
from topologies.compare.result import Result
from topologies.compare.scenario import Scenario
from topologies.reports import console


def compare(scenario: Scenario, names: Sequence[str], pace: Pace, repeat: int) -> Result:
    """Every contender's runs: all of them once, then all of them again.

    A run that fails is told at once, left out, and noted in the result, so that one of many
    does not cost the others. CPU time is compared within a repetition, as machines change.
    """
    capacities_bps = figures.capacities_bps(scenario.layout)
    shown = {up: capacities_bps[up] for up in scenario.layout.sending_uplinks()}
    observed: dict[str, list[run.Observed]] = {}
    found: dict[str, list[figures.Figures]] = {}
    failures: list[str] = []
    for repetition in range(repeat):
        once: dict[str, figures.Figures] = {}
        for number, name in enumerate(names, start=1 + repetition * len(names)):
            place = f"{scenario.name} {number}/{repeat * len(names)}"
            progress = console.ProgressLine(place, name, shown)
            try:
                seen = run.run(scenario, contenders.by_name(name), pace, progress)
            except RuntimeError as failure:
                failures.append(f"{name}: {failure}")
                print(f"\n{scenario.name}: {failures[-1]}", file=sys.stderr)
                continue
            progress.finish()
            observed.setdefault(name, []).append(seen)
            once[name] = figures.figures(scenario.layout, seen)
        for name, one in figures.with_cpu_ratio(once, baseline=contenders.MANUAL).items():
            found.setdefault(name, []).append(one)
    ran = [name for name in names if name in found]
    return Result(
        scenario,
        figures={name: found[name] for name in ran},
        observed={name: observed[name] for name in ran},
        failures=failures,
    )


def fit(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """The contenders that can work in the scenario's layout. Reports why others cannot."""
    fitting = []
    for name in names:
        if problem := contenders.unfit(scenario.layout, contenders.by_name(name)):
            print(f"{scenario.name}: without {name}: {problem}", file=sys.stderr)
        else:
            fitting.append(name)
    return fitting
