"""Compares documents with a list of words and patterns that are not plain English.

`python -m tests.plain_words` prints each hit with what to write instead, as `make lint` does.
tests/plain_words.txt has the patterns. tests/plain_words_exceptions.txt has the words that may
stand in a document, and the documents that are not checked yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
class Pattern:
    """What not to write, and what to write instead."""

    bad: re.Pattern[str]
    better: str


@dataclass(frozen=True, slots=True)
class Exceptions:
    """`unchecked`: patterns of paths. `words`: what may stand in a document, by its path."""

    unchecked: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = field(default=())

    def skip(self, path: str) -> bool:
        return any(fnmatch(path, pattern) for pattern in self.unchecked)

    def of(self, path: str) -> list[str]:
        return [words for where, words in self.words if where == path]


@dataclass(frozen=True, slots=True)
class Hit:
    """A place in a document where a pattern fits."""

    path: str
    line: int
    found: str
    better: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: “{self.found}”: write {self.better}"


def patterns(text: str) -> list[Pattern]:
    """The patterns of a list, one in each line.

    Raises:
        ValueError: a line has no replacement.
    """
    found = []
    for line in _lines(text):
        bad, arrow, better = line.partition(" -> ")
        if not arrow:
            raise ValueError(f"{line}: write PATTERN -> REPLACEMENT")
        # A sentence goes on in the next line.
        found.append(Pattern(re.compile(bad.replace(" ", r"\s+"), re.IGNORECASE), better))
    return found


def exceptions(text: str) -> Exceptions:
    """Documents that are not checked, and words that may stand."""
    parts = [line.partition(": ") for line in _lines(text)]
    return Exceptions(
        tuple(path for path, colon, _ in parts if not colon),
        tuple((path, words) for path, colon, words in parts if colon),
    )


def hits(path: str, text: str, bad: Sequence[Pattern], allowed: Sequence[str]) -> Iterator[Hit]:
    """Where patterns fit the prose of a document."""
    for words in allowed:
        text = text.replace(words, _blank(words))
    prose = CODE.sub(lambda found: _blank(found[0]), text)
    for pattern in bad:
        for found in pattern.bad.finditer(prose):
            line = prose.count("\n", 0, found.start()) + 1
            yield Hit(path, line, " ".join(found[0].split()), pattern.better)


def found() -> list[Hit]:
    """All hits in the documents that are checked."""
    bad = patterns(PATTERNS.read_text())
    known = exceptions(EXCEPTIONS.read_text())
    return [
        hit
        for path in pages()
        if not known.skip(path)
        for hit in hits(path, (ROOT / path).read_text(), bad, known.of(path))
    ]


def main() -> int:
    """Print all hits. Returns the exit status."""
    all_hits = found()
    for hit in all_hits:
        print(hit, file=sys.stderr)
    return 1 if all_hits else 0


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _blank(text: str) -> str:
    """As many lines and characters, without words."""
    return re.sub(r"[^\n]", "\N{MIDDLE DOT}", text)


if __name__ == "__main__":
    sys.exit(main())
