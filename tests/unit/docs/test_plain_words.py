"""Documents are compared with a list of words and patterns, and exceptions are exact."""

from __future__ import annotations

from fnmatch import fnmatch

from tests import documents, plain_words


def test_the_list_is_short_and_every_exception_is_needed() -> None:
    found = plain_words.patterns()
    assert 20 < len(found) < 40
    assert all(better for _, better in found)
    for path, words in plain_words.exceptions():
        matching = [page for page in documents.pages() if fnmatch(page, path)]
        assert matching, f"{path}: no such document"
        assert words in (documents.ROOT / matching[0]).read_text(), f"{path}: {words}"
