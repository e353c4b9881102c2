"""How long the pages are that people read, what architecture.md and reliability.md name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import documents
from tests.unit.docs.figures import NUMBER

DOCS = documents.ROOT / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
PAGES = [
    path
    for name in ("reliability", "policies")
    for path in (DOCS / f"{name}.md", *sorted((DOCS / name).glob("*.md")))
]
PAGES += [documents.ROOT / page for page in documents.TASKS]
MOST_WORDS, MOST_WORDS_OF_A_DECISION = 1500, 400
WORD = re.compile(r"\w")
ARCHITECTURE = "docs/architecture.md"
FILE = re.compile(r"`([a-z.](?:[\w.-]*/)+[\w.-]*)`")
TERM = re.compile(r"^\| (.+?) \|", re.MULTILINE)
MOST_TERMS = 40
INDEX = documents.ROOT / "docs/reliability.md"
HEAD = "| tried | bound | result | test |"
SECTIONS = {title: s for title, s in documents.sections("docs/reliability.md").items() if HEAD in s}


# ---- lengths, and words: no reference, and without tables ----


def words(text: str) -> int:
    """How many words there are, without tables and the marks of Markdown."""
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    return sum(WORD.search(word) is not None for word in prose.split())


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_at_most_400_words(page: Path) -> None:
    assert words(page.read_text()) <= MOST_WORDS_OF_A_DECISION


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_is_at_most_1500_words(page: Path) -> None:
    assert words(page.read_text()) <= MOST_WORDS


@pytest.mark.parametrize(
    ("page", "most"),
    [("README.md", 900), ("docs/architecture.md", 5000), ("docs/benchmarks.md", 1500)],
)
def test_a_page_with_tables_is_short_enough_to_be_read(page: str, most: int) -> None:
    assert len((documents.ROOT / page).read_text().split()) <= most


def test_readme_has_few_lines() -> None:
    assert len((documents.ROOT / "README.md").read_text().splitlines()) <= 130


# ---- architecture.md ----


def test_every_folder_of_the_controller_is_in_the_picture_and_no_other() -> None:
    there = {path.parent.name for path in (documents.ROOT / "controller").glob("*/__init__.py")}
    folders = documents.sections(ARCHITECTURE)["Folders"]
    block = folders.partition(" controller/")[2].partition(" topologies/")[0]
    assert {*re.findall(r"(\w+)/", block)} == there


def test_every_file_named_in_the_architecture_exists() -> None:
    paths = FILE.findall((documents.ROOT / ARCHITECTURE).read_text())
    assert len(paths) > 60
    missing = {p for p in paths if not any(documents.ROOT.glob(re.sub("[A-Z]{4,}", "*", p)))}
    assert missing == set()


def test_the_glossary_has_few_terms_each_once() -> None:
    terms = TERM.findall(documents.sections(ARCHITECTURE)["Glossary"])[2:]
    assert len({*terms}) == len(terms) <= MOST_TERMS


# ---- reliability.md against the pages that it links to ----


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_every_figure_is_on_the_page_that_the_section_links_to(section: str) -> None:
    (page,) = re.findall(r"^\[[^]]*\]\((reliability/[\w-]+\.md)[^)]*\)$", section, re.MULTILINE)
    told = set(re.findall(NUMBER, (INDEX.parent / page).read_text()))
    for line in section.partition(HEAD)[2].splitlines()[2:]:
        if not line.startswith("| "):
            break
        _, _, result, _ = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(re.findall(NUMBER, result)) <= told, line


def test_every_page_is_linked() -> None:
    linked = set(re.findall(r"\]\(reliability/([\w-]+\.md)", INDEX.read_text()))
    assert linked == {path.name for path in (INDEX.parent / "reliability").glob("*.md")}
