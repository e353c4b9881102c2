"""Runs the contenders of a scenario in turn, with repetitions, and keeps each run as soon as it ends.

`DIR/samples.jsonl` has a line for each run. The same command makes only the runs that are missing in it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from topologies.compare import contenders, figures, run
from topologies.compare.figures import PerRun, Result, nothing_more
from topologies.compare.run import Observed, Sample, Scenario
from topologies.loads.load import Outcome
from topologies.loads.pace import Pace
from topologies.reports import origin

SAMPLES = "samples.jsonl"


class Kept:
    """The runs of a bench that the present code has made, in a file of its directory.

    A run with other settings stays in the file, and is not found. Runs that other code has made are removed
    from the file. With `anew`, no earlier run is found.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], *, anew: bool = False) -> None:
        self._path = directory / SAMPLES
        self._settings = json.loads(json.dumps(settings))  # the form that a file has
        self._found: dict[tuple[str, str, int], Observed] = {}
        lines: dict[str, str] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # truncated, or outdated
                one = json.loads(line)
                repetition, its_settings = one.pop("repetition"), one.pop("settings")
                seen = _observed(one)
                which = (seen.scenario, seen.contender, repetition)
                if origin.same_code(seen.origin):
                    lines[json.dumps([which, its_settings])] = line
                    if its_settings == self._settings and not anew:
                        self._found[which] = seen
        self._path.write_text("".join(f"{line}\n" for line in lines.values()))

    def find(self, scenario: str, contender: str, repetition: int) -> Observed | None:
        """An earlier run; None if it is missing."""
        return self._found.get((scenario, contender, repetition))

    def keep(self, repetition: int, observed: Observed) -> None:
        """Add a run."""
        settings = {"repetition": repetition, "settings": self._settings}
        with self._path.open("a") as file:
            file.write(json.dumps(settings | asdict(observed)) + "\n")


def compare(
    scenario: Scenario,
    names: Sequence[str],
    pace: Pace,
    repeat: int,
    kept: Kept | None = None,
    command: Sequence[str] = (),
    per_run: PerRun = nothing_more,
) -> Result:
    """Run every contender once in each repetition.

    A failed run is printed and recorded in the result, and does not end the others. Without `kept`, no
    run is kept. CPU time is compared within a repetition, because the load of the machine changes
    over time.
    """
    every = [(repetition, name) for repetition in range(1, repeat + 1) for name in names]
    earlier = {
        (repetition, name): seen
        for repetition, name in every
        if kept and (seen := kept.find(scenario.name, name, repetition))
    }
    if earlier:
        text = f"kept {len(earlier)} of {len(every)} runs, which --anew repeats"
        _tell(f"{scenario.name}: {text}; running the missing {len(every) - len(earlier)}")
    observed: dict[str, list[Observed]] = {name: [] for name in names}
    measured: dict[int, dict[str, figures.Figures]] = {}
    failures: list[str] = []
    for number, (repetition, name) in enumerate(every, start=1):
        seen = earlier.get((repetition, name))
        if seen is None:
            run_origin = origin.origin(command)
            _tell(f"{scenario.name} {number}/{len(every)} {name}")
            try:
                seen = run.run(scenario, scenario.contender(name), pace, repetition)
            except RuntimeError as failure:
                failures.append(f"{name}: {failure}")
                _tell(f"\n{scenario.name}: {failures[-1]}")
                continue
            seen = replace(seen, origin=run_origin)
            if kept:
                kept.keep(repetition, seen)
        observed[name].append(seen)
        found = figures.figures(scenario.layout, seen)
        found |= per_run(scenario.layout, seen, found)
        measured.setdefault(repetition, {})[name] = found
    runs = [figures.with_cpu_ratio(one, contenders.MANUAL) for one in measured.values()]
    return Result(
        scenario,
        figures={
            name: [one[name] for one in runs if name in one] for name in names if observed[name]
        },
        observed={name: seen for name, seen in observed.items() if seen},
        failures=failures,
    )


def supported(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """The contenders that the scenario's layout supports. Prints why it excludes others."""
    found = []
    for name in names:
        problem = contenders.unsupported_reason(scenario.layout, scenario.contender(name))
        if name == contenders.ORACLE and name not in scenario.contenders:
            problem = "this load does not plan the uplinks of its flows"
        if problem:
            _tell(f"{scenario.name}: {name} excluded: {problem}")
        else:
            found.append(name)
    return found


def _observed(found: Mapping[str, Any]) -> Observed:
    """Restore an `Observed` from its JSON form."""
    spans = {name: tuple(found[name]) for name in ("measured_s", "steady_s")}
    samples = [Sample(**one) for one in found["samples"]]
    return Observed(
        **{**found, **spans, "samples": samples, "outcome": Outcome(**found["outcome"])}
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
