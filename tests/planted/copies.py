"""Copies of a checkout in which faults are planted, and what the tests say there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.planted.faults import PACKAGES

CHECKOUT = Path(__file__).parents[2]
# A fault may make a loop endless, or let it take all memory.
LIMIT_S = 5400.0
MEMORY_BYTES = 6 << 30
# Pytest's exit statuses if all tests passed, or none was selected.
PASSED = (0, 5)


@dataclass
class Outcome:
    """The test that failed first, and those that also fail without the fault."""

    caught_by: str | None = None
    # Whether that test also fails when it runs alone.
    alone: bool = False
    seconds: float = 0.0
    set_aside: list[str] = field(default_factory=list)


class Copy:
    """The last commit of a checkout, with `controller/` and `policies/` of a commit of this one.

    Its virtual environment has the packages of the running one, but its own `ovs-lbt`: programs of the
    tests find that, whatever environment variables they get.
    """

    def __init__(self, directory: Path, tests_of: Path, commit: str) -> None:
        self.root = directory
        run("git", "clone", "-q", "--shared", tests_of, directory)
        for package in PACKAGES:
            shutil.rmtree(directory / package)
        extract(commit, directory)
        packages, bin_directory = Path(sysconfig.get_path("purelib")), directory / ".venv/bin"
        venv.create(directory / ".venv", symlinks=True, system_site_packages=True)
        own_packages = directory / ".venv" / packages.relative_to(sys.prefix)
        (own_packages / "planted.pth").write_text(f"{directory}\n{packages}\n")
        shutil.copy(Path(__file__).with_name("log_of_tests.py"), own_packages)
        command = bin_directory / "ovs-lbt"
        imported = "import sys\nfrom controller.cli import main\nsys.exit(main())\n"
        command.write_text(f"#!{bin_directory}/python\n{imported}")
        command.chmod(0o755)
        for tool in (Path(sys.prefix) / "bin").iterdir():
            if not (bin_directory / tool.name).exists():
                (bin_directory / tool.name).symlink_to(tool)
        # `make wheels` downloads them.
        (directory / "out/deb").mkdir(parents=True)
        (directory / "out/deb/wheels").symlink_to(Path(sys.prefix).parent / "out/deb/wheels")

    def pytest(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """Run tests. Returns the exit status, and what the log says of each phase of each test."""
        log, python = self.root.with_suffix(".log"), self.root / ".venv/bin/python"
        log.write_text("")
        with self.root.with_suffix(".out").open("w") as out:
            process = subprocess.Popen(
                [
                    *("prlimit", f"--data={MEMORY_BYTES}", python, "-m", "pytest", "-q"),
                    *("-p", "no:cacheprovider", "-p", "log_of_tests", *arguments),
                ],
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": str(self.root), "PLANTED_LOG": str(log)},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                status = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                status = -signal.SIGKILL
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return status, [json.loads(line) for line in log.read_text().splitlines()]

    def near(self, file: str) -> list[list[str]]:
        """The tests of a module, and those of its directory: they fail most often, and soon."""
        unit = Path("tests/unit", file)
        own = unit.with_name(f"test_{unit.name}")
        of_directory = [
            *(self.root / own.parent).glob("test_*.py"),
            self.root / unit.with_suffix(""),
        ]
        beside = sorted(str(path.relative_to(self.root)) for path in of_directory if path.exists())
        return [[str(own)] if str(own) in beside else [], beside]


def extract(commit: str, directory: Path) -> None:
    """Write `controller/` and `policies/` of a commit of this checkout into a directory."""
    archive = directory.with_suffix(".tar")
    run("git", "-C", CHECKOUT, "archive", "-o", archive, commit, *PACKAGES)
    run("tar", "-xf", archive, "-C", directory)
    archive.unlink()


def first_to_fail(
    faulty: Copy, clean: Copy, tests: Sequence[str], options: Sequence[str], outcome: Outcome
) -> None:
    """Run tests until one fails that passes without the fault."""
    while True:
        aside = [word for test in outcome.set_aside for word in ("--deselect", test)]
        status, phases = faulty.pytest("-x", *options, *aside, *tests)
        failed = [phase["test"] for phase in phases if phase["outcome"] == "failed"]
        if status in PASSED:
            return
        if not failed or clean.pytest(failed[0])[0] in PASSED:
            outcome.caught_by = failed[0] if failed else f"pytest: exit status {status}"
            outcome.alone = bool(failed) and faulty.pytest(failed[0])[0] not in PASSED
            return
        if failed[0] in outcome.set_aside:
            raise RuntimeError(f"{failed[0]} fails without a fault, and pytest cannot deselect it")
        outcome.set_aside.append(failed[0])


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
