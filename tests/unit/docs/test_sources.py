"""Tables of measured figures name their raw figures and the command that makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests import documents

DOCS = documents.ROOT / "docs"
# Tables without measured figures, by their first heads: what is checked, limits, meanings, and
# what others publish.
UNMEASURED = {
    "reliability.md": {
        "| | |",
        "| what must hold | how it is checked |",
        "| event | link state | BFD | LACP | why |",
        "| event | lost at most, ms | why |",
        "| event | broadcasts twice, of one flow | why |",
        "| what happens | limit | test in `tests/switch` |",
        "| who | what happens | test |",
        "| | detected failures | when a link returns |",
        "| | if the program that decides is dead | forged source addresses |",
    },
    "policies.md": {
        "| theirs | ours | unit | placed | moved | differences |",
        "| key | asks for | if that is not possible |",
        "| theirs | ours |",
        "| `teaming` | upstream | inbound | frames that leave by another uplink than home |",
        "| key | on an uplink that is full | on one that is not |",
        "| policy of the port | what its addresses do |",
        "| `against`, in JSON | what keeps the port |",
    },
}


def tables(text: str) -> Iterator[tuple[str, str]]:
    """The head of each table, and the paragraph after it."""
    for found in re.finditer(r"(?:^\|.*\n)+\n?(?=(?P<after>(?:.+\n)*))", text, re.MULTILINE):
        yield found[0].partition("\n")[0], found["after"]


@pytest.mark.parametrize("name", UNMEASURED)
def test_every_table_of_figures_has_its_source(name: str) -> None:
    found = list(tables((DOCS / name).read_text()))
    assert {head for head, _ in found} >= UNMEASURED[name], "a table is gone"
    without = [
        head
        for head, after in found
        if head not in UNMEASURED[name] and not after.startswith("*Source:*")
    ]
    assert without == []


@pytest.mark.parametrize("name", UNMEASURED)
def test_sources_exist(name: str) -> None:
    text = (DOCS / name).read_text()
    sources = [after for _, after in tables(text) if after.startswith("*Source:*")]
    targets = (documents.ROOT / "Makefile").read_text()
    for source in sources:
        raw = re.findall(r"\]\((results/[^)]*)\)", source)
        assert all((DOCS / path).is_file() for path in raw), source
        assert raw or "raw figures were not kept" in " ".join(source.split()), source
        for target in re.findall(r"`make ([a-z-]+)", source):
            assert re.search(rf"^{target}:", targets, re.MULTILINE), target
        assert re.search(r"`(make|ovs-lbt bench) ", source), source


def test_a_table_without_a_source_is_seen() -> None:
    text = "| a |\n|---|\n| 1 |\n\nMore.\n\n| b |\n|---|\n| 2 |\n\n*Source:* x.\nand y.\n"
    assert list(tables(text)) == [("| a |", "More.\n"), ("| b |", "*Source:* x.\nand y.\n")]
