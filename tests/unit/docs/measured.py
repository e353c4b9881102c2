"""Measured figures in the documents, and the raw figures of docs/results that they were compared with.

`measured.json` has by page how each table of figures begins, and the words before the figures of a sentence;
with each, the figures, and a digest of each of their raw files. If a test says that one of them is another one
now, compare the page with the raw figures. Then run `python -m tests.unit.docs.measured`, which writes the
figures and digests again, also of tables that are new. Of a new sentence, write the words, as many numbers as
it has, and the names of the files before.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests import documents

FILE = Path(__file__).with_suffix(".json")
COMMAND = "python -m tests.unit.docs.measured"
RESULTS = documents.ROOT / "docs" / "results"
NUMBER = r"-?\d+(?:\.\d+)?"
PAGES = ("README.md", "docs/operations.md", *documents.TASKS, "docs/reliability/*.md")
# A table may be in an item of a list.
TABLE = re.compile(r"(?:^ *\|.*\n)+\n?(?= *(?P<after>(?:.+\n)*))", re.MULTILINE)
RAW = re.compile(r"\]\((?:\.\./)*results/([^)]+)\)")

# By page and beginning: the figures there, and the digests of raw files.
Recorded = dict[str, dict[str, tuple[str, dict[str, str]]]]


def recorded() -> Recorded:
    found: Recorded = json.loads(FILE.read_text())
    return found


@functools.cache
def text(page: str) -> str:
    """A page without the targets of links and the commas of thousands."""
    without_targets = re.sub(r"\]\([^)]*\)", "]", (documents.ROOT / page).read_text())
    return re.sub(r"(?<=\d),(?=\d{3})", "", without_targets)


def figures(page: str, beginning: str, count: int) -> str:
    """All figures of a table, or the first ones behind words, which may be in two lines.

    Raises:
        ValueError: the page does not have this beginning, or has it more than once.
    """
    if beginning.startswith("|"):
        found = [one[0] for one in TABLE.finditer(text(page))]
        ends = [table for table in found if table.lstrip().startswith(beginning)]
    else:
        _, *ends = " ".join(text(page).split()).split(beginning)
    if len(ends) != 1:
        raise ValueError(f"{page} has {len(ends)} times: {beginning}")
    numbers = re.findall(NUMBER, ends[0])
    return " ".join(numbers if beginning.startswith("|") else numbers[:count])


def sources(page: str) -> Iterator[tuple[str, list[str]]]:
    """The head of each table with raw figures, and their files."""
    for found in TABLE.finditer((documents.ROOT / page).read_text()):
        if found["after"].startswith("*Source:*") and (raw := RAW.findall(found["after"])):
            yield found[0].lstrip().partition("\n")[0], raw


def pages() -> Iterator[str]:
    for pattern in PAGES:
        for path in sorted(documents.ROOT.glob(pattern)):
            yield str(path.relative_to(documents.ROOT))


def digest(raw: str) -> str:
    return hashlib.sha256((RESULTS / raw).read_bytes()).hexdigest()[:12]


def main() -> None:
    places = recorded()
    for page in pages():
        for head, raw in sources(page):
            if not any(head.startswith(one) for one in places.get(page, ())):
                places.setdefault(page, {})[head] = "", dict.fromkeys(raw, "")
    written = {
        page: {
            beginning: (
                figures(page, beginning, len(before.split())),
                {one: digest(one) for one in raw},
            )
            for beginning, (before, raw) in of.items()
        }
        for page, of in sorted(places.items())
    }
    FILE.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
