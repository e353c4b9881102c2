"""Which documents have a generated part, and the text of each one with that part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests import documents
from tests.reference import columns, commands, json_fields, metrics, settings

COMMAND = "python -m tests.reference"
DOCS = documents.ROOT / "docs"
JSON_PAGE = documents.ROOT / json_fields.PAGE
MAN_PAGE = DOCS / "ovs-lbt.8"


class Page(NamedTuple):
    """A document, the comment marks around its generated part, and what generates that."""

    path: Path
    begin: str
    end: str
    generate: Callable[[], str]


def _markdown(path: str, generate: Callable[[], str]) -> Page:
    begin, end = f"<!-- generated: begin ({COMMAND}) -->", "<!-- generated: end -->"
    return Page(DOCS / path, begin, end, lambda: f"\n{generate()}\n")


PAGES = (
    Page(MAN_PAGE, f'.\\" keys: begin ({COMMAND})', '.\\" keys: end', settings.roff),
    _markdown("reference/settings.md", settings.markdown),
    _markdown("reference/openvswitch.md", columns.markdown),
    _markdown("metrics.md", metrics.markdown),
    _markdown("reference/commands.md", lambda: commands.markdown(MAN_PAGE.read_text())),
)


def generated() -> dict[Path, str]:
    """Each document as it should be, by its path."""
    made = {
        page.path: documents.with_made(page.path.read_text(), page.begin, page.end, page.generate())
        for page in PAGES
    }
    return made | {JSON_PAGE: json_fields.with_values(JSON_PAGE.read_text())}
