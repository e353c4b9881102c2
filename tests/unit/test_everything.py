"""`make test-all` contains every test, resumes correctly, and lists what it did not run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.releases import everything, result
from tests.releases.everything import ONLY_ON_THE_KERNEL
from tests.releases.root import RELEASES
from tests.releases.steps import KERNEL

CHECKOUT = everything.CHECKOUT


def test_every_test_file_is_in_a_part() -> None:
    words = {word for part in everything.parts() for word in part.step.command.split()}
    files = {path.relative_to(CHECKOUT) for path in (CHECKOUT / "tests").rglob("test_*.py")}
    assert len(files) > 200
    run = {file for file in files if {str(file), *map(str, file.parents)} & words}
    assert files - run == set()


def test_no_part_runs_only_what_the_kernel_has_in_another() -> None:
    run = " ".join(step.command for step in KERNEL)
    assert all(f"/{name}.py" in run for name in ONLY_ON_THE_KERNEL)


def test_parts_have_names_of_their_own_and_take_six_hours_on_two_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    parts = everything.parts()
    assert len({part.name for part in parts}) == len(parts)
    assert {part.group for part in parts} == {*everything.GROUPS}
    assert everything.minutes(parts) < 360


def test_a_root_runs_its_steps_in_their_order() -> None:
    parts = [part for part in everything.parts() if part.place in RELEASES]
    took_s = {part.name: float(number) for number, part in enumerate(parts)}
    assert everything.planned(parts, took_s) == [
        replace(part, planned_s=took_s[part.name]) for part in parts
    ]


@pytest.mark.system
def test_a_part_counts_until_something_that_it_reads_changes(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit(path: str, text: str) -> str:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", "x")
        return git("rev-parse", "--short", "HEAD")

    parts = {part.name: part for part in everything.parts()}

    def counts(commit: str, verdict: str = result.PASSED, name: str = "switch/vlans") -> bool:
        return everything.counts({"commit": commit, "verdict": verdict}, parts[name], tmp_path)

    git("init", "-q")
    first = commit("code.py", "1")
    assert counts(first)
    assert not counts(first, result.FAILED)
    assert not counts(f"{first}+changes")
    assert not counts("abcdef0"), "a commit of another clone"
    commit(f"{everything.RESULTS}/state.json", "{}")
    assert counts(first)
    second = commit("docs/results/README.md", "tests read it")
    assert (counts(first), counts(second)) == (False, True)
    third = commit("tests/switch/test_vlans.py", "")
    assert not counts(second)
    assert counts(second, name="switch/attach"), "it does not run that file"
    for many in ("checks/lint", "checks/unit", "checks/wire", "bookworm/ryu", "noble/test-quick"):
        assert not counts(second, name=many), "its command does not tell which it runs"
    assert counts(second, name="noble/attach") and counts(second, name="fuzz/frames")
    before = commit("tests/unit/test_x.py", "")
    commit("tests/unit/test_y.py", "from tests.unit.test_x import x")
    commit("tests/unit/test_x.py", "x = 1")
    assert counts(before), "only unit tests import that file"
    commit("tests/switch/test_attach.py", "from tests.switch.test_vlans import x")
    commit("tests/switch/test_vlans.py", "x = 1")
    assert not counts(third, name="times/lacp"), "others import that file"


def test_the_page_names_parts_that_passed_before_files_changed() -> None:
    facts = {"commit": "abcdef0", "machine": "here", "wall_s": 60.0}
    parts = {part.name: part for part in everything.parts()}
    steps = [everything.failed(parts["switch/vlans"], result.PASSED)]
    names = ("switch/vlans", "switch/attach", "fuzz/frames")
    found = [everything.joined(parts[name], steps, **facts) for name in names]
    lines = everything.page(found, {"switch/vlans", "fuzz/frames"}).splitlines()
    assert lines[2].startswith(f"3 of {len(parts)} parts passed (2 of them before files changed")
    at = lines.index("## Passed before files changed that they read")
    assert lines[at + 2 : at + 4] == ["- `switch`: `vlans`", "- `fuzz`: `frames`"]
