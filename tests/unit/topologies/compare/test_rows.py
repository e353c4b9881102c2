"""Runs that are rows of a report: by turns, and after an interruption only those that are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from topologies.compare.rows import Rows

NAMES = ["dynamic", "balance-slb"]


def _run(
    path: Path, repetitions: int, failing: str = "", anew: bool = False, **settings: Any
) -> tuple[list[str], dict[str, Any]]:
    """The contenders that ran, and the report."""
    ran: list[str] = []

    def measure(name: str) -> dict[str, Any]:
        ran.append(name)
        if name == failing:
            raise RuntimeError("no answer")
        return {"found": len(ran)}

    rows = Rows(path, "rows", settings, ["ovs-lbt", "bench"], lambda _text: None)
    return ran, rows.run(NAMES, repetitions, measure, anew)


def test_only_missing_runs_are_made(tmp_path: Path) -> None:
    path = tmp_path / "out" / "report.json"
    ran, report = _run(path, 2, failing="balance-slb", sizes=(1, 2))
    assert ran == NAMES * 2, "by turns"
    assert report["failed"] == ["balance-slb: no answer"] * 2
    assert json.loads(path.read_text())["sizes"] == [1, 2]
    ran, report = _run(path, 2, sizes=(1, 2))
    assert ran == ["balance-slb"] * 2
    assert "failed" not in report
    cases = [(row["contender"], row["repetition"]) for row in report["rows"]]
    assert sorted(cases) == [(name, number) for name in sorted(NAMES) for number in (1, 2)]
    assert all(row["origin"]["command"] == "ovs-lbt bench" for row in report["rows"])
    assert _run(path, 2, sizes=(1, 2))[0] == []


def test_runs_with_other_settings_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    _run(path, 1, sizes=[1])
    assert _run(path, 1, sizes=[2])[0] == NAMES
    assert _run(path, 1, anew=True, sizes=[2])[0] == NAMES
    path.write_text("no JSON")
    assert _run(path, 1)[0] == NAMES
