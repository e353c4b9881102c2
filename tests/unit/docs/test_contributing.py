"""CONTRIBUTING's example of a policy: its test passes, and replay finds it by its entry point."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from controller.replay.run import GROUP
from tests import documents

NAME = "emptiest"
LONGEST_POLICY_LINES = 35


def fenced(language: str) -> list[str]:
    text = (documents.ROOT / "CONTRIBUTING.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The files of the example, and what `pip install` would add to the environment."""
    directory = tmp_path / NAME
    directory.mkdir()
    policy, test = fenced("python")
    (project,) = fenced("toml")
    (directory / f"{NAME}.py").write_text(policy)
    (directory / f"test_{NAME}.py").write_text(test)
    (directory / "pyproject.toml").write_text(project)
    of_project = tomllib.loads(project)["project"]
    installed = directory / f"{NAME}-{of_project['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1\n")
    entries = "".join(f"{n} = {v}\n" for n, v in of_project["entry-points"][GROUP].items())
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}")
    return directory


def run(package: Path, *command: str) -> str:
    path = os.pathsep.join([str(package), str(documents.ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path},
        cwd=documents.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands() -> list[list[str]]:
    (block,) = [b for b in documents.blocks() if b.text.endswith(f"--policy {NAME}")]
    return [shlex.split(command) for command in block.commands]


def test_the_policy_is_short() -> None:
    assert len(fenced("python")[0].splitlines()) <= LONGEST_POLICY_LINES


@pytest.mark.slow
def test_its_test_passes_and_replay_runs_it(package: Path) -> None:
    _install, test, replay = commands()
    assert test[:4] == [".venv/bin/python", "-m", "pytest", f"../{NAME}"]
    assert " passed" in run(package, "-m", "pytest", "-p", "no:cacheprovider", str(package))
    assert replay[0] == ".venv/bin/ovs-lbt"
    answer = run(package, "-m", "controller.cli", *replay[1:])
    for policy in ("load-based", NAME):
        (row,) = [line.split() for line in answer.splitlines() if line.startswith(f"{policy} ")]
        assert int(row[-2]) > 0, f"{policy} moved VM ports"
