"""Runs a campaign of load jumps: each jump with each contender, and its control.

Each completed jump has a record in `DIR/shift_seeds/NAME.json`, so `--resume` can continue an
interrupted campaign.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.compare import contenders, figures, run
from topologies.compare.pace import Pace
from topologies.compare.scenario import Scenario
from topologies.loads.seeded_load import SeededLoad, layout_of
from topologies.reports import console, origin
from topologies.reports import report as reports
from topologies.seeds import conditions, generator, report
from topologies.seeds.instance import FEASIBLE_RATIO, Instance
from topologies.seeds.records import (
    CONTROL,
    JUMP,
    is_reusable,
    lower_bounds,
    new_record,
    run_figures,
)

DEFAULT_CONTENDERS = (conditions.OURS, "balance-slb/1s")
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
                f"{one.name}: no placement keeps every uplink below {FEASIBLE_RATIO:.0%}"
                " -> loads with such a placement"
            )


def run_campaign(
    instances: Sequence[Instance],
    names: Sequence[str],
    kinds: Sequence[str],
    pace: Pace,
    directory: Path,
    *,
    watched_s: float,
    resume: bool,
    command: Sequence[str] = (),
    write_line: Callable[[str], None] = print,
) -> int:
    """Run the campaign and write its report. Returns 0 if all expectations are met, else 1."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {"pace": pace.name, "poll_interval_ms": pace.poll_interval_ms}
    wanted = [(JUMP, name) for name in names if JUMP in kinds]
    wanted += [(CONTROL, name) for name in (conditions.OURS,) if CONTROL in kinds]
    records = []
    for instance in instances:
        path = directory / f"{instance.name}.json"
        found = _read_record(path) if resume else None
        keys = {f"{kind} {name}" for kind, name in wanted}
        if found is None or not is_reusable(
            found, instance, {**settings, "watched_s": watched_s}, keys
        ):
            found = _run_jump(instance, wanted, pace, watched_s, settings, command)
            path.write_text(json.dumps(found) + "\n")
        write_line(report.line(found))
        records.append(found)
    expectations = conditions.expectations(records)
    environment = {**reports.machine(), **settings}
    made = report.build(environment, watched_s, records, expectations)
    (directory / "report.json").write_text(json.dumps(made, indent=2) + "\n")
    (directory / "report.md").write_text(f"{report.section(made)}\n")
    write_line("")
    write_line(console.table(report.table(made)))
    write_line("")
    write_line(console.verdicts(expectations))
    write_line("")
    write_line(f"{directory / 'report.json'}\n{directory / 'report.md'}")
    return 0 if expectations and all(one.met for one in expectations) else 1


def _run_jump(
    instance: Instance,
    wanted: Sequence[tuple[str, str]],
    pace: Pace,
    watched_s: float,
    settings: Mapping[str, Any],
    command: Sequence[str],
) -> dict[str, Any]:
    """Make all runs of a jump, and return its record. A failed run is printed and recorded."""
    bounds = lower_bounds(instance, watched_s)
    found = new_record(instance, watched_s, bounds, {**settings, "watched_s": watched_s})
    layout = layout_of(instance)
    capacities_bps = figures.capacities_bps(layout)
    for number, (kind, name) in enumerate(wanted, start=1):
        jumps = kind == JUMP
        scenario = Scenario(
            name=f"{instance.name} {kind}",
            what="",
            layout=layout,
            load=functools.partial(SeededLoad, instance=instance, watched_s=watched_s, jumps=jumps),
            contenders=(),
            undisturbed=True,
        )
        progress = console.ProgressLine(
            f"{scenario.name} {number}/{len(wanted)}", name, capacities_bps
        )
        run_origin = origin.origin(command)
        try:
            seen = run.run(scenario, contenders.by_name(name), pace, progress)
        except RuntimeError as failure:
            found["failures"].append(f"{kind}, {name}: {failure}")
            print(f"\n{scenario.name}: {name}: {failure}", file=sys.stderr)
            continue
        progress.finish()
        perfect_ratio = bounds.perfect.loss_ratio if jumps else None
        details = {k: v for k, v in seen.outcome.details.items() if k not in ("readings", "hot")}
        found[kind][name] = {
            **run_figures(figures.figures(layout, seen), perfect_ratio),
            "origin": run_origin,
            "details": {**details, "cpu_s": dict(seen.cpu_s)},
        }
    return found


def _read_record(path: Path) -> Mapping[str, Any] | None:
    """The record of an earlier campaign; None if it is missing or unreadable."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
