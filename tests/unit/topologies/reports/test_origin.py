"""The origin of runs: what is recorded, and the texts if something is not."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from topologies.reports import origin

RESULTS = Path(__file__).resolve().parents[4] / "docs" / "results"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running code is an unmodified commit."""
    monkeypatch.setattr(origin, "_code", lambda: {"commit": COMMIT, "modified": False})


def test_origin_has_everything_that_figures_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1.234, 2.0, 3.5))
    before = datetime.now(UTC).replace(microsecond=0)
    found = origin.origin(["ovs-lbt", "bench", "shift", "--scenario", "an uplink fails"])
    assert found["commit"] == COMMIT
    assert found["modified"] is False
    assert before <= datetime.fromisoformat(found["date"]) <= datetime.now(UTC)
    assert found["load_average"] == [1.23, 2.0, 3.5]
    assert found["command"] == "ovs-lbt bench shift --scenario 'an uplink fails'"
    assert {"kernel", "Python", "framework"} <= set(found["versions"])
    assert json.loads(json.dumps(found)) == found


def test_origin_does_not_tell_where_the_program_is() -> None:
    found = origin.origin(["/somewhere/.venv/bin/python", "-m", "topologies.scale", "/data"])
    assert found["command"] == "python -m topologies.scale /data"


def test_origin_has_the_framework_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin, "_version", lambda name: f"1 of {name}")
    monkeypatch.delenv(origin.FRAMEWORK_VARIABLE, raising=False)
    assert origin._framework() == "os-ken 1 of os-ken"
    monkeypatch.setenv(origin.FRAMEWORK_VARIABLE, "ryu")
    assert origin._framework() == "ryu 1 of ryu"


def test_same_code_compares_commit_and_changes() -> None:
    assert origin.same_code({"commit": COMMIT, "modified": False, "date": "now"})
    assert not origin.same_code({"commit": COMMIT, "modified": True})
    assert not origin.same_code({"commit": COMMIT[::-1], "modified": False})
    assert not origin.same_code({})


def test_every_stored_report_has_readable_origins() -> None:
    paths = sorted(RESULTS.glob("*.json"))
    assert paths
    for path in paths:
        origins = origin.of_runs(json.loads(path.read_text()))
        assert origins, path.name
        assert all(origin.described(origins).values()), path.name


def test_missing_parts_are_reported_as_not_recorded() -> None:
    assert set(origin.described([{}, {}]).values()) == {origin.NOT_RECORDED}
    new = {"commit": COMMIT, "date": "2026-11-23", "load_average": [0.5, 1, 1], "command": "a"}
    texts = origin.described([{}, new, {**new, "date": "2026-11-24", "load_average": [2.5, 1, 1]}])
    assert texts["dates of the runs"] == ("2026-11-23 to 2026-11-24; not recorded for 1 of 3 runs")
    assert texts["load average at their start"].startswith("0.5 to 2.5; not recorded")
    assert texts["command"] == "not recorded; a"
    assert texts["commit"] == f"not recorded; {COMMIT}"


def test_runs_of_all_kinds_of_reports_are_found() -> None:
    one, two = {"commit": "1"}, {"commit": "2"}
    runs = {"a": {"runs": [{"origin": one}, {}]}}
    assert origin.of_runs({"scenarios": [{"contenders": runs}], "contenders": runs}) == [one, {}]
    jumps = [{"jump": {"a": {"origin": one}}, "control": {"a": {}}}]
    assert origin.of_runs({"seeds": jumps, "origin": two}) == [one, two]
    assert origin.of_runs({"rows": [{"origin": one}]}) == [one]


def test_a_commit_that_was_rebased_is_named_as_it_is_here() -> None:
    page = (
        "| a file names | here it is |\n|---|---|\n"
        "| `aaaaaaa` (`x.json` before `ccccccc`), `bbbbbbb`, modified | `0123456`, and more |\n"
        "| `ddddddd` | not in the history; `eeeeeee` published the figures |\n"
    )
    here = origin.rebased(page)
    assert here == {"aaaaaaa": "0123456", "bbbbbbb": "0123456"}
    rows = [{"origin": {"commit": one * 40}} for one in "abfa"]
    assert origin.commits({"rows": rows}, here) == "`0123456`, `fffffff`"
    assert origin.commits({"rows": [*rows, {}]}, {}).endswith(", `fffffff`, not recorded")
