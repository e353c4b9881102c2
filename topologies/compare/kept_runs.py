"""Runs that came to their end before their bench did, so that the same command goes on after them.

A run is in a file of its own as soon as it is made. When the whole command has come to its end,
`report.json` and `samples.jsonl` have all runs, and these files are removed.
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
        directory: where they are.
        settings: what a run must have been made with to be of use.
        same_code: whether a run, by its origin, was made by the code that runs now.
        used: the files of the runs of this command, kept before or now.
    """

    directory: Path
    settings: Mapping[str, Any]
    same_code: Callable[[Mapping[str, Any]], bool]
    used: list[Path] = field(default_factory=list)

    def find(self, scenario: str, contender: str, repetition: int) -> Observed | None:
        """A run that was kept; None if there is none, or it is not of this code and settings."""
        path = self._path(scenario, contender, repetition)
        try:
            found = json.loads(path.read_text())
            if found["made_as"] != self._made_as(scenario, contender, repetition):
                return None
            seen = _observed(found["observed"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # cut short, or of an older version: the run is made again
        return seen if self.same_code(seen.origin) else None

    def keep(self, repetition: int, observed: Observed) -> None:
        """Keep a run; one that is killed meanwhile leaves no half of it."""
        path = self._path(observed.scenario, observed.contender, repetition)
        self.directory.mkdir(parents=True, exist_ok=True)
        made_as = self._made_as(observed.scenario, observed.contender, repetition)
        unready = path.with_suffix(".part")
        unready.write_text(json.dumps({"made_as": made_as, "observed": asdict(observed)}) + "\n")
        os.replace(unready, path)
        self.used.append(path)

    def use(self, scenario: str, contender: str, repetition: int) -> None:
        """Note that a kept run is part of this command."""
        self.used.append(self._path(scenario, contender, repetition))

    def remove(self) -> None:
        """Remove the runs of this command; those that only another one asks for stay."""
        for path in self.used:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty, or never made
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
        return json.loads(json.dumps(made_as))  # as it is when it has been read


def _observed(found: Mapping[str, Any]) -> Observed:
    """What JSON has made of an `Observed`, as it was."""
    return Observed(
        **{
            **found,
            "samples": [Sample(**one) for one in found["samples"]],
            "outcome": Outcome(**found["outcome"]),
            "measured_s": tuple(found["measured_s"]),
            "steady_s": tuple(found["steady_s"]),
        }
    )
