"""Scenarios of a layout that were measured apart come together in one report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from topologies.reports.joined import joined, main

MACHINE = {"open_vswitch": "3.1", "datapath": "userspace", "python": "3.11", "cpus": 2}


def report(
    *scenarios: str, layout: str = "two", pace: str = "accelerated", kernel: str = "6.1"
) -> dict[str, Any]:
    return {
        "layout": layout,
        "environment": {**MACHINE, "kernel": kernel, "pace": {"name": pace}, "direction": "send"},
        "contenders": {"load-based": {"throughput_bps": len(scenarios)}},
        "scenarios": [{"name": name, "contenders": {}} for name in scenarios],
        "expectations": [{"condition": f"{name} ends", "met": True} for name in scenarios],
    }


def test_scenarios_and_expectations_of_the_second_follow() -> None:
    found = joined(report("even"), report("skewed", "failing"))
    assert [one["name"] for one in found["scenarios"]] == ["even", "skewed", "failing"]
    assert [one["condition"].split()[0] for one in found["expectations"]] == [
        "even",
        "skewed",
        "failing",
    ]
    assert found["contenders"] == report("even")["contenders"], "those of the main scenario"


def test_what_differs_between_the_machines_is_told_of_both() -> None:
    first, second = report("even"), report("skewed", kernel="6.18")
    second["environment"]["pace"]["moves"] = 20
    found = joined(first, second)["environment"]
    assert (found["kernel"], found["python"]) == ("6.1; 6.18", "3.11")
    assert found["pace"] == {"name": "accelerated", "moves": 20}


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (report("skewed", layout="three"), "layout: three -> two"),
        (report("skewed", pace="quick"), "name: quick -> accelerated"),
        (report("even", "skewed"), "scenario even: in both reports"),
    ],
)
def test_what_does_not_belong_together_is_refused(second: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        joined(report("even"), second)


def test_the_file_of_the_first_has_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "two.json", tmp_path / "report.json"
    first.write_text(json.dumps(report("even")))
    second.write_text(json.dumps(report("skewed")))
    assert main([str(first), str(second)]) == 0
    both = first.read_text()
    assert [one["name"] for one in json.loads(both)["scenarios"]] == ["even", "skewed"]
    assert main([str(first), str(second)]) == 1
    assert "scenario skewed: in both reports" in capsys.readouterr().err
    assert first.read_text() == both, "nothing is lost"
    second.write_text("{")
    assert main([str(first), str(second)]) == 1
    assert main([str(first)]) == 2
