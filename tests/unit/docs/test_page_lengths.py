"""How long pages are that people read: not reference, and without tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import documents

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
