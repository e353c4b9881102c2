"""Runs the contenders of a scenario in turn, with repetitions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from topologies.compare import contenders, figures, run
from topologies.compare.figures import Result
from topologies.compare.kept_runs import KeptRuns
from topologies.compare.scenario import Scenario
from topologies.loads.pace import Pace
from topologies.reports import console, origin


def compare(
    scenario: Scenario,
    names: Sequence[str],
    pace: Pace,
    repeat: int,
    kept: KeptRuns | None = None,
    command: Sequence[str] = (),
) -> Result:
    """Run every contender once in each repetition.

    A failed run is printed and recorded in the result, and does not end the others. A run that an
    interrupted command kept is not repeated; without `kept`, no run is kept. CPU time is compared
    within a repetition, because the load of the machine changes over time.
    """
    earlier = _kept(scenario.name, names, repeat, kept) if kept else {}
    capacities_bps = figures.capacities_bps(scenario.layout)
    shown = {up: capacities_bps[up] for up in scenario.layout.sending_uplinks()}
    observed: dict[str, list[run.Observed]] = {}
    found: dict[str, list[figures.Figures]] = {}
    failures: list[str] = []
    for repetition in range(repeat):
        once: dict[str, figures.Figures] = {}
        for number, name in enumerate(names, start=1 + repetition * len(names)):
            place = f"{scenario.name} {number}/{repeat * len(names)}"
            seen = earlier.get((name, repetition + 1))
            if seen is None:
                run_origin = origin.origin(command)
                progress = console.ProgressLine(place, name, shown)
                try:
                    contender = contenders.by_name(name)
                    seen = run.run(scenario, contender, pace, progress, repetition + 1)
                except RuntimeError as failure:
                    failures.append(f"{name}: {failure}")
                    print(f"\n{scenario.name}: {failures[-1]}", file=sys.stderr)
                    continue
                progress.finish()
                seen = replace(seen, origin=run_origin)
                if kept:
                    kept.keep(repetition + 1, seen)
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


def _kept(
    scenario: str, names: Sequence[str], repeat: int, kept: KeptRuns
) -> dict[tuple[str, int], run.Observed]:
    """The kept runs by contender and repetition. Prints how many there are."""
    found = {}
    for repetition in range(1, repeat + 1):
        for name in names:
            if seen := kept.find(scenario, name, repetition):
                found[name, repetition] = seen
                kept.mark_used(scenario, name, repetition)
    if found:
        every = repeat * len(names)
        print(
            f"{scenario}: kept {len(found)} of {every} runs of an interrupted command in"
            f" {kept.directory}; running the missing {every - len(found)}",
            file=sys.stderr,
        )
    return found


def supported(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """The contenders that the scenario's layout supports. Prints why it excludes others."""
    found = []
    for name in names:
        problem = contenders.unsupported_reason(scenario.layout, contenders.by_name(name))
        if name == contenders.ORACLE and name not in scenario.contenders:
            problem = "this load does not plan the uplinks of its flows"
        if problem:
            print(f"{scenario.name}: {name} excluded: {problem}", file=sys.stderr)
        else:
            found.append(name)
    return found
