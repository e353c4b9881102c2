"""`report.json` and the samples beside it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topologies.expectations import Expectation
from topologies.figures import Figures, medians
from topologies.graph import Layout
from topologies.pace import Pace
from topologies.phases import Phase
from topologies.run import Observed
from topologies.web_load import Direction

SIGNIFICANT_DIGITS = 6


def environment(pace: Pace, direction: Direction) -> dict[str, Any]:
    """The machine and the settings that a run's figures depend on."""
    version = subprocess.run(["ovs-vswitchd", "--version"], capture_output=True, text=True)
    return {
        "open_vswitch": version.stdout.partition("\n")[0],
        "datapath": "userspace",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "pace": asdict(pace),
        "direction": str(direction),
    }


def build(
    layout: Layout,
    described: Mapping[str, Any],
    runs: Mapping[str, Sequence[Figures]],
    phases: Sequence[Phase],
    expectations: Sequence[Expectation],
) -> dict[str, Any]:
    """The report of a bench; a figure that was not measured is absent, never zero."""
    contenders: dict[str, Any] = {}
    for name, repetitions in runs.items():
        contenders[name] = {
            **_rounded(medians(repetitions)),
            "runs": [_rounded(one) for one in repetitions],
        }
    report: dict[str, Any] = {
        "layout": layout.name,
        "limit_bps": layout.limit_bps,
        "published": dict(layout.published),
        "environment": dict(described),
        "contenders": contenders,
    }
    if phases:
        report["phases"] = [phase.as_json() for phase in phases]
    report["expectations"] = [asdict(expectation) for expectation in expectations]
    return report


def write(report: Mapping[str, Any], observed: Sequence[Observed], directory: Path) -> Path:
    """Write the report, and everything observed as one JSON line for each run beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "samples.jsonl").open("w") as lines:
        for one in observed:
            lines.write(json.dumps(asdict(one)) + "\n")
    path = directory / "report.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def _rounded(found: Figures) -> Figures:
    whole = ("moves", "downloads")
    return {
        name: int(value)
        if name in whole and value == int(value)
        else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
        for name, value in found.items()
    }
