"""The results in docs/reliability.md against the pages that it links to."""

from __future__ import annotations

import re

import pytest

from tests import documents
from tests.unit.docs.figures import NUMBER

INDEX = documents.ROOT / "docs/reliability.md"
HEAD = "| tried | bound | result | test |"


SECTIONS = {title: s for title, s in documents.sections("docs/reliability.md").items() if HEAD in s}


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_every_figure_is_on_the_page_that_the_section_links_to(section: str) -> None:
    (page,) = re.findall(r"^\[[^]]*\]\((reliability/[\w-]+\.md)[^)]*\)$", section, re.MULTILINE)
    told = set(re.findall(NUMBER, (INDEX.parent / page).read_text()))
    for line in section.partition(HEAD)[2].splitlines()[2:]:
        if not line.startswith("| "):
            break
        _, _, result, tests = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(re.findall(NUMBER, result)) <= told, line
        for test in re.findall(r"`([\w/]*test_\w+\.py)`", tests):
            path = test if "/" in test else f"tests/switch/{test}"
            assert (documents.ROOT / path).is_file(), line


def test_every_page_is_linked() -> None:
    linked = set(re.findall(r"\]\(reliability/([\w-]+\.md)", INDEX.read_text()))
    assert linked == {path.name for path in (INDEX.parent / "reliability").glob("*.md")}


def test_every_test_that_checks_a_limit_is_there() -> None:
    page = (INDEX.parent / "reliability/limits.md").read_text()
    rows = page.partition("| event | limit |")[2].partition("\n\n")[0].splitlines()[2:]
    tests = [test for row in rows for test in re.findall(r"`(test_\w+\.py)`", row)]
    assert len(tests) > len(rows) > 30
    assert [test for test in tests if not (documents.ROOT / "tests/switch" / test).is_file()] == []
