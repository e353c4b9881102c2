"""What we take from Open vSwitch's Python package is taken from where it is defined.

The package goes with the Open vSwitch of the machine. What a module of it merely has from another one,
or has a copy of, may be gone with the next release.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
SOURCES = sorted(
    path
    for package in ("controller", "policies", "topologies", "tests")
    for path in (CHECKOUT / package).rglob("*.py")
)
# A line that may import the package, or something of it.
IMPORTS = re.compile(r"\b(import|from)\b.*\bovs\b")
# A class that releases up to 3.2 define twice; all releases have it here.
HOMES = {"UnixctlClient": "ovs.unixctl.client"}


@cache
def modules() -> dict[str, Path]:
    """Every module of the installed package, and its file; none is loaded for that."""
    spec = importlib.util.find_spec("ovs")
    assert spec and spec.origin
    place = Path(spec.origin).parent
    found = {}
    for file in place.rglob("*.py"):
        words = file.relative_to(place.parent).with_suffix("").parts
        found[".".join(words[:-1] if words[-1] == "__init__" else words)] = file
    return found


@cache
def defined_in(module: str, kind: type[ast.stmt] = ast.stmt) -> frozenset[str]:
    """What a module itself defines by a kind of statement; what it imports is another's."""
    names: set[str] = set()
    for node in _top_level(ast.parse(modules()[module].read_text(encoding="utf-8")).body):
        if not isinstance(node, kind):
            continue
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            leaves = (leaf for target in targets for leaf in ast.walk(target))
            names |= {leaf.id for leaf in leaves if isinstance(leaf, ast.Name)}
    return frozenset(names)


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those inside its conditions, too."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _top_level(node.body)
            yield from _top_level(node.orelse)


@cache
def uses(path: Path) -> Sequence[tuple[int, str, str]]:
    """(line, module, name) of each name of the package that a source file uses."""
    text = path.read_text(encoding="utf-8")
    # Few files import the package, and all files take seconds to parse.
    if not IMPORTS.search(text):
        return ()
    # A dotted name is seen once for each of its dots.
    return tuple(sorted(set(_uses(ast.parse(text)))))


def _uses(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    # What a local name stands for: `ovs` itself, or a module of it.
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "ovs":
                    aliases[alias.asname or "ovs"] = alias.name if alias.asname else "ovs"
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.split(".")[0] != "ovs":
                continue
            for alias in node.names:
                if (whole := f"{module}.{alias.name}") in modules():
                    aliases[alias.asname or alias.name] = whole
                else:
                    yield node.lineno, module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node)):
            first, *rest = dotted.split(".")
            if first in aliases:
                yield from _use(node.lineno, [*aliases[first].split("."), *rest])


def _use(line: int, words: list[str]) -> Iterator[tuple[int, str, str]]:
    """The module of a dotted name, and the name in it; nothing for a module as such."""
    length = len(words)
    while ".".join(words[:length]) not in modules():
        length -= 1
    if length < len(words):
        yield line, ".".join(words[:length]), words[length]


def _dotted(node: ast.expr) -> str:
    """`a.b.c`, or nothing if it is no such name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def imported(path: Path) -> set[str]:
    """The modules that a source file imports by itself, packages of them included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {".".join(one.split(".")[: n + 1]) for one in found for n in range(one.count(".") + 1)}


def faults(path: Path) -> list[str]:
    """`file:line name: where it was looked for -> where it is`."""
    if not (used := uses(path)):
        return []
    there = imported(path)
    found = []
    for line, module, name in used:
        where = f"{path.name}:{line} {name}"
        home = HOMES.get(name, module)
        if module not in there:
            found.append(f"{where}: {module} is not imported -> import {module}")
        elif home != module or name not in defined_in(module):
            found.append(f"{where}: {module} -> {home if home != module else homes(name)}")
    return found


def homes(name: str) -> str:
    """The modules that define a name."""
    return ", ".join(sorted(one for one in modules() if name in defined_in(one))) or "nowhere"


@pytest.mark.slow
def test_every_name_comes_from_the_module_that_defines_it() -> None:
    assert [fault for path in SOURCES for fault in faults(path)] == []


def test_no_class_that_is_used_has_two_homes() -> None:
    """Two classes of one name are one that moves: HOMES says where it stays."""
    used = {name for path in SOURCES for _, _, name in uses(path)}
    found: dict[str, set[str]] = {}
    for module in modules():
        for name in (defined_in(module, ast.ClassDef) & used) - HOMES.keys():
            found.setdefault(name, set()).add(module)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_the_names_looked_at_are_those_that_are_used() -> None:
    used = {(module, name) for path in SOURCES for _, module, name in uses(path)}
    assert ("ovs.unixctl.server", "UnixctlServer") in used
    assert ("ovs.dirs", "RUNDIR") in used
    assert ("ovs.stream", "Stream") in used


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        pytest.param(
            "import ovs.unixctl.server\novs.unixctl.server.UnixctlClient.create('x')\n",
            "bad.py:2 UnixctlClient: ovs.unixctl.server -> ovs.unixctl.client",
            id="a copy",
        ),
        pytest.param(
            "from ovs.unixctl.server import UnixctlClient\n",
            "bad.py:1 UnixctlClient: ovs.unixctl.server -> ovs.unixctl.client",
            id="a copy, by its name",
        ),
        pytest.param(
            "import ovs.dirs\novs.unixctl.commands\n",
            "bad.py:2 commands: ovs.unixctl is not imported -> import ovs.unixctl",
            id="another module has imported it",
        ),
        pytest.param(
            "import ovs.unixctl.server\novs.unixctl.server.os\n",
            "bad.py:2 os: ovs.unixctl.server -> nowhere",
            id="what a module imports",
        ),
    ],
)
def test_a_name_from_elsewhere_is_found(tmp_path: Path, source: str, fault: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(source)
    assert faults(path) == [fault]
