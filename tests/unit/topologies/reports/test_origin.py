"""Where runs come from: what is recorded of each, and what is said where nothing was."""

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
    """The code that runs is of a commit that nothing was changed in."""
    monkeypatch.setattr(origin, "_code", lambda: {"commit": COMMIT, "modified": False})


def test_a_run_tells_all_that_its_figures_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_framework_is_the_one_that_the_service_runs_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin, "_version", lambda name: f"1 of {name}")
    monkeypatch.delenv(origin.FRAMEWORK_VARIABLE, raising=False)
    assert origin._framework() == "os-ken 1 of os-ken"
    monkeypatch.setenv(origin.FRAMEWORK_VARIABLE, "ryu")
    assert origin._framework() == "ryu 1 of ryu"


def test_runs_are_of_the_same_code_only_if_commit_and_changes_are_the_same() -> None:
    assert origin.same_code({"commit": COMMIT, "modified": False, "date": "now"})
    assert not origin.same_code({"commit": COMMIT, "modified": True})
    assert not origin.same_code({"commit": COMMIT[::-1], "modified": False})
    assert not origin.same_code({})


def test_every_report_that_is_kept_can_be_read_whatever_it_records() -> None:
    paths = sorted(RESULTS.glob("*.json"))
    assert paths
    for path in paths:
        origins = origin.of_runs(json.loads(path.read_text()))
        assert origins, path.name
        assert all(origin.described(origins).values()), path.name


def test_what_was_not_recorded_is_said_so() -> None:
    assert set(origin.described([{}, {}]).values()) == {origin.NOT_RECORDED}
    new = {"commit": COMMIT, "date": "2026-11-23", "load_average": [0.5, 1, 1], "command": "a"}
    told = origin.described([{}, new, {**new, "date": "2026-11-24", "load_average": [2.5, 1, 1]}])
    assert told["dates of the runs"] == ("2026-11-23 to 2026-11-24; not recorded for 1 of 3 runs")
    assert told["load average at their start"].startswith("0.5 to 2.5; not recorded")
    assert told["command"] == "not recorded; a"
    assert told["commit"] == f"not recorded; {COMMIT}"


def test_runs_of_reports_of_every_kind_are_found() -> None:
    one, two = {"commit": "1"}, {"commit": "2"}
    runs = {"a": {"runs": [{"origin": one}, {}]}}
    assert origin.of_runs({"scenarios": [{"contenders": runs}], "contenders": runs}) == [one, {}]
    jumps = [{"jump": {"a": {"origin": one}}, "control": {"a": {}}}]
    assert origin.of_runs({"seeds": jumps, "origin": two}) == [one, two]
    assert origin.of_runs({"rows": [{"origin": one}]}) == [one]
