"""Finds which tests evaluate an expression: in one run of a copy that notes each evaluation."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.planted.faults import PACKAGES, Fault, line_starts, not_run, span, start_of

PROBE = "controller/planted_reach.py"
# It notes one evaluation in 50 ms, to cost no time. A switch test takes longer.
PROBE_SOURCE = """\
import contextlib, os, pathlib, time

_noted_s = {}
_log = pathlib.Path(__file__).with_suffix(".log")


def note(number):
    now_s = time.time()
    if now_s - _noted_s.get(number, 0.0) >= 0.05:
        _noted_s[number] = now_s
        with contextlib.suppress(OSError), _log.open("a") as file:
            print(number, now_s, os.environ.get("PYTEST_XDIST_WORKER", ""), file=file)
"""


def note_evaluations(root: Path, faults: Sequence[Fault]) -> list[int]:
    """Make the copy at `root` note when it evaluates what these faults replace.

    If that is the value of a module's or a class's name, it notes when a function reads that name.
    Returns the numbers of those that may have an effect elsewhere: any test may reach them.
    """
    sources = {path: path.read_bytes() for name in PACKAGES for path in (root / name).rglob("*.py")}
    inserted: dict[Path, list[tuple[int, bytes]]] = defaultdict(list)
    anywhere = []
    for fault in faults:
        own = root / fault.file
        start = start_of(fault, sources[own])
        name = _name_of(sources[own], start)
        spans = [(own, (start, start + len(fault.before.encode())))]
        if name is not None:
            read = {path: _reads(source, name) for path, source in sources.items()}
            spans = [(path, one) for path, (inside, _) in read.items() for one in inside]
            if not spans or any(outside for _, outside in read.values()):
                anywhere.append(fault.number)
        call = f'(__import__("controller.{Path(PROBE).stem}").{Path(PROBE).stem}.note'
        for path, (first, end) in spans:
            inserted[path] += [(first, f"{call}({fault.number}) or (".encode()), (end, b"))")]
    for path, texts in inserted.items():
        source = sources[path]
        for at, text in sorted(texts, reverse=True):
            source = source[:at] + text + source[at:]
        path.write_bytes(source)
    (root / PROBE).write_text(PROBE_SOURCE)
    (root / PROBE).with_suffix(".log").touch()
    return anywhere


def reaching_tests(log: str, phases: Sequence[Mapping[str, Any]]) -> dict[int, list[str]]:
    """The tests during which each number was noted in a process of theirs.

    What is set up during a test may be used by the tests of its file that follow: they count, too.
    The processes of a test have the name of its worker, or, in an environment of their own, none.
    """
    noted_s: dict[tuple[int, str], list[float]] = defaultdict(list)
    for line in log.splitlines():
        number, at_s, worker = line.split(" ")
        noted_s[int(number), worker].append(float(at_s))
    found: dict[int, dict[str, None]] = defaultdict(dict)
    set_up: set[tuple[int, str]] = set()
    for moments in noted_s.values():
        moments.sort()
    for phase in phases:
        test, file = phase["test"], phase["test"].partition("::")[0]
        for (of, worker), moments in noted_s.items():
            first = bisect_left(moments, phase["start"])
            during = first < len(moments) and moments[first] <= phase["stop"]
            if during and worker in ("", phase["worker"]):
                found[of][test] = None
                if phase["when"] == "setup":
                    set_up.add((of, file))
            elif (of, file) in set_up:
                found[of][test] = None
    return {of: list(tests) for of, tests in found.items()}


def _name_of(source: bytes, start: int) -> str | None:
    """The name that a module or a class gives to the value at `start`; None within a function."""
    tree, starts = ast.parse(source), line_starts(source)
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and span(node, starts)[0] <= start < span(node, starts)[1]
    ]
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    if any(span(node.body[0], starts)[0] <= start for node in functions):
        return None
    match around[-1]:
        case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
            return name
    # A parameter's default value: when any function of this name is named.
    return functions[-1].name if functions else ""


def _reads(source: bytes, name: str) -> tuple[list[tuple[int, int]], bool]:
    """Where functions read the name, and whether the module itself or a class does."""
    if name.encode() not in source:
        return [], False
    tree, starts = ast.parse(source), line_starts(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {node for one in functions for part in one.body for node in ast.walk(part)}
    skipped = not_run(tree)
    reads = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        if (node.id if isinstance(node, ast.Name) else node.attr) == name and node not in skipped
    ]
    spans = [span(node, starts) for node in reads if node in inside]
    return spans, len(spans) < len(reads)
