"""All jumps, one after another: each contender, the control, and a file for each jump.

`DIR/shift_seeds/NAME.json` is written when a jump is done, so a campaign that was interrupted
goes on with `--resume`.
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
from topologies.seeds import generator, judging, report
from topologies.seeds.instance import FITS_RATIO, Instance
from topologies.seeds.outcome import CONTROL, JUMP, bound, record, resumable, told

USUAL = (judging.OURS, "balance-slb/1s")
WATCHED_S, QUICK_WATCHED_S = 15.0, 6.0
MOST_QUICK = 2


def answerable(instances: Sequence[Instance]) -> None:
    """Refuse a jump that no placement of whole VM ports answers.

    Raises:
        ValueError: there is one; the message says which.
    """
    for one in instances:
        if not generator.answered(one):
            raise ValueError(
                f"{one.name}: no placement keeps every uplink below {FITS_RATIO:.0%}"
                " -> loads that have one"
            )


def campaign(
    instances: Sequence[Instance],
    names: Sequence[str],
    kinds: Sequence[str],
    pace: Pace,
    directory: Path,
    *,
    watched_s: float,
    resume: bool,
    command: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> int:
    """Run what is wanted, and report; 0: everything expected is met, 1: something is not."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {"pace": pace.name, "poll_interval_ms": pace.poll_interval_ms}
    wanted = [(JUMP, name) for name in names if JUMP in kinds]
    wanted += [(CONTROL, name) for name in (judging.OURS,) if CONTROL in kinds]
    records = []
    for instance in instances:
        path = directory / f"{instance.name}.json"
        found = _kept(path) if resume else None
        keys = {f"{kind} {name}" for kind, name in wanted}
        if found is None or not resumable(
            found, instance, {**settings, "watched_s": watched_s}, keys
        ):
            found = _jump(instance, wanted, pace, watched_s, settings, command)
            path.write_text(json.dumps(found) + "\n")
        say(report.line(found))
        records.append(found)
    judged = judging.expectations(records)
    environment = {**reports.machine(), **settings}
    made = report.build(environment, watched_s, records, judged)
    (directory / "report.json").write_text(json.dumps(made, indent=2) + "\n")
    (directory / "report.html").write_text(report.page(made))
    say("")
    say(console.table(report.table(made)))
    say("")
    say(console.verdicts(judged))
    say("")
    say(f"{directory / 'report.json'}\n{directory / 'report.html'}")
    return 0 if judged and all(one.met for one in judged) else 1


def _jump(
    instance: Instance,
    wanted: Sequence[tuple[str, str]],
    pace: Pace,
    watched_s: float,
    settings: Mapping[str, Any],
    command: Sequence[str],
) -> dict[str, Any]:
    """The record of a jump after all its runs; one that fails is told, and noted in it."""
    bounds = bound(instance, watched_s)
    found = record(instance, watched_s, bounds, {**settings, "watched_s": watched_s})
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
        made_by = origin.origin(command)
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
            **told(figures.figures(layout, seen), perfect_ratio),
            "origin": made_by,
            "details": {**details, "cpu_s": dict(seen.cpu_s)},
        }
    return found


def _kept(path: Path) -> Mapping[str, Any] | None:
    """An earlier record; None if there is none that can be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
