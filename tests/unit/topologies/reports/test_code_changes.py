"""Changes since a figure was measured, in a temporary repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from topologies.reports.code_changes import UNKNOWN, CodeChanges, rebased

NAMES = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "nobody"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "nobody@example.com"),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit."""
    for name, value in (*NAMES.items(), ("GIT_CONFIG_GLOBAL", "/dev/null")):
        monkeypatch.setenv(name, value)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    repository = tmp_path / "repository"
    repository.mkdir()
    _git(repository, "init", "-q")
    for path in ("policies/a.py", "controller/dataplane/b.py", "docs/results/c.json"):
        _write(repository, path, "one\n")
    _commit(repository)
    return repository


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def _write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def _commit(root: Path) -> str:
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "more")
    return _git(root, "rev-parse", "HEAD")


@pytest.mark.system
def test_changed_paths_are_named(root: Path) -> None:
    first, changes = _git(root, "rev-parse", "HEAD"), CodeChanges(root)
    nothing = "`policies/` and `controller/dataplane/` have not changed since"
    assert changes.since(first) == nothing
    _write(root, "docs/results/c.json", "two\n")
    second = _commit(root)
    assert changes.since(first) == nothing
    _write(root, "policies/a.py", "two\n")
    one = "`policies/` has changed since, `controller/dataplane/` has not changed since"
    assert changes.since(second) == one, "what is not committed counts, too"
    _commit(root)
    assert changes.since(second) == one
    _write(root, "controller/dataplane/b.py", "two\n")
    third = _commit(root)
    assert changes.since(first) == "`policies/` and `controller/dataplane/` have changed since"
    assert changes.since(third) == nothing
    _write(root, "policies/a.py", "one\n")
    _write(root, "controller/dataplane/b.py", "one\n")
    assert changes.since(first) == nothing, "the same code as it was"


@pytest.mark.system
def test_unknown_commit_is_reported(root: Path, tmp_path: Path) -> None:
    first = _git(root, "rev-parse", "HEAD")
    _write(root, "policies/a.py", "two\n")
    last = _commit(root)
    assert CodeChanges(root).since("f" * 40) == UNKNOWN
    shallow = tmp_path / "shallow"
    _git(root, "clone", "-q", "--depth", "1", root.as_uri(), str(shallow))
    assert CodeChanges(shallow).since(first) == UNKNOWN
    assert CodeChanges(shallow).since(last).endswith("have not changed since")
    lines = CodeChanges(shallow).lines_of([{"commit": first}], "docs/results/c.json")
    assert lines == [f"Measured at commit `{first[:7]}`: {UNKNOWN}."]
    assert CodeChanges(shallow).lines_of([{}], str(shallow / "docs/results/c.json")) == [
        "Commit of the runs: not recorded."
    ]


def test_no_commit_is_known_without_a_repository(tmp_path: Path) -> None:
    changes = CodeChanges(tmp_path)
    assert changes.since("HEAD") == UNKNOWN
    assert changes.lines_of([{}], "c.json") == ["Commit of the runs: not recorded."]


@pytest.mark.system
def test_each_commit_of_a_report_has_a_line(root: Path) -> None:
    commit, changes = _git(root, "rev-parse", "HEAD"), CodeChanges(root)
    same = "`policies/` and `controller/dataplane/` have not changed since."
    made = {"commit": commit, "modified": False}
    path = str(root / "docs/results/c.json")
    assert changes.lines_of([made, made], path) == [f"Measured at commit `{commit[:7]}`: {same}"]
    assert changes.lines_of([made, {**made, "modified": True}, {}], path) == [
        f"Measured at commit `{commit[:7]}` (1 of 3 runs): {same}",
        f"Measured at commit `{commit[:7]}` with uncommitted changes (1 of 3 runs): {same}",
        f"Commit of the runs: not recorded; they are no later than `{commit[:7]}`: {same}",
    ]
    _write(root, "policies/a.py", "two\n")
    _write(root, "docs/results/c.json", "corrected\n")
    later = _commit(root)
    (lines,) = changes.lines_of([{}], path)
    assert f"no later than `{later[:7]}`" in lines
    (lines,) = changes.lines_of([{"no_later_than": commit}], path)
    assert f"no later than `{commit[:7]}`: `policies/` has changed" in lines


@pytest.mark.system
def test_a_commit_that_was_rebased_is_named_as_it_is_here(root: Path) -> None:
    here = _git(root, "rev-parse", "HEAD")
    page = (
        "| a file names | here it is |\n|---|---|\n"
        f"| `aaaaaaa` (`x.json` before `ccccccc`), `bbbbbbb`, modified | `{here[:7]}`, and more |\n"
        "| `ddddddd` | not in the history; `eeeeeee` published the figures |\n"
    )
    assert rebased(page) == {"aaaaaaa": here[:7], "bbbbbbb": here[:7]}
    changes = CodeChanges(root, rebased(page))
    same = "`policies/` and `controller/dataplane/` have not changed since."
    assert changes.lines_of([{"commit": "a" * 40}], "docs/results/c.json") == [
        f"Measured at commit `{here[:7]}`, aaaaaaa in the raw figures: {same}"
    ]
    assert changes.lines_of([{"commit": here}], "docs/results/c.json") == [
        f"Measured at commit `{here[:7]}`: {same}"
    ]
