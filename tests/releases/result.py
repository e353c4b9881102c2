"""What came of a run, as JSON: read again by the next run of other steps, and by the table of releases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topologies.reports import stored

FILE = "result.json"
PASSED, FAILED, ENDED, NO_TEST = "passed", "failed", "not done in time", "no test ran"


def begun(path: Path, commit: str) -> dict[str, Any]:
    """What earlier runs of the same commit have found; nothing of another one's."""
    if path.exists():
        found: dict[str, Any] = stored.read(path)
        if found.get("commit") == commit:
            return found
    return {"commit": commit, "steps": []}


def with_step(result: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """The same with a step, in the place of an earlier run of it."""
    steps = [one for one in result["steps"] if one["name"] != step["name"]]
    return {**result, "steps": [*steps, step]}


def write(path: Path, result: dict[str, Any]) -> None:
    path.write_text(stored.text(result))


def is_bad(step: Mapping[str, Any]) -> bool:
    return bool(step["verdict"] != PASSED)


def lines(result: dict[str, Any]) -> list[str]:
    """The summary: a line for each step."""
    head = (
        f"{result['distribution']}, Open vSwitch {result['openvswitch']}, Python {result['python']},"
        f" commit {result['commit']}"
    )
    return [head, *(f"  {_line(step)}" for step in result["steps"])]


def _line(step: dict[str, Any]) -> str:
    counts = ", ".join(
        f"{step[kind]} {kind}" for kind in ("passed", "failed", "rerun", "skipped") if step[kind]
    )
    verdict = "PASS" if step["verdict"] == PASSED else "FAIL"
    why = "" if step["verdict"] in (PASSED, FAILED) else f", {step['verdict']}"
    return f"{verdict}  {step['name']:<12} {step['seconds']:6.0f} s  {counts or 'no counts'}{why}"
