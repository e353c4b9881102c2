"""Blocks of commands in the documents, as somebody who follows them would copy them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What an operator does, one page for each task.
TASKS = (
    *(
        str(path.relative_to(ROOT))
        for folder in ("hosts", "guide")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
    *("docs/overlay.md", "docs/no-network.md", "docs/equivalents.md"),
    *("docs/runbooks.md", "docs/runbooks-service.md"),
)
# Made from results or from the sources of tests, or a history: their commands are not an operator's.
RECORDS = ("CHANGELOG.md", "docs/architecture.md", "docs/benchmarks", "docs/results/")

# Before a block: tests/switch/test_documents.py follows it, word for word. Readers do not see it.
LABEL = re.compile(r"<!-- run: ([\w-]+) -->")
FENCE = re.compile(r" *```")
INDENT = " " * 4


def with_made(text: str, begin: str, end: str, made: str) -> str:
    """A document with what is made between its marks, each a line of its own.

    Raises:
        ValueError: a mark is missing.
    """
    before, began, rest = text.partition(f"{begin}\n")
    _, ended, after = rest.partition(f"{end}\n")
    if not began or not ended:
        raise ValueError(f"the document lacks one of the marks {begin} and {end}")
    return f"{before}{begin}\n{made}\n{end}\n{after}"


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that stand apart, without their indentation; `label` is what follows it, if any.

    `said`: between fences with the word `text`, so what somebody sees and does not type.
    """

    document: str
    line: int
    label: str | None
    text: str
    said: bool = False

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0]

    @property
    def commands(self) -> list[str]:
        """One command each, continuation lines joined, without prompts, output and comments."""
        joined = re.sub(r"\\\n\s*", "", self.text).splitlines()
        if any(line.startswith("$ ") for line in joined):
            joined = [line[2:] for line in joined if line.startswith("$ ")]
        bare = (re.sub(r"(^|\s+)# .*$", "", line).strip() for line in joined)
        return [line for line in bare if line]


def pages() -> list[str]:
    """All pages in the checkout, as paths below it."""
    found = [
        path
        for pattern in ("*.md", "docs/**/*.md", "dashboards/*.md", ".github/**/*.md")
        for path in ROOT.glob(pattern)
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def sections(page: str) -> dict[str, str]:
    """The text below each heading of the second level."""
    _, *found = (ROOT / page).read_text().split("\n## ")
    return {title: text for title, _, text in (one.partition("\n") for one in found)}


def documents() -> list[str]:
    """The pages whose commands somebody types."""
    return [page for page in pages() if not page.startswith(RECORDS)]


def blocks() -> list[Block]:
    """All blocks of all documents, in order."""
    return [block for document in documents() for block in _blocks(document)]


def labelled(label: str) -> list[Block]:
    """The blocks that are followed together, in order."""
    return [block for block in blocks() if block.label == label]


def _blocks(document: str) -> Iterator[Block]:
    lines = (ROOT / document).read_text().splitlines()
    label, number = None, 0
    while number < len(lines):
        line = lines[number]
        if found := LABEL.fullmatch(line):
            label = found[1]
        elif FENCE.match(line) or _begins(lines, number):
            end = _end(lines, number)
            inside = lines[number + 1 : end] if FENCE.match(line) else lines[number:end]
            text = textwrap.dedent("\n".join(inside)).strip("\n")
            yield Block(document, number + 1, label, text, said=line.strip() == "```text")
            label, number = None, end
        elif line:
            place = f"{document}:{number + 1}"
            assert label is None, f"{place}: no block of code follows <!-- run: {label} -->"
        number += 1


def _begins(lines: list[str], number: int) -> bool:
    return lines[number].startswith(INDENT) and not lines[number - 1].strip()


def _end(lines: list[str], number: int) -> int:
    """The line behind a block; of one with fences, that with the second one."""
    if FENCE.match(lines[number]):
        return next(n for n in range(number + 1, len(lines)) if FENCE.match(lines[n]))
    end = number
    for n in range(number, len(lines)):
        if lines[n].strip() and not lines[n].startswith(INDENT):
            break
        if lines[n].strip():
            end = n + 1
    return end
