"""Documents are compared with a list of words and patterns, and exceptions are exact."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from tests import documents, plain_words


def found(text: str) -> list[str]:
    return [hit.found for hit in plain_words.hits("a.md", text)]


def test_documents_that_are_checked_have_no_hit() -> None:
    assert [str(hit) for hit in plain_words.found()] == []


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("Meanwhile, the switch forwards.", "Meanwhile"),
        ("Frames arrive by\neth1.", "arrive by"),
        ("The bond\nof Linux stays.", "of Linux"),
        ("It follows flows of others.", "flows of others"),
        ("It reports traffic of what it sees.", "of what"),
        ("These are no reflections.", "are no"),
    ],
)
def test_a_pattern_is_found_also_across_lines(text: str, hit: str) -> None:
    assert found(text) == [hit]


@pytest.mark.parametrize(
    "text",
    [
        "Run `ovs-lbt anew`.",
        "See [that](meanwhile.md).",
        "Run:\n\n    meanwhile\n\nand wait.",
        "```text\nmeanwhile\n```",
        "<!-- meanwhile\n-->",
        "There are no flows. They are no longer used.",
    ],
)
def test_code_and_good_english_are_no_hits(text: str) -> None:
    assert found(text) == []


def test_the_list_is_short_and_every_exception_is_needed() -> None:
    found = plain_words.patterns()
    assert 20 < len(found) < 40
    assert all(better for _, better in found)
    for path, words in plain_words.exceptions():
        matching = [page for page in documents.pages() if fnmatch(page, path)]
        assert matching, f"{path}: no such document"
        assert words in (documents.ROOT / matching[0]).read_text(), f"{path}: {words}"
