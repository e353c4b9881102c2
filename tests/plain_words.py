"""Compares documents with a list of words and patterns that are not plain English.

`python -m tests.plain_words` prints each hit with what to write instead, as `make lint` does.
tests/plain_words.txt has the patterns. tests/plain_words_exceptions.txt has the words that may
stand in a document, and the documents that are not checked yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.documents import ROOT, pages

PATTERNS = Path(__file__).with_name("plain_words.txt")
EXCEPTIONS = Path(__file__).with_name("plain_words_exceptions.txt")
# What is not prose: comments, blocks of code, code in a line, targets of links.
CODE = re.compile(
    r"<!--[\s\S]*?-->|^ *```[\s\S]*?^ *```$|(?<=\n\n)(?: {4}.*\n)(?:(?: {4}.*)?\n)*|`[^`\n]*`|\]\([^)\s]*\)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A place in a document where a pattern fits, and what to write instead."""

    path: str
    line: int
    found: str
    better: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: “{self.found}”: write {self.better}"


def lines(path: Path, separator: str) -> list[tuple[str, str]]:
    """The two parts of each line of a list; the second is empty in a line without the separator."""
    kept = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return [(begin, end) for begin, _, end in (line.partition(separator) for line in kept)]


def patterns() -> list[tuple[re.Pattern[str], str]]:
    """What not to write, and what to write instead."""
    return [
        # A sentence goes on in the next line.
        (re.compile(bad.replace(" ", r"\s+"), re.IGNORECASE), better)
        for bad, better in lines(PATTERNS, " -> ")
    ]


def exceptions() -> list[tuple[str, str]]:
    """Documents and the words that may stand there; patterns of documents that are not checked, and ""."""
    return lines(EXCEPTIONS, ": ")


def hits(path: str, text: str) -> Iterator[Hit]:
    """Where patterns fit the prose of a document."""
    for where, words in exceptions():
        if not words and fnmatch(path, where):
            return
        if words and where == path:
            text = text.replace(words, _blank(words))
    prose = CODE.sub(lambda found: _blank(found[0]), text)
    for bad, better in patterns():
        for found in bad.finditer(prose):
            line = prose.count("\n", 0, found.start()) + 1
            yield Hit(path, line, " ".join(found[0].split()), better)


def found() -> list[Hit]:
    """All hits in the documents that are checked."""
    return [hit for path in pages() for hit in hits(path, (ROOT / path).read_text())]


def main() -> int:
    """Print all hits. Returns the exit status."""
    all_hits = found()
    for hit in all_hits:
        print(hit, file=sys.stderr)
    return 1 if all_hits else 0


def _blank(text: str) -> str:
    """As many lines and characters, without words."""
    return re.sub(r"[^\n]", "\N{MIDDLE DOT}", text)


if __name__ == "__main__":
    sys.exit(main())
