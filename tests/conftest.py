"""For all tests, and the bench of their figures (`make bench-times`)."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.switch import datapath, judging
from tests.tiers import LONGEST, THOROUGH, is_thorough
from topologies.reports.origin import origin

# How long an example takes is the machine's business, and it may be a busy one.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# For `make test-quick`: fewer examples. `tests/unit/examples.py` is for tests that need another number.
settings.register_profile("quick", settings.get_profile("any machine"), max_examples=12)
# For `make test`: the same examples each time, so that only a change can fail it. Nothing else chooses a
# profile, so `make test-all` runs all examples, and draws new ones.
settings.register_profile(
    "test", settings.get_profile("any machine"), max_examples=40, derandomize=True
)
settings.load_profile("any machine")
TESTS = Path(__file__).parent
# What runs the tests with a marker.
RUN_BY = {"thorough": "make test-all", "slow": "make test", "system": "make test"}
_ORIGIN = pytest.StashKey[dict[str, Any]]()
_LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "compare figures with their limits, and write them to FILE; run nothing else in the meantime"
    parser.addoption("--figures", type=Path, metavar="FILE", help=told)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--figures") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--figures requires one test at a time; omit -n")
    judging.benching = bool(config.getoption("--figures"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out, and begin with the longest files.

    Raises:
        UsageError: a part of a name in `tiers.THOROUGH` is in no name of its file.
    """
    names: dict[str, list[str]] = {}
    items.sort(
        key=lambda item: LONGEST.index(file) if (file := _file(item)) in LONGEST else len(LONGEST)
    )
    for item in items:
        file = _file(item)
        names.setdefault(file, []).append(item.name)
        if is_thorough(file, item.name):
            item.add_marker(pytest.mark.thorough)
    _note_what_is_left_out(config, items)
    if any("::" in word for word in config.invocation_params.args):
        return
    for file in names.keys() & THOROUGH.keys():
        for part in THOROUGH[file]:
            if not any(part in name for name in names[file]):
                raise pytest.UsageError(
                    f"tests/tiers.txt: no test of {file} has {part} in its name"
                )


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def _note_what_is_left_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count the tests that -m leaves out, by their first marker in `RUN_BY`."""
    markers = [marker for marker in RUN_BY if f"not {marker}" in config.option.markexpr]
    found: Counter[str] = Counter()
    for item in items:
        found.update([marker for marker in markers if item.get_closest_marker(marker)][:1])
    config.stash[_LEFT_OUT] = dict(found)
    if (output := getattr(config, "workeroutput", None)) is not None:
        output["left_out"] = dict(found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """With -n, only the workers collect tests: each of them has collected all."""
    if (found := getattr(node, "workeroutput", {}).get("left_out")) is not None:
        node.config.stash[_LEFT_OUT] = found


def pytest_sessionstart(session: pytest.Session) -> None:
    """What else runs is seen best before the first test."""
    if session.config.getoption("--figures"):
        words = map(str, session.config.invocation_params.args)
        session.config.stash[_ORIGIN] = origin(["python", "-m", "pytest", *words])


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--figures")
    if not file:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "origin": session.config.stash[_ORIGIN],
        "cores": os.cpu_count(),
        "load_average_at_end": [round(one, 2) for one in os.getloadavg()],
        "tests_failed": session.testsfailed,
        "figures": [asdict(figure) for figure in judging.figures],
    }
    file.write_text(json.dumps(found, indent=1) + "\n")
    if not all(figure.kept for figure in judging.figures):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left_out := config.stash.get(_LEFT_OUT, {}):
        terminalreporter.section("left out")
        for marker, count in left_out.items():
            terminalreporter.write_line(f"{count} {marker}: run them with {RUN_BY[marker]}")
    if file := config.getoption("--figures"):
        terminalreporter.section(f"figures, also in {file}")
        for figure in judging.figures:
            terminalreporter.write_line(str(figure))
    elif judging.figures and datapath.NAME == "kernel":
        # Nobody has promised any for an emulated machine.
        terminalreporter.section("figures, for comparison")
        for figure in judging.figures:
            terminalreporter.write_line(f"  {figure}")
