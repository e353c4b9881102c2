"""Measured figures in the documents are those that were compared with raw figures, which name their commits."""

from __future__ import annotations

import re
import statistics

import pytest

from controller.features.connection_hash import SILENT_IN_KERNEL, SILENT_IN_USERSPACE
from tests import documents
from tests.unit.docs.measured import COMMAND, RESULTS, digest, figures, pages, recorded, sources
from topologies.reports import stored
from topologies.reports.origin import git

PLACES = [(page, *place) for page, of in recorded().items() for place in of.items()]
COMMIT = re.compile(r"`([0-9a-f]{7})`|\"commit\": \"([0-9a-f]{7})")


@pytest.mark.parametrize(("page", "beginning", "known"), PLACES)
def test_figures_of_a_page_are_those_compared_with_these_raw_figures(
    page: str, beginning: str, known: tuple[str, dict[str, str]]
) -> None:
    compared, raw = known
    hint = f"compare {page} with {', '.join(raw)}, then run {COMMAND}"
    assert figures(page, beginning, len(compared.split())) == compared, hint
    assert {file: digest(file) for file in raw} == raw, hint


def test_every_table_with_raw_figures_is_recorded() -> None:
    known = recorded()
    assert [
        f"{page}: {head}"
        for page in pages()
        for head, _ in sources(page)
        if not any(head.startswith(beginning) for beginning in known.get(page, ()))
    ] == []


@pytest.mark.parametrize(
    ("told", "datapath"), [(SILENT_IN_USERSPACE, "userspace"), (SILENT_IN_KERNEL, "kernel")]
)
def test_show_gives_the_silence_that_was_measured_with_multipath(told: str, datapath: str) -> None:
    silent_ms = statistics.median(
        run["silent_ms"]
        for run in stored.read(RESULTS / f"causes/failover_{datapath}.json")["runs"]
        if (run["by"], run["connections"]) == ("dynamic, multipath, on balance-slb", 10_000)
    )
    assert f"{silent_ms:.0f} ms" in told


def test_commits_that_are_named_are_in_this_history_or_it_is_said_which_is() -> None:
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow is None or shallow.strip() != "false":
        pytest.skip("without the whole history, no commit is known")
    files = [*map(documents.ROOT.joinpath, documents.pages()), *RESULTS.rglob("*.json")]
    named = {
        one[0] or one[1]: path
        for path in files
        if path.parent.name != "decisions" and path.name != "CHANGELOG.md"
        for one in COMMIT.findall(path.read_text())
    }
    assert len(named) > 20
    renamed = re.findall(r"^(\w+) -> ", (RESULTS / "commits.txt").read_text(), re.MULTILINE)
    here = {line[:7] for line in (git("rev-list", "HEAD") or "").splitlines()}
    assert {c: path for c, path in named.items() if c not in here.union(renamed)} == {}
