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
# What a module defines by itself.
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
DEFINITION = re.compile(r"^(?:class |def )?(\w+)(?:[(:]| =)", re.MULTILINE)
# A class that releases up to 3.2 define twice; all releases have it here.
HOMES = {"UnixctlClient": "ovs.unixctl.client"}


@cache
def modules() -> dict[str, str]:
    """Every module of the installed package, and its source; none is loaded for that."""
    spec = importlib.util.find_spec("ovs")
    assert spec and spec.origin
    place = Path(spec.origin).parent
    found = {}
    for file in place.rglob("*.py"):
        words = file.relative_to(place.parent).with_suffix("").parts
        module = ".".join(words[:-1] if words[-1] == "__init__" else words)
        found[module] = file.read_text(encoding="utf-8")
    return found


def in_package(name: str, known: dict[str, str]) -> tuple[str, str] | None:
    """The module of a dotted name, and the name in it; None for a module as such and for others' names.

    `known`: what a local name stands for, `ovs` itself or a module of it.
    """
    first, _, rest = name.partition(".")
    if first not in known or not re.fullmatch(r"[\w.]+", rest):
        return None
    module, *words = known[first], *rest.split(".")
    while words and f"{module}.{words[0]}" in modules():
        module = f"{module}.{words.pop(0)}"
    return (module, words[0]) if words else None


@cache
def uses(path: Path) -> tuple[Sequence[tuple[int, str, str]], frozenset[str]]:
    """(line, module, name) of each name of the package that a source file uses, and what it imports."""
    text = path.read_text(encoding="utf-8")
    # Few files import the package, and all files take seconds to parse.
    nodes = list(ast.walk(ast.parse(text))) if IMPORTS.search(text) else []
    known, used, imported = dict[str, str](), set(), set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
            known |= {"ovs": "ovs"} if "ovs" in {one.partition(".")[0] for one in imported} else {}
        elif isinstance(node, ast.ImportFrom) and re.match(r"ovs(\.|$)", node.module or ""):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                imported.add(whole)
                if whole in modules():
                    known[alias.name] = whole
                else:
                    used.add((node.lineno, str(node.module), alias.name))
    for node in nodes:
        found = isinstance(node, ast.Attribute) and in_package(ast.unparse(node), known)
        if found and isinstance(node, ast.Attribute):
            used.add((node.lineno, *found))
    packages = {one.rsplit(".", n)[0] for one in imported for n in range(one.count(".") + 1)}
    return tuple(sorted(used)), frozenset(imported | packages)


def faults(path: Path) -> Iterator[str]:
    """`file:line name: where it was looked for -> where it is`."""
    used, imported = uses(path)
    for line, module, name in used:
        where = f"{path.name}:{line} {name}"
        home = HOMES.get(name, module)
        if module not in imported:
            yield f"{where}: {module} is not imported -> import {module}"
        elif home != module or name not in DEFINITION.findall(modules()[module]):
            there = [one for one, text in modules().items() if name in DEFINITION.findall(text)]
            expected = home if home != module else ", ".join(sorted(there)) or "nowhere"
            yield f"{where}: {module} -> {expected}"


@pytest.mark.slow
def test_every_name_comes_from_the_module_that_defines_it() -> None:
    assert [fault for path in SOURCES for fault in faults(path)] == []


def test_no_class_that_is_used_has_two_homes() -> None:
    """Two classes of one name are one that moves: HOMES says where it stays."""
    used = {name for path in SOURCES for _, _, name in uses(path)[0]} - HOMES.keys()
    found = [name for text in modules().values() for name in CLASS.findall(text)]
    assert [name for name in used if found.count(name) > 1] == []


def test_the_names_looked_at_are_those_that_are_used() -> None:
    used = {(module, name) for path in SOURCES for _, module, name in uses(path)[0]}
    assert ("ovs.unixctl.server", "UnixctlServer") in used
    assert ("ovs.dirs", "RUNDIR") in used
    assert ("ovs.stream", "Stream") in used
