"""Tells from git which code has changed since a figure was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topologies.reports.origin import NOT_RECORDED, ROOT, git, of_runs

# The policies and the forwarding: a change there may change a figure.
PATHS = ("policies", "controller/dataplane")
SHORT = 7
# Every generated line starts with one of these, so that tests can ignore them in shallow clones.
MEASURED, KEPT = "Measured at commit", f"Commit of the runs: {NOT_RECORDED}"
UNKNOWN = "commit not in this repository"
# A row of the table of commits that were rebased: names in raw figures, and the commit here.
REBASED = re.compile(r"^\| (?P<names>`[0-9a-f]{7}`[^|]*) \| `(?P<here>[0-9a-f]{7})`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeChanges:
    """The history of a checkout. Without a checkout, no commit is known.

    `here` has the commits of this history by the names that raw figures give them. Those were
    rebased after the figures had been measured.
    """

    root: Path = ROOT
    here: Mapping[str, str] = field(default_factory=dict)

    def knows(self, commit: str) -> bool:
        """Whether a commit is in this repository."""
        return git("cat-file", "-e", f"{commit}^{{commit}}", root=self.root) is not None

    def since(self, commit: str) -> str:
        """Describe which of `PATHS` have changed since a commit.

        The comparison is with the working tree, so that the text is the same before and after
        a commit.
        """
        if not self.knows(commit):
            return UNKNOWN
        changed = [
            path
            for path in PATHS
            if git("diff", "--quiet", commit, "--", path, root=self.root) is None
        ]
        same = [path for path in PATHS if path not in changed]
        parts = [f"{_names(changed)} changed since" if changed else ""]
        parts.append(f"{_names(same)} not changed since" if same else "")
        return ", ".join(part for part in parts if part)

    def last_commit(self, path: str) -> str:
        """The last commit that changed a file; empty if it is unknown.

        A shallow clone does not know it, because its oldest commit seems to add all files.
        """
        if (git("rev-parse", "--is-shallow-repository", root=self.root) or "").strip() != "false":
            return ""
        return (git("log", "-1", "--format=%H", "--", path, root=self.root) or "").strip()

    def lines(self, report: Mapping[str, Any], path: str) -> list[str]:
        """Describe the commits of a report's runs, and what has changed since.

        `path` is that of the report. If runs have no commit, they are no later than the last commit
        of the report. A report that was corrected afterwards names an earlier commit itself.
        """
        return self.lines_of(of_runs(report), path)

    def lines_of(self, origins: Sequence[Mapping[str, Any]], path: str) -> list[str]:
        """Describe the commits of runs by their origins, like `lines`."""
        found: dict[tuple[str, bool], int] = {}
        for one in origins:
            key = (one.get("commit", ""), bool(one.get("modified")))
            found[key] = found.get(key, 0) + 1
        lines = [
            f"{MEASURED} {self._named(commit)}{' with uncommitted changes' * modified}"
            f"{f' ({count} of {len(origins)} runs)' if len(found) > 1 else ''}:"
            f" {self.since(self.here.get(commit[:SHORT], commit))}."
            for (commit, modified), count in found.items()
            if commit
        ]
        if not lines or any(not commit for commit, _ in found):
            limits = {one.get("no_later_than") for one in origins} - {None}
            (limit,) = limits or {None}
            lines.append(self._not_recorded(limit or self.last_commit(path)))
        return lines

    def _named(self, commit: str) -> str:
        name = commit[:SHORT]
        here = self.here.get(name)
        return f"`{here}`, {name} in the raw figures" if here else f"`{name}`"

    def _not_recorded(self, commit: str) -> str:
        if not commit:
            return f"{KEPT}."
        return f"{KEPT}; they are no later than `{commit[:SHORT]}`: {self.since(commit)}."


def rebased(page: str) -> dict[str, str]:
    """The commits of this history by their names in raw figures, from the table of a page.

    A name in parentheses says of which files a row is, and is not part of it.
    """
    return {
        name: row["here"]
        for row in REBASED.finditer(page)
        for name in re.findall(r"`([0-9a-f]{7})`", re.sub(r"\([^)]*\)", "", row["names"]))
    }


def _names(paths: Sequence[str]) -> str:
    names = " and ".join(f"`{path}/`" for path in paths)
    return f"{names} {'has' if len(paths) == 1 else 'have'}"
