#!/usr/bin/env python3
"""`make fuzz`: searches each target for cases that fail; the summary is in out/fuzz/summary.json.

Exit status 1 if any case fails. Its bytes are in out/fuzz/TARGET/failed, and the search starts again from
bytes in tests/unit/fuzz/corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.unit.fuzz import corpus
from tests.unit.fuzz.targets import TARGETS
from topologies.reports.origin import origin

# How much longer a search may take than it should.
BLOCKED_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, help="per target (default: 600 for a parser)")
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="(default: all)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    parser.add_argument(
        "--keep", action="store_true", help="store the inputs that reach the most code"
    )
    options = parser.parse_args()
    began_s = time.monotonic()

    def search(name: str) -> dict[str, Any]:
        directory = options.out / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        seconds = options.seconds or TARGETS[name].seconds
        words = [name, str(seconds), str(directory)]
        words += [str(corpus.MOST_BYTES // len(TARGETS))] if options.keep else []
        with (directory / "log").open("w") as log:
            command = ["timeout", str(seconds + BLOCKED_S)]
            command += [sys.executable, "-m", "tests.unit.fuzz.guided", *words]
            ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT)
        result = directory / "result.json"
        found = json.loads(result.read_text()) if result.exists() else {"cases": 0, "seconds": 0}
        bad = found.pop("failure", f"exit status {ended.returncode}: {directory}/log")
        return {**found, "failures": [bad] if bad else []}

    # Long ones first, so that no process is left alone with them.
    names = sorted(options.target or TARGETS, key=lambda name: -TARGETS[name].seconds)
    with ThreadPoolExecutor(options.processes) as pool:
        found = dict(zip(names, pool.map(search, names), strict=True))
    summary = {
        "origin": origin(["python", "-m", "tests.unit.fuzz", *sys.argv[1:]]),
        "cases": sum(of["cases"] for of in found.values()),
        "failures": sum(len(of["failures"]) for of in found.values()),
        "seconds": round(time.monotonic() - began_s, 1),
        "targets": found,
    }
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    for name, of in found.items():
        print(f"{name:16} {of['cases']:7} cases {of['seconds']:8.1f} s", *of["failures"], sep="\n")
    print(f"{summary['cases']} cases, {summary['failures']} failed: {options.out}/summary.json")
    return 1 if summary["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
