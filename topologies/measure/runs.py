"""Repeats a measurement of several contenders, and keeps every run with its origin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.compare import pace, run
from topologies.compare.contenders import Contender
from topologies.compare.samples import Sample
from topologies.compare.scenario import Scenario
from topologies.reports.origin import origin
from topologies.reports.report import machine


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement. `name` is its module's, `key` names what one run of a contender has found."""

    name: str
    key: str
    of: Callable[[str], Any]

    def is_permitted(self) -> bool:
        """Whether this process is root's, as namespaces need it; if not, it says so."""
        if os.geteuid() != 0:
            print(f"{self.name}: user id {os.geteuid()} -> root", file=sys.stderr)
            return False
        return True

    def repeat(
        self,
        repetitions: Iterable[int],
        contenders: Sequence[str],
        arguments: Sequence[str],
        kept: list[dict[str, Any]],
        path: Path,
        show: Callable[[dict[str, Any]], None],
    ) -> None:
        """Run all contenders by turns, and add each run to `kept`, which `path` then has.

        A run that fails is reported and left out. `show` gets every other one.
        """
        command = [sys.executable, "-m", f"topologies.measure.{self.name}", *arguments]
        for repetition in repetitions:
            for name in contenders:
                made_by = origin(command)
                try:
                    found = self.of(name)
                except (RuntimeError, OSError, ValueError) as failure:
                    print(f"{self.name}: {name}: {failure}", file=sys.stderr)
                    continue
                made = {"contender": name, "repetition": repetition, self.key: found}
                kept.append({**made, "origin": made_by})
                path.write_text(
                    json.dumps({"environment": machine(), "runs": kept}, indent=1) + "\n"
                )
                show(made)


def run_details(
    scenario: Scenario, contender: Contender, pace_: pace.Pace = pace.ACCELERATED
) -> Any:
    """What the load of one run says of it. Nothing is printed meanwhile."""

    def no_progress(_sample: Sample, _load_s: float) -> None:
        return

    return run.run(scenario, contender, pace_, no_progress).outcome.details
