"""Stored raw figures have the values of the report that they are made from, in fewer bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.topologies import bench_reports as bench
from topologies.reports import stored

ORIGIN = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "modified": False,
    "versions": {"Python": "3.11.2"},
    "command": "ovs-lbt bench shift",
    "date": "2026-11-23T18:26:25+00:00",
    "load_average": [1.5, 2.0, 3.0],
}


def kept(tmp_path: Path, report: Any) -> Any:
    path = tmp_path / "stored.json"
    path.write_text(stored.text(report))
    return stored.read(path)


@pytest.mark.parametrize(
    "report",
    [
        [],
        {"runs": [{"by": "a", "lost": 0}]},
        {"runs": [{"by": "a", "lost": 0}, {"by": "a", "lost": None}]},
        {"runs": [{"by": "a"}, {"by": "a", "lost": {"up": 1, "down": [1, 2]}}]},
        {"runs": [{"cuts": [{"ms": 1.5}, {"ms": 2.5}]}, {"cuts": []}], "empty": {}},
        {"runs": [{"alive": True}, {"alive": True}, {}]},
        {"moves": 2, "runs": [{"moves": 1}, {"moves": 2}, {"moves": 5}], "other": 1},
        {"moves": 2, "runs": [{"moves": 1, "more": 1}, {"moves": 3, "more": 2}]},
        {"runs": [0.5, 1]},
        {"runs": [{"by": by} for by in ("a", "b", "a", "b", "b")]},
        {"n": 3, "each": [1, 2]},
    ],
)
def test_what_is_read_is_what_was_stored(tmp_path: Path, report: Any) -> None:
    assert kept(tmp_path, report) == report


def test_what_made_several_runs_is_stored_once(tmp_path: Path) -> None:
    runs = [{"lost": n, "origin": {**ORIGIN, "load_average": [n, 2.0, 3.0]}} for n in range(5)]
    found = kept(tmp_path, {"runs": runs})
    assert (tmp_path / "stored.json").read_text().count("ovs-lbt bench shift") == 1
    assert kept(tmp_path, runs) == found["runs"]
    own = {"date": "2026-11-23T18:26"}
    assert found["runs"] == [
        {"lost": n, "origin": {**ORIGIN, **own, "load_average": [n]}} for n in range(5)
    ]


def test_a_report_is_stored_with_the_figures_that_documents_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = bench.report()
    whole, out = tmp_path / "report.json", tmp_path / "NAME.json"
    whole.write_text(json.dumps(report))
    assert stored.main([str(whole), str(out)]) == 0
    found = stored.read(out)
    assert found.keys() == report.keys() - {"contenders"}
    before, after = (one["scenarios"][0]["contenders"]["dynamic"] for one in (report, found))
    assert before.keys() - after.keys() == {"cpu_s", "cpu_s_ovs-vswitchd"}
    for one, kept_run in zip(before["runs"], after["runs"], strict=True):
        assert kept_run == {name: one[name] for name in after if name != "runs"}
    assert stored.main([]) == 2
    whole.write_text("not JSON")
    assert stored.main([str(whole), str(out)]) == 1
    assert "stored: " in capsys.readouterr().err


def test_lines_are_short_where_they_can_be(tmp_path: Path) -> None:
    text = stored.text({"names": [f"name {n}" for n in range(40)], "runs": {"a": {"b": 1}}})
    assert len(text.splitlines()) == 4
