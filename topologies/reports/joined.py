"""Joins the reports of a layout whose scenarios were measured apart.

    python -m topologies.reports.joined docs/results/NAME.json out/NAME/report.json

It adds the scenarios of the second report to the first. Each run keeps its own origin, so that the
document shows every commit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MACHINE = ("open_vswitch", "datapath", "kernel", "python", "cpus")


def joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first report with the scenarios of the second after its own.

    If the machines differ, the environment has both values. If only one report knows a setting, it
    was added later, and the environment has it.

    Raises:
        ValueError: the reports are of different layouts or settings, or both have a scenario.
    """
    if first["layout"] != second["layout"]:
        raise ValueError(f"layout: {second['layout']} -> {first['layout']}")
    names = {scenario["name"] for scenario in first["scenarios"]}
    if both := [one["name"] for one in second["scenarios"] if one["name"] in names]:
        raise ValueError(f"scenario {both[0]}: in both reports -> in one of them")
    return {
        **first,
        "environment": _environment(first["environment"], second["environment"]),
        "scenarios": [*first["scenarios"], *second["scenarios"]],
        "expectations": [*first["expectations"], *second["expectations"]],
    }


def _environment(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of both reports."""
    one, other = ({**env, **env["pace"]} for env in (first, second))
    for key in sorted(one.keys() & other.keys() - {*MACHINE, "pace"}):
        if one[key] != other[key]:
            raise ValueError(f"{key}: {other[key]} -> {one[key]}, as in the first report")
    machine = {
        key: one[key] if one[key] == other[key] else f"{one[key]}; {other[key]}" for key in MACHINE
    }
    return {**first, **machine, "pace": {**second["pace"], **first["pace"]}}


def main(arguments: Sequence[str]) -> int:
    """Add the scenarios of the second report to the first, in its file."""
    if len(arguments) != 2 or any(one.startswith("-") for one in arguments):
        print("usage: python -m topologies.reports.joined REPORT ADDED_REPORT", file=sys.stderr)
        return 2
    path, added = map(Path, arguments)
    try:
        first = json.loads(path.read_text())
        report = joined(first, json.loads(added.read_text()))
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(report, indent=2) + "\n")
        os.replace(partial, path)
    except (OSError, ValueError, KeyError, TypeError) as failure:
        print(f"joined: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
