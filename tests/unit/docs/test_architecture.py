"""What architecture.md names exists: the folders of the code, and the files."""

from __future__ import annotations

import re

from tests import documents

PAGE = "docs/architecture.md"
FILE = re.compile(r"`([a-z.](?:[\w.-]*/)+[\w.-]*)`")
WORD = re.compile(r"^\| (.+?) \|", re.MULTILINE)
MOST_TERMS = 40


def test_every_folder_of_the_controller_is_in_the_picture_and_no_other() -> None:
    there = {path.parent.name for path in (documents.ROOT / "controller").glob("*/__init__.py")}
    folders = documents.sections(PAGE)["Folders"]
    block = folders.partition(" controller/")[2].partition(" topologies/")[0]
    assert {*re.findall(r"(\w+)/", block)} == there


def test_every_file_that_is_named_exists() -> None:
    paths = FILE.findall((documents.ROOT / PAGE).read_text())
    assert len(paths) > 60
    missing = {p for p in paths if not any(documents.ROOT.glob(re.sub("[A-Z]{4,}", "*", p)))}
    assert missing == set()


def test_the_glossary_has_few_terms_each_once() -> None:
    terms = WORD.findall(documents.sections(PAGE)["Glossary"])[2:]
    assert len({*terms}) == len(terms) <= MOST_TERMS
