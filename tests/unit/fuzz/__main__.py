#!/usr/bin/env python3
"""`make fuzz`: so many cases over all targets, their summary in out/fuzz/summary.json.

Exit status 1 if any case fails; its batch's number, given as `--seed` with `--target`, shows it
again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.fuzz.runs import run
from tests.unit.fuzz.targets import TARGETS
from topologies.reports.origin import origin

BATCH = 500
# Of a failure, as much as shows the case.
MOST_CHARACTERS = 4000


@dataclass(frozen=True)
class Batch:
    """What came of one: how many cases, how long they took, how the smallest bad one failed."""

    target: str
    number: int
    cases: int
    seconds: float
    failure: str | None


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first batch (%(default)s)")
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="(default: all)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    options = parser.parse_args()
    chosen = {name: TARGETS[name] for name in options.target or TARGETS}
    whole = sum(target.weight for target in chosen.values())
    jobs = []
    for name, target in chosen.items():
        cases = -(-options.cases * target.weight // whole)
        sizes = [min(BATCH, cases - at) for at in range(0, cases, BATCH)]
        jobs += [(name, options.seed + number, size) for number, size in enumerate(sizes)]
    # Long ones first, so that no process is left alone with them.
    jobs.sort(key=lambda job: chosen[job[0]].weight)
    options.out.mkdir(parents=True, exist_ok=True)
    began_s, found = time.monotonic(), []
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.processes, context) as pool:
        futures: list[Future[Batch]] = [pool.submit(_batch, *job) for job in jobs]
        for future in as_completed(futures):
            found.append(future.result())
            summary = _summary(found, time.monotonic() - began_s)
            # Each time, so that a run that is ended early has told what it found.
            (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
            _tell(found, options.cases, time.monotonic() - began_s)
    print(file=sys.stderr)
    for name, of in summary["targets"].items():
        print(
            f"{name:16} {of['cases']:7} cases {of['seconds']:8.1f} s {len(of['failures'])} failed"
        )
    print(f"{summary['cases']} cases, {summary['failures']} failed: {options.out}/summary.json")
    return 1 if summary["failures"] else 0


def _batch(name: str, number: int, cases: int) -> Batch:
    began_s, done, failure = time.monotonic(), 0, None
    try:
        done = run(TARGETS[name], cases, number)
    except BaseException as error:
        text = "".join(traceback.format_exception(error, limit=-6))
        failure = text[-MOST_CHARACTERS:]
        if isinstance(error, KeyboardInterrupt):
            raise
    return Batch(name, number, done, time.monotonic() - began_s, failure)


def _tell(found: list[Batch], cases: int, seconds: float) -> None:
    done, failed = sum(b.cases for b in found), sum(b.failure is not None for b in found)
    line = f"{done} of {cases} cases, {failed} batches failed, {seconds:.0f} s"
    print(f"\r{line}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


def _summary(found: list[Batch], seconds: float) -> dict[str, Any]:
    targets: dict[str, Any] = {
        name: {"cases": 0, "seconds": 0.0, "failures": []} for name in TARGETS
    }
    for batch in found:
        of = targets[batch.target]
        of["cases"] += batch.cases
        of["seconds"] = round(of["seconds"] + batch.seconds, 1)
        if batch.failure is not None:
            of["failures"].append({"seed": batch.number, "failure": batch.failure})
    return {
        "origin": origin(["python", "-m", "tests.unit.fuzz", *sys.argv[1:]]),
        "cases": sum(batch.cases for batch in found),
        "failures": sum(batch.failure is not None for batch in found),
        "seconds": round(seconds, 1),
        "targets": {name: of for name, of in targets.items() if of["cases"] or of["failures"]},
    }


if __name__ == "__main__":
    sys.exit(main())
