"""Documents promise what was run, and no more; a run's output is counted as it is meant."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.operations import advice
from tests.releases import result, running, table
from tests.releases.steps import FRESH, KERNEL, SHORT, Step, counted

CHECKOUT = Path(__file__).parents[3]


def test_the_table_is_what_was_run() -> None:
    text = (CHECKOUT / table.PAGE).read_text()
    assert table.with_table(text, table.read(CHECKOUT)) == text, (
        "again: python -m tests.releases publish"
    )


def test_attach_knows_the_releases_of_the_table_and_no_other() -> None:
    attached = {
        advice.release_of(one["openvswitch"])
        for one in table.read(CHECKOUT)
        if any(s["name"] == "attach" and s["verdict"] == result.PASSED for s in one["steps"])
    }
    assert attached == {*advice.RUN_ON}


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "Makefile",
        "setup.cfg",
        ".ci/setup",
        "docs/guide/install.md",
        "docs/releases.md",
    ],
)
def test_no_distribution_or_python_is_promised_that_is_not_in_the_table(document: str) -> None:
    found = table.read(CHECKOUT)
    text = (CHECKOUT / document).read_text()
    text = text.partition(table.BEGIN)[0] + text.partition(table.END)[2]
    ran = {(one["distribution"].split()[0], _release(one["distribution"])) for one in found}
    named = re.findall(r"\b(Debian|Ubuntu) (\d\d(?:\.\d\d)?)(?!\.?\d| itself)", text)
    assert {*named} <= ran
    pythons = {".".join(one["python"].split(".")[:2]) for one in found}
    classified = re.findall(r"Programming Language :: Python :: (3\.\d+)", text)
    assert {*classified} <= pythons


def _release(distribution: str) -> str:
    number = re.search(r"\d\d(?:\.\d\d)?", distribution)
    return number[0] if number else ""


@pytest.mark.parametrize(
    ("text", "passed", "failed"),
    [
        ("35 passed in 36.43s", 35, 0),
        ("=== 3 failed, 76 passed, 1 rerun, 2 warnings in 100.01s (0:01:40) ===", 76, 3),
        ("1 passed in 1.00s\nmore\n2 passed, 1 error in 2.00s\n", 3, 1),
        ("PASS  four phases: 4\nFAIL  2 moves: 3\n", 1, 1),
        ("out/seed-1.json: 300 events, 1 violations\n", 299, 1),
        ("500 of 1000 cases, 0 batches failed, 3 s\r1000 cases, 0 failed: out\n", 1000, 0),
        ("nothing passed in time", 0, 0),
        ("", 0, 0),
    ],
)
def test_a_log_is_counted_by_its_last_lines_and_verdicts(
    text: str, passed: int, failed: int
) -> None:
    counts = counted(text)
    assert (counts["passed"], counts["failed"]) == (passed, failed)


def test_every_test_file_of_a_step_is_there() -> None:
    files = re.findall(
        r"tests/\S+\.(?:py|sh)", " ".join(step.command for step in FRESH + KERNEL + SHORT)
    )
    assert len(files) > 7
    assert [file for file in files if not (CHECKOUT / file).exists()] == []


def test_a_step_that_fails_or_is_late_is_no_success(tmp_path: Path) -> None:
    told: list[str] = []

    def run(command: str, limit_s: float = 60) -> dict[str, Any]:
        step = Step("x", "x", command, limit_s)
        return running.run(step, ["bash", "-c", command], tmp_path / "x.log", told.append)

    assert run("echo 1 passed in 1.00s")["verdict"] == result.PASSED
    assert run("echo 1 passed in 1.00s; exit 1")["verdict"] == result.FAILED
    assert run("echo 1 failed in 1.00s")["verdict"] == result.FAILED
    skipped = run("echo 'SKIPPED [2] tests/a.py:7: no b'; echo 2 skipped in 1.00s")
    assert (skipped["verdict"], skipped["skips"]) == (result.NO_TEST, {"tests/a.py: no b": 2})
    late = run("sleep 60", limit_s=0.05)
    assert late["status"] is None
    # A busy machine ends it late.
    assert re.fullmatch(r"not done in time: \d+ s, over the limit of 0.05 s", late["verdict"])
    assert told[-1].startswith("x: not done in time")


def test_what_is_not_committed_is_not_published(tmp_path: Path) -> None:
    path = tmp_path / result.FILE
    path.write_text(json.dumps({"commit": "abc+changes"}))
    assert table.publish([path], tmp_path) == 1
    assert [one.name for one in tmp_path.iterdir()] == [result.FILE]


@pytest.mark.system
def test_scripts_are_sound() -> None:
    scripts = (CHECKOUT / "tests/releases").glob("*.sh")
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
