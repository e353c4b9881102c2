"""Faults are drawn by a seed and change nothing else; which tests reach them is known from a log."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.planted import faults
from tests.planted.faults import draw, faults_of, plant

SOURCE = '''\
"""Ports, up to 7."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nowhere import Switch

TRIES = 3
RATE_BPS = 25_000_000_000


def bind(switch: Switch, port: str, uplink: str, ofport: int) -> int:
    switch.due_s = switch.now_s + 5
    if port and not (uplink == "é" or ofport):  # nobody
        switch.bind(port, uplink)
    switch.log.debug("bound %s", 2)
    names = [name for name in switch.ports if name != port]
    return len(f"{names[1]}") if names else send(ofport=ofport)


def send(ofport: int) -> int:
    return ofport + TRIES
'''
FOUND = {
    (faults.OFF_BY_ONE, "3", "4"),
    (faults.OFF_BY_ONE, "5", "6"),
    (faults.OFF_BY_ONE, "2", "3"),
    (faults.TIMER, "switch.now_s + 5", 'float("inf")'),
    (faults.NEGATED, 'port and not (uplink == "é" or ofport)', None),
    (faults.NEGATED, "port", "not (port)"),
    (faults.NEGATED, 'not (uplink == "é" or ofport)', None),
    (faults.NEGATED, "name != port", "not (name != port)"),
    (faults.NEGATED, "names", "not (names)"),
    (faults.LEFT_OUT, "switch.bind(port, uplink)", "pass"),
    (faults.WRONG_PORT, "port", "uplink"),
    (faults.WRONG_PORT, "uplink", "port"),
    (faults.WRONG_PORT, "ofport", "ofport + 1"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with three folders, of which one has most of the lines."""
    for folder, copies in (("controller", 1), ("controller/load", 8), ("policies", 1)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "binding.py").write_text(SOURCE * copies)
    return tmp_path


def test_faults_are_in_code_that_runs() -> None:
    found = faults_of("controller/binding.py", SOURCE.encode())
    told = {(f.kind, f.before, f.after) for f in found}
    assert told == {(kind, old, new or f"not ({old})") for kind, old, new in FOUND}
    assert len(found) == len(FOUND)


def test_a_fault_changes_only_its_expression() -> None:
    lines = SOURCE.splitlines()
    for fault in faults_of("controller/binding.py", SOURCE.encode()):
        changed = plant(fault, SOURCE.encode()).decode()
        ast.parse(changed)
        different = [n for n, line in enumerate(changed.splitlines(), 1) if line != lines[n - 1]]
        assert different == [fault.line]


def test_a_seed_draws_the_same_faults_in_all_folders(root: Path) -> None:
    drawn, spares = draw(root, seed=45, count=10, spares=2)
    assert (drawn, spares) == draw(root, seed=45, count=10, spares=2)
    assert drawn != draw(root, seed=46, count=10, spares=2)[0]
    folders = [fault.folder for fault in drawn]
    shares = [folders.count(name) for name in ("controller", "controller/load", "policies")]
    assert shares == [2, 6, 2]
    assert [fault.number for fault in [*drawn, *spares]] == [*range(1, 17)]
    # Of its kinds, a folder has one each before a second one.
    assert {f.kind for f in drawn if f.folder == "controller/load"} == {kind for kind, *_ in FOUND}
