"""Tables of measured figures name their raw figures and the command that makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import documents
from tests.unit.docs.test_measured_tables import TABLES
from topologies.reports.origin import git

DOCS = documents.ROOT / "docs"
RELIABILITY = sorted(f"reliability/{path.name}" for path in (DOCS / "reliability").glob("*.md"))
POLICIES = sorted(f"policies/{path.name}" for path in (DOCS / "policies").glob("*.md"))
BENCHMARKS = sorted(f"benchmarks/{path.name}" for path in (DOCS / "benchmarks").glob("*.md"))
TASKS = sorted(page.removeprefix("docs/") for page in documents.TASKS)
PAGES = (
    *("benchmarks.md", "operations.md", "policies.md", "reliability.md"),
    *(*BENCHMARKS, *RELIABILITY, *POLICIES, *TASKS),
)
COMMIT = re.compile(r"`([0-9a-f]{7})`")
# Tables without measured figures, by their first heads: what is checked, limits, meanings, and
# what others publish.
UNMEASURED: dict[str, set[str]] = {
    **{page: set() for page in (*RELIABILITY, *POLICIES)},
    # Figures of the pages that it links to (test_pages.py).
    "reliability.md": {"| tried | bound | result | test |"},
    "reliability/chaos.md": {
        "| event | link state | BFD | LACP | why |",
        "| event | lost at most, ms | why |",
        "| event | duplicate broadcasts of one flow | why |",
    },
    "reliability/limits.md": {"| event | limit | test in `tests/switch` |"},
    "reliability/forwarding.md": {
        "| situation | Open vSwitch alone | ovs-lbt | test |",
    },
    "reliability/reports.md": {
        "| situation | Open vSwitch alone | ovs-lbt |",
    },
    "reliability/hostile-input.md": {
        "| client | what happens | test |",
        "| attacker | attack | outcome |",
    },
    "reliability/others.md": {
        "| | detected failures | when a link returns |",
        "| | if the program that selects uplinks is down | forged source addresses |",
    },
    "policies.md": {"| policy | use it if | distributes | moves |"},
    "policies/equivalents.md": {
        "| other product | ovs-lbt | placed | differences |",
        "| other product | ovs-lbt | differences |",
        "| placement rules | ovs-lbt |",
    },
    "policies/rules.md": {"| key | requirement | if not possible |"},
    "policies/hashing.md": {
        "| `teaming` | upstream switch | inbound | frames that leave on another uplink than home |",
    },
    "policies/shares.md": {"| key | on a full uplink | otherwise |"},
    "policies/many-vms.md": {"| policy of the port | addresses |"},
    "policies/plan.md": {"| `against`, in JSON | why the port stays |"},
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
        raw = re.findall(r"\]\(((?:\.\./)?results/[^)]*)\)", source)
        assert all(((DOCS / name).parent / path).is_file() for path in raw), source
        assert raw, source
        for target in re.findall(r"`make ([a-z-]+)", source):
            assert re.search(rf"^{target}:", targets, re.MULTILINE), target
        assert re.search(r"`(make|ovs-lbt bench) ", source), source


FIGURES = (*RELIABILITY, "operations.md", *TASKS)
# Tables of words, of which test_measured_numbers.py compares the numbers.
WITH_CLAIMS = (
    *("| event | effect | measured | test |", "| a VM | what happens | test |"),
    "| what | promised | measured | test |",
)
GENERATED = re.compile(r"<!-- (\w+): begin.*?<!-- \1: end -->", re.DOTALL)


@pytest.mark.parametrize("name", FIGURES)
def test_every_table_with_raw_figures_is_compared_with_them(name: str) -> None:
    # What is generated from raw figures is compared as a whole (test_measured_tables.py).
    written = GENERATED.sub("", (DOCS / name).read_text())
    # A table may be in an item of a list, and so is its source.
    found = [
        head
        for head, after in tables(re.sub(r"^ +", "", written, flags=re.MULTILINE))
        if after.startswith("*Source:*") and "results/" in after
    ]
    compared = (*(table.head for table in TABLES if table.page == f"docs/{name}"), *WITH_CLAIMS)
    assert [head for head in found if not head.startswith(compared)] == []


def test_no_figure_is_without_raw_figures() -> None:
    pages = [documents.ROOT / "README.md", *DOCS.rglob("*.md")]
    # A decision record has the figures of its day.
    pages = [page for page in pages if page.parent.name != "decisions"]
    assert len(pages) > 10
    without = re.compile(r"(raw figures|these) were not kept|(measured|counted) by hand", re.I)
    assert [str(page) for page in pages if without.search(" ".join(page.read_text().split()))] == []


def test_the_readme_of_raw_figures_names_every_file() -> None:
    text = (DOCS / "results/README.md").read_text()
    named = {
        word
        for line in text.splitlines()
        if line.startswith("| ")
        for word in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    files = [path.relative_to(DOCS / "results") for path in (DOCS / "results").rglob("*.*")]
    assert len(files) > 50
    assert [
        str(file)
        for file in files
        if file != Path("README.md") and not any(fnmatch(str(file), name) for name in named)
    ] == []
    assert [name for name in named if "." in name and not any(DOCS.glob(f"results/{name}"))] == []


def unknown(commits: set[str]) -> list[str]:
    """The commits that are neither in this history nor in the list of rebased ones."""
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow is None or shallow.strip() != "false":
        pytest.skip("without the whole history, no commit is known")
    text = (DOCS / "results/commits.txt").read_text()
    renamed = set(re.findall(r"^(\w+) -> ", text, re.MULTILINE))
    others = [one for one in commits if one[:7] not in renamed]
    return [one for one in others if git("merge-base", "--is-ancestor", one, "HEAD") is None]


def test_the_list_of_rebased_commits_has_every_commit_that_is_not_in_this_history() -> None:
    named = {
        commit
        for path in (DOCS / "results").rglob("*.json")
        for commit in re.findall(r'"commit": "([0-9a-f]{7,40})', path.read_text())
    }
    assert len(named) > 20
    assert unknown(named) == []


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{n}" for n in (*PAGES, "architecture.md", "releases.md"))]
)
def test_commits_are_in_this_history_or_it_is_said_which_is(page: str) -> None:
    assert unknown(set(COMMIT.findall((documents.ROOT / page).read_text()))) == []
