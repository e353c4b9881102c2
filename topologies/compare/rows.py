"""Benches without a layout of their own: each run of a contender is a row of a report.

Each row is in the report as soon as its run has ended. After an interruption, the same command makes only
the missing rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.compare import run
from topologies.compare.contenders import Contender
from topologies.compare.samples import Sample
from topologies.compare.scenario import Scenario
from topologies.loads import pace
from topologies.reports.origin import origin, same_code
from topologies.reports.report import machine

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a bench, in a file.

    Attributes:
        listed: the key of the rows in the file.
        settings: their common settings. A row with other settings is not kept.
        command: the command, for the origin of each row.
        tell: prints progress.
        datapath: Open vSwitch's datapath. A row with another datapath is not kept.
    """

    path: Path
    listed: str
    settings: Mapping[str, Any]
    command: Sequence[str]
    tell: Callable[[str], None]
    datapath: str = "userspace"

    def run(
        self,
        names: Sequence[str],
        repetitions: int,
        measure: Callable[[str], Mapping[str, Any]],
        anew: bool = False,
    ) -> dict[str, Any]:
        """Run all contenders by turns. Returns the report, in which `failed` has runs that failed.

        Raises:
            OSError: the report cannot be written.
        """
        environment = {**machine(), "datapath": self.datapath}
        report = {"environment": environment, **self.settings, self.listed: self._kept(anew)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows: list[Row] = report[self.listed]
        had = {(row["contender"], row["repetition"]) for row in rows}
        failed = []
        for repetition in range(1, repetitions + 1):
            for name in names:
                if (name, repetition) in had:
                    continue
                self.tell(f"=== {name}, {repetition} of {repetitions}")
                made_by = origin(self.command)
                try:
                    found = measure(name)
                except (RuntimeError, OSError, ValueError) as failure:
                    failed.append(f"{name}: {failure}")
                    self.tell(f"failed: {failed[-1]}")
                    continue
                case = {"contender": name, "repetition": repetition}
                rows.append({**case, **found, "origin": made_by})
                self._write(report)
        if failed:
            report["failed"] = failed
            self._write(report)
        return report

    def _kept(self, anew: bool) -> list[Row]:
        """The rows of the file that the present code made with the same settings."""
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return []
        settings = json.loads(json.dumps(self.settings))  # the form that a file has
        same = {key: found.get(key) for key in settings} == settings
        if anew or not same or found.get("environment", {}).get("datapath") != self.datapath:
            return []
        kept = [row for row in found.get(self.listed, []) if same_code(row.get("origin", {}))]
        if kept:
            self.tell(f"{self.path} has {len(kept)} runs; --anew repeats them")
        return kept

    def _write(self, report: Mapping[str, Any]) -> None:
        self.path.write_text(json.dumps(report, indent=1) + "\n")


def run_details(
    scenario: Scenario, contender: Contender, pace_: pace.Pace = pace.ACCELERATED
) -> Any:
    """The details that the load of one run reports. The run prints nothing."""

    def no_progress(_sample: Sample, _load_s: float) -> None:
        return

    return run.run(scenario, contender, pace_, no_progress).outcome.details
