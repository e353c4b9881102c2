"""A JSON file of runs, to which each command adds its own, with where it was run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from topologies.reports.origin import origin


class RunsFile:
    """The runs of this command, which is a module with the arguments of this process, and of those before it."""

    def __init__(self, path: Path, module: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        report: dict[str, Any] = {"origins": [], "runs": []}
        if path.exists():
            report = json.loads(path.read_text())
        report["origins"].append(origin(["python", "-m", module, *sys.argv[1:]]))
        self._path, self._report = path, report

    @property
    def runs(self) -> list[dict[str, Any]]:
        """All runs, those of earlier commands first."""
        return self._report["runs"]

    def add(self, run: dict[str, Any]) -> None:
        """Add a run, and write the file."""
        self.runs.append(run)
        self._path.write_text(json.dumps(self._report, indent=1) + "\n")
