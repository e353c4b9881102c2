"""What programs that measure on a real switch have in common: options, a file of runs, and tables."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec

from tests.switch.bed import Upstream, upstream_ovs
from tests.switch.wire import OwnNetwork, inside
from topologies.reports import markdown
from topologies.reports.origin import origin

Run = dict[str, Any]
P = ParamSpec("P")
RECEIVED_BYTES, RECEIVED, SENT_BYTES = 0, 1, 8
__all__ = ["RECEIVED", "RECEIVED_BYTES", "SENT_BYTES", "Bench", "Run", "counters", "table"]


class Bench:
    """A program that measures: its options, and the file that has each run as soon as it was made.

    With `--resume`, only the runs are made that the file lacks; otherwise it is begun anew. `listed`: what
    the file calls the runs. `report`: all that it says.
    """

    def __init__(
        self,
        name: str,
        about: str | None,
        out: str,
        repeat: int = 0,
        listed: str = "runs",
    ) -> None:
        self._name, self._listed = name, listed
        # Says what a run has found.
        self.tell: Callable[[Run], object] = functools.partial(print, flush=True)
        self.report: dict[str, Any] = {"origins": [], listed: []}
        self._had: list[Run] = []
        self.parser = argparse.ArgumentParser(prog=name.rpartition(".")[2], description=about)
        add = self.parser.add_argument
        add("--out", type=Path, default=Path(out))
        add("--resume", action="store_true", help="make only the runs that the file lacks")
        if repeat:
            add("--repeat", type=int, default=repeat, help=f"runs of each ({repeat})")

    @functools.cached_property
    def options(self) -> argparse.Namespace:
        """What the command says."""
        return self.parser.parse_args()

    @property
    def runs(self) -> list[Run]:
        """All runs, those that the file had first."""
        found: list[Run] = self.report[self._listed]
        return found

    @contextlib.contextmanager
    def begun(self) -> Iterator[Upstream]:
        """Begin or go on with the file. In this block, there is a switch upstream in a network of its own."""
        out, resume = self.options.out, self.options.resume
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists() and resume:
            self.report = json.loads(out.read_text())
        command = ["python", "-m", f"tests.switch.{self._name}", *sys.argv[1:]]
        self.report.setdefault("origins", []).append(origin(command))
        self._had = list(self.runs) if resume else []
        with OwnNetwork().entered(), upstream_ovs() as tor:
            yield tor

    def run(
        self,
        case: Run,
        measure: Callable[P, Mapping[str, Any]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> Run:
        """Measure a case, unless the file that is resumed has it: its run."""
        had = next((run for run in self._had if case.items() <= run.items()), None)
        if had is not None:
            return had
        run = {**case, **measure(*arguments, **named)}
        run["load_average"] = round(os.getloadavg()[0], 2)
        self.runs.append(run)
        self.write()
        self.tell(run)
        return run

    def write(self) -> None:
        """Write the file."""
        self.options.out.write_text(json.dumps(self.report, indent=1) + "\n")


def counters(netns: str | None = None) -> dict[str, list[int]]:
    """What interfaces have sent and received, by their names and in the order of /proc/net/dev.

    /proc/self, and /sys, may show another network than that of this thread.
    """
    with inside(netns):
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    rows = (line.partition(":") for line in lines)
    return {name.strip(): list(map(int, counted.split())) for name, _, counted in rows}


# A column of a table of runs: what it shows of a run, or the key of that.
Shown = str | Callable[[Any], object]


def table(
    runs: Iterable[Mapping[str, Any]],
    keys: Sequence[str],
    columns: Mapping[str, Shown] | Sequence[str],
) -> str:
    """What runs with the same values of these keys have found, and how many they are."""
    of_run = columns.values() if isinstance(columns, Mapping) else columns
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    rows = []
    for named, of in groups.items():
        shown = [[run[c] if isinstance(c, str) else c(run) for run in of] for c in of_run]
        rows.append([*map(str, named), str(len(of)), *map(spread, shown)])
    return markdown.table([*keys, "n", *columns], rows, left=len(keys))


def spread(values: Sequence[Any]) -> str:
    """The median and the range of numbers, and in how many runs there is none; of words, how many are which."""
    known = [value for value in values if value is not None]
    never = len(values) - len(known)
    if any(isinstance(value, str) for value in known):
        return ", ".join(f"{n} × {word}" for word, n in sorted(Counter(known).items()))
    if not known:
        return "–"
    middle, least, most = (f"{round(of(known), 2):g}" for of in (statistics.median, min, max))
    text = middle if least == most else f"{middle} ({least} to {most})"
    return text + f", – in {never}" * (never > 0)
