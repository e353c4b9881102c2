"""Faults are drawn by a seed and change nothing else; which tests reach them is known from a log."""

from __future__ import annotations

import ast
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.planted import faults
from tests.planted.faults import Fault, draw, faults_of, plant, start_of, to_plant
from tests.planted.reach import PROBE, note_evaluations, reaching_tests

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


def _one(before: str, kind: str) -> Fault:
    found = faults_of("controller/binding.py", SOURCE.encode())
    (fault,) = (one for one in found if (one.before, one.kind) == (before, kind))
    return fault


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


def test_a_fault_is_found_again_where_lines_above_have_changed() -> None:
    fault = _one("names", faults.NEGATED)
    moved = SOURCE.replace("TRIES = 3\n", "TRIES = 3\nMORE = 4\n").replace("    return", "  return")
    assert b"if not (names) else" in plant(fault, moved.encode())
    with pytest.raises(LookupError, match="has no such line"):
        start_of(fault, SOURCE.replace("names", "found").encode())


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


def test_a_spare_of_the_folder_replaces_a_fault_without_effect(root: Path) -> None:
    drawn, spares = draw(root, seed=45, count=3, spares=2)
    drawn[1] = replace(drawn[1], changes_nothing="only a log line")
    spares[2] = replace(spares[2], changes_nothing="the same value")
    assert to_plant(drawn, spares) == [drawn[0], spares[3], drawn[2]]
    spares[3] = replace(spares[3], changes_nothing="the same value")
    with pytest.raises(LookupError, match="more --spares"):
        to_plant(drawn, spares)


def test_a_copy_notes_what_it_evaluates(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The constant has its effect where `send` reads it.
    chosen = [
        _one("3", faults.OFF_BY_ONE),
        _one("names", faults.NEGATED),
        _one("5", faults.OFF_BY_ONE),
    ]
    numbered = [replace(one, number=n) for n, one in enumerate(chosen, 1)]
    assert note_evaluations(root, numbered) == []
    changed = (root / "controller/binding.py").read_text()
    note = '__import__("controller.planted_reach").planted_reach.note'
    assert f"return ofport + ({note}(1) or (TRIES))" in changed
    assert f"if ({note}(2) or (names)) else" in changed
    assert f"switch.now_s + ({note}(3) or (5))" in changed
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    program = runpy.run_path(str(root / PROBE))
    program["note"](7)
    program["note"](7)
    (line,) = (root / PROBE).with_suffix(".log").read_text().splitlines()
    assert line.split()[::2] == ["7", "gw1"]


def test_any_test_may_reach_a_constant_that_makes_another(root: Path) -> None:
    (root / "policies/more.py").write_text(
        "from controller.binding import TRIES\n\nMORE = TRIES * 2\n"
    )
    assert note_evaluations(root, [replace(_one("3", faults.OFF_BY_ONE), number=5)]) == [5]


def test_a_test_reaches_what_is_evaluated_meanwhile_or_in_the_set_up_of_its_file() -> None:
    def phases(test: str, worker: str, start: float) -> list[dict[str, object]]:
        known = {"test": test, "worker": worker}
        names = ("setup", "call", "teardown")
        return [
            {**known, "when": n, "start": start + i, "stop": start + i + 1}
            for i, n in enumerate(names)
        ]

    run = [
        *phases("a.py::one", "gw0", 10),
        *phases("b.py::one", "gw1", 10),
        *phases("a.py::two", "gw0", 20),
        *phases("c.py::one", "gw0", 30),
    ]
    log = "1 11.5 gw0\n2 10.5 gw0\n3 11.5 \n4 30.5 gw1\n"
    assert reaching_tests(log, run) == {
        1: ["a.py::one"],
        2: ["a.py::one", "a.py::two"],
        3: ["a.py::one", "b.py::one"],
    }
