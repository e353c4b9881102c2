"""Runs the contenders of a scenario in turn, with repetitions, and keeps each run as soon as it ends.

`DIR/unfinished.jsonl` has a line for each run. After an interruption, the same command continues with the
missing runs. When all of them have completed, `DIR/samples.jsonl` has these lines.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from topologies.compare import contenders, figures, run
from topologies.compare.figures import PerRun, Result, nothing_more
from topologies.compare.run import Observed
from topologies.compare.samples import Sample
from topologies.compare.scenario import Scenario
from topologies.loads.load import Outcome
from topologies.loads.pace import Pace
from topologies.reports import console, origin

UNFINISHED, SAMPLES = "unfinished.jsonl", "samples.jsonl"


@dataclass(slots=True)
class Kept:
    """The runs of one bench, in files of its directory.

    Attributes:
        settings: an earlier run is used only if it has these settings.
        same_code: tells from a run's origin whether the present code made it.
        lines: the lines of the runs of this command.
    """

    directory: Path
    settings: Mapping[str, Any]
    same_code: Callable[[Mapping[str, Any]], bool]
    lines: list[str] = field(default_factory=list)

    def find(self, scenario: str, names: Sequence[str], repeat: int) -> dict[Any, Observed]:
        """The last earlier runs of these contenders, by contender and repetition."""
        settings = json.loads(json.dumps(self.settings))  # the form that a file has
        lines: dict[tuple[str, int], str] = {}
        found = {}
        for line in self._earlier():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # truncated, or outdated
                one = json.loads(line)
                repetition, usable = one.pop("repetition"), one.pop("settings") == settings
                seen = _observed(one)
                wanted = seen.scenario == scenario and seen.contender in names
                if wanted and usable and repetition <= repeat and self.same_code(seen.origin):
                    key = (seen.contender, repetition)
                    found[key], lines[key] = seen, line
        self.lines += lines.values()
        return found

    def keep(self, repetition: int, observed: Observed) -> None:
        """Add a run. It begins a line of its own, even after one that an interruption truncated."""
        settings = {"repetition": repetition, "settings": dict(self.settings)}
        self.lines.append(json.dumps(settings | asdict(observed)))
        with (self.directory / UNFINISHED).open("a") as file:
            file.write(f"\n{self.lines[-1]}")

    def write(self) -> None:
        """Write the samples of the runs of this command."""
        (self.directory / SAMPLES).write_text("".join(f"{line}\n" for line in self.lines))

    def remove(self) -> None:
        """Remove the runs of this command, also their earlier ones, but not those of other commands."""
        done = {"", *map(_which, self.lines)}
        others = [line for line in self._earlier() if _which(line) not in done]
        if others:
            (self.directory / UNFINISHED).write_text("\n".join(others))
        else:
            (self.directory / UNFINISHED).unlink(missing_ok=True)

    def _earlier(self) -> Iterator[str]:
        with contextlib.suppress(OSError):
            yield from filter(None, (self.directory / UNFINISHED).read_text().split("\n"))


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
    earlier = kept.find(scenario.name, names, repeat) if kept else {}
    if earlier:
        text = f"kept {len(earlier)} of {(every := repeat * len(names))} runs"
        _tell(f"{scenario.name}: {text}; running the missing {every - len(earlier)}")
    capacities_bps = figures.capacities_bps(scenario.layout)
    shown = {up: capacities_bps[up] for up in scenario.layout.sending_uplinks()}
    observed: dict[str, list[Observed]] = {}
    found: dict[str, list[figures.Figures]] = {}
    failures: list[str] = []
    for repetition in range(1, repeat + 1):
        once: dict[str, figures.Figures] = {}
        for number, name in enumerate(names, start=1 + (repetition - 1) * len(names)):
            seen = earlier.get((name, repetition))
            if seen is None:
                place = f"{scenario.name} {number}/{repeat * len(names)}"
                run_origin = origin.origin(command)
                progress = console.ProgressLine(place, name, shown)
                try:
                    contender = contenders.by_name(name)
                    seen = run.run(scenario, contender, pace, progress, repetition)
                except RuntimeError as failure:
                    failures.append(f"{name}: {failure}")
                    _tell(f"\n{scenario.name}: {failures[-1]}")
                    continue
                progress.finish()
                seen = replace(seen, origin=run_origin)
                if kept:
                    kept.keep(repetition, seen)
            observed.setdefault(name, []).append(seen)
            measured = figures.figures(scenario.layout, seen)
            once[name] = measured | per_run(scenario.layout, seen, measured)
        for name, one in figures.with_cpu_ratio(once, baseline=contenders.MANUAL).items():
            found.setdefault(name, []).append(one)
    ran = [name for name in names if name in found]
    return Result(
        scenario,
        figures={name: found[name] for name in ran},
        observed={name: observed[name] for name in ran},
        failures=failures,
    )


def supported(scenario: Scenario, names: Sequence[str]) -> list[str]:
    """The contenders that the scenario's layout supports. Prints why it excludes others."""
    found = []
    for name in names:
        problem = contenders.unsupported_reason(scenario.layout, contenders.by_name(name))
        if name == contenders.ORACLE and name not in scenario.contenders:
            problem = "this load does not plan the uplinks of its flows"
        if problem:
            _tell(f"{scenario.name}: {name} excluded: {problem}")
        else:
            found.append(name)
    return found


def _which(line: str) -> str:
    """Which run a line has; empty for a line that is truncated or outdated."""
    try:
        one = json.loads(line)
        return json.dumps([one[k] for k in ("scenario", "contender", "repetition", "settings")])
    except (ValueError, KeyError, TypeError):
        return ""


def _observed(found: Mapping[str, Any]) -> Observed:
    """Restore an `Observed` from its JSON form."""
    spans = {name: tuple(found[name]) for name in ("measured_s", "steady_s")}
    samples = [Sample(**one) for one in found["samples"]]
    return Observed(
        **{**found, **spans, "samples": samples, "outcome": Outcome(**found["outcome"])}
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
