"""Runs a campaign of load jumps: each jump with each contender, and its control.

Each completed jump has a record in `DIR/shift_seeds/NAME.json`. After an interruption, the same command
makes only the runs that are missing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from topologies.compare import running
from topologies.compare.kept_runs import DIRECTORY, KeptRuns
from topologies.compare.scenario import Scenario
from topologies.loads.pace import Pace
from topologies.reports import console, origin
from topologies.reports import report as reports
from topologies.seeds import generator, report
from topologies.seeds.instance import FEASIBLE_RATIO, Instance
from topologies.seeds.load import SeededLoad, layout_of
from topologies.seeds.records import (
    JUMP,
    lower_bounds,
    new_record,
    run_figures,
)

DEFAULT_CONTENDERS = (report.OURS, "balance-slb/1s")
WATCHED_S, QUICK_WATCHED_S = 15.0, 6.0
QUICK_JUMPS = 2


def require_feasible(instances: Sequence[Instance]) -> None:
    """Reject jumps that no placement of whole VM ports can satisfy.

    Raises:
        ValueError: a jump is infeasible; the message names it.
    """
    for one in instances:
        if not generator.is_feasible(one):
            raise ValueError(
                f"{one.name}: no placement of its VMs keeps every uplink below"
                f" {FEASIBLE_RATIO:.0%}; reduce the loads"
            )


def run_campaign(
    instances: Sequence[Instance],
    names: Sequence[str],
    kinds: Sequence[str],
    pace: Pace,
    directory: Path,
    *,
    watched_s: float,
    anew: bool = False,
    command: Sequence[str] = (),
    write_line: Callable[[str], None] = print,
) -> int:
    """Run the campaign and write its report. Returns 0 if all expectations are met, else 1."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {"pace": pace.name, "poll_interval_ms": pace.poll_interval_ms}
    wanted = {kind: names if kind == JUMP else [report.OURS] for kind in kinds}
    records, finished = [], []
    for instance in instances:
        made_with = {**settings, "watched_s": watched_s}
        kept = KeptRuns(
            directory / DIRECTORY,
            {**made_with, "instance": instance.as_json()},
            same_code=lambda found: not anew and origin.same_code(found),
        )
        bounds = lower_bounds(instance, watched_s)
        found = new_record(instance, watched_s, bounds, made_with)
        for kind, contenders in wanted.items():
            _run(instance, kind, contenders, pace, found, kept, command)
        (directory / f"{instance.name}.json").write_text(json.dumps(found) + "\n")
        write_line(report.line(found))
        records.append(found)
        finished.append(kept)
    expectations = report.expectations(records)
    made = report.build({**reports.machine(), **settings}, watched_s, records, expectations)
    paths = [directory / "report.json", directory / "report.md"]
    paths[0].write_text(json.dumps(made, indent=2) + "\n")
    paths[1].write_text(f"{report.section(made)}\n")
    write_line(f"\n{report.section(made)}\n\n{console.verdicts(expectations)}\n")
    write_line("\n".join(map(str, paths)))
    if not any(one["failures"] for one in records):
        for kept in finished:
            kept.remove()
    return 0 if expectations and all(one.met for one in expectations) else 1


def _run(
    instance: Instance,
    kind: str,
    names: Sequence[str],
    pace: Pace,
    record: dict[str, Any],
    kept: KeptRuns,
    command: Sequence[str],
) -> None:
    """Make the runs of a jump or of its control, and add them to its record."""
    watched_s = record["watched_s"]
    load = functools.partial(SeededLoad, instance=instance, watched_s=watched_s, jumps=kind == JUMP)
    layout, name = layout_of(instance), f"{instance.name} {kind}"
    scenario = Scenario(name, "", layout, load, contenders=(), undisturbed=True)
    result = running.compare(scenario, names, pace, 1, kept, command)
    record["failures"] += [f"{kind}, {failure}" for failure in result.failures]
    perfect_ratio = record["perfect"]["loss_ratio"] if kind == JUMP else None
    for contender, (seen,) in result.observed.items():
        details = {k: v for k, v in seen.outcome.details.items() if k not in ("readings", "hot")}
        record[kind][contender] = {
            **run_figures(result.figures[contender][0], perfect_ratio),
            "origin": dict(seen.origin),
            "details": {**details, "cpu_s": dict(seen.cpu_s)},
        }
