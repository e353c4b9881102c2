"""Keeps completed runs of an interrupted bench, so that the same command continues after them.

Each completed run has a file. When the whole command completes, `report.json` and `samples.jsonl`
have all runs, and the files are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from topologies.compare.run import Observed
from topologies.compare.samples import Sample
from topologies.loads.load import Outcome

DIRECTORY = "unfinished"


@dataclass(slots=True)
class KeptRuns:
    """The kept runs of one layout.

    Attributes:
        directory: the directory of their files.
        settings: a kept run is used only if it has these settings.
        same_code: tells from a run's origin whether the present code made it.
        used: the files of the runs of this command.
    """

    directory: Path
    settings: Mapping[str, Any]
    same_code: Callable[[Mapping[str, Any]], bool]
    used: list[Path] = field(default_factory=list)

    def find(self, scenario: str, contender: str, repetition: int) -> Observed | None:
        """Find a kept run of this code and these settings; None if there is none."""
        path = self._path(scenario, contender, repetition)
        try:
            found = json.loads(path.read_text())
            if found["made_as"] != self._made_as(scenario, contender, repetition):
                return None
            seen = _observed(found["observed"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # truncated, or from an older version
        return seen if self.same_code(seen.origin) else None

    def keep(self, repetition: int, observed: Observed) -> None:
        """Keep a run. The file is written atomically, so an interruption leaves no partial file."""
        path = self._path(observed.scenario, observed.contender, repetition)
        self.directory.mkdir(parents=True, exist_ok=True)
        made_as = self._made_as(observed.scenario, observed.contender, repetition)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps({"made_as": made_as, "observed": asdict(observed)}) + "\n")
        os.replace(partial, path)
        self.used.append(path)

    def mark_used(self, scenario: str, contender: str, repetition: int) -> None:
        """Record that this command uses a kept run."""
        self.used.append(self._path(scenario, contender, repetition))

    def remove(self) -> None:
        """Remove the runs of this command, but not those of other commands."""
        for path in self.used:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the directory is missing or not empty
            self.directory.rmdir()

    def _path(self, scenario: str, contender: str, repetition: int) -> Path:
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{scenario}-{contender}")
        return self.directory / f"{words}-{repetition}.json"

    def _made_as(self, scenario: str, contender: str, repetition: int) -> Any:
        made_as = {
            "scenario": scenario,
            "contender": contender,
            "repetition": repetition,
            "settings": dict(self.settings),
        }
        return json.loads(json.dumps(made_as))  # the form that a file has, with lists for tuples


def _observed(found: Mapping[str, Any]) -> Observed:
    """Restore an `Observed` from its JSON form."""
    return Observed(
        **{
            **found,
            "samples": [Sample(**one) for one in found["samples"]],
            "outcome": Outcome(**found["outcome"]),
            "measured_s": tuple(found["measured_s"]),
            "steady_s": tuple(found["steady_s"]),
        }
    )
