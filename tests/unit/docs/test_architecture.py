"""The table of modules in architecture.md names every module of the rooms, and no other."""

from __future__ import annotations

import re

from tests import documents

PAGE = documents.ROOT / "docs/architecture.md"
ROOM = re.compile(r"^\| \*\*`(controller/[\w/]*)`\*\* \|", re.MULTILINE)
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
MODULE = re.compile(r"^\| `([\w/]+\.py)` \|", re.MULTILINE)


def test_every_module_of_a_room_is_in_the_table_and_no_other() -> None:
    parts = ROOM.split(PAGE.read_text().partition("## Modules")[2].partition("## Recipes")[0])
    for room, rows in zip(parts[1::2], parts[2::2], strict=True):
        there = {path.name for path in (documents.ROOT / room).glob("*.py")} - {"__init__.py"}
        named = MODULE.findall(rows)
        assert sorted(named) == sorted(there), room


def test_every_room_is_in_the_table() -> None:
    rooms = {path.parent.name for path in (documents.ROOT / "controller").glob("*/__init__.py")}
    named = {room.removeprefix("controller/").strip("/") for room in ROOM.findall(PAGE.read_text())}
    assert named - {""} == rooms


def test_every_file_of_a_recipe_exists() -> None:
    recipes = PAGE.read_text().partition("\n## Recipes\n")[2].partition("\n## Configuration\n")[0]
    paths = FILE.findall(recipes)
    assert len(paths) > 30
    missing = {p for p in paths if not any(documents.ROOT.glob(p.replace("NAME", "*")))}
    assert missing == set()
