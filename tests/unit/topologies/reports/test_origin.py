"""The origin of runs: what is recorded, and the texts if something is not."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from topologies.reports import origin, stored

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


def test_same_code_compares_commit_and_changes() -> None:
    assert origin.same_code({"commit": COMMIT, "modified": False, "date": "now"})
    assert not origin.same_code({"commit": COMMIT, "modified": True})
    assert not origin.same_code({"commit": COMMIT[::-1], "modified": False})
    assert not origin.same_code({})


def test_every_stored_report_has_readable_origins() -> None:
    paths = sorted(RESULTS.glob("*.json"))
    assert paths
    for path in paths:
        origins = origin.of_runs(stored.read(path))
        assert origins, path.name
        assert all(origin.described(origins).values()), path.name


def test_a_commit_that_was_rebased_is_named_as_it_is_here() -> None:
    listed = (
        "# Measured at -> in this history\n"
        "aaaaaaa -> 0123456; and more\n"
        "bbbbbbb -> 0123456\n"
        "ddddddd -> none; eeeeeee published the figures\n"
    )
    here = origin.rebased(listed)
    assert here == {"aaaaaaa": "0123456", "bbbbbbb": "0123456"}
    rows = [{"origin": {"commit": one * 40}} for one in "abfa"]
    assert origin.commits({"rows": rows}, here) == "`0123456`, `fffffff`"
    assert origin.commits({"rows": [*rows, {}]}, {}).endswith(", `fffffff`, not recorded")
