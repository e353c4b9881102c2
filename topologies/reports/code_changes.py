"""Which code has changed since a figure was measured, as git tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.reports.origin import NOT_RECORDED, ROOT, git, of_runs

# What decides, and what forwards: after a change here, a figure may be another one.
PATHS = ("policies", "controller/dataplane")
SHORT = 7
# How each line on this begins, so that a test can tell it from those that no clone changes.
MEASURED, KEPT = "Measured at commit", f"Commit of the runs: {NOT_RECORDED}"
UNKNOWN = "commit not in this repository"


@dataclass(frozen=True, slots=True)
class CodeChanges:
    """The history of a checkout; without one, no commit is known."""

    root: Path = ROOT

    def knows(self, commit: str) -> bool:
        """Whether a commit is in this repository."""
        return git("cat-file", "-e", f"{commit}^{{commit}}", root=self.root) is not None

    def since(self, commit: str) -> str:
        """Which of `PATHS` differ from what they were at a commit, in words.

        Compared with the files as they are, so that the answer is the same before and after they
        are committed.
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

    def kept_since(self, path: str) -> str:
        """The commit that brought a file in its present form; empty if that is not known.

        A shallow clone does not know it: its oldest commit seems to bring everything.
        """
        if (git("rev-parse", "--is-shallow-repository", root=self.root) or "").strip() != "false":
            return ""
        return (git("log", "-1", "--format=%H", "--", path, root=self.root) or "").strip()

    def lines(self, report: Mapping[str, Any], path: str) -> list[str]:
        """At which commits the runs of a report were made, and what has changed since.

        `path`: of the report in the repository. Where runs have no commit, the one that brought
        the report is the latest that they can be of, or the one that the report itself names,
        where it was corrected afterwards.
        """
        return self.told(of_runs(report), path)

    def told(self, origins: Sequence[Mapping[str, Any]], path: str) -> list[str]:
        """The same for the origins of runs."""
        found: dict[tuple[str, bool], int] = {}
        for one in origins:
            key = (one.get("commit", ""), bool(one.get("modified")))
            found[key] = found.get(key, 0) + 1
        lines = [
            f"{MEASURED} `{commit[:SHORT]}`{' with changes of its own' * modified}"
            f"{f' ({count} of {len(origins)} runs)' if len(found) > 1 else ''}:"
            f" {self.since(commit)}."
            for (commit, modified), count in found.items()
            if commit
        ]
        if not lines or any(not commit for commit, _ in found):
            limits = {one.get("no_later_than") for one in origins} - {None}
            (limit,) = limits or {None}
            lines.append(self._not_recorded(limit or self.kept_since(path)))
        return lines

    def _not_recorded(self, kept: str) -> str:
        if not kept:
            return f"{KEPT}."
        return f"{KEPT}; they are no later than `{kept[:SHORT]}`: {self.since(kept)}."


def _names(paths: Sequence[str]) -> str:
    names = " and ".join(f"`{path}/`" for path in paths)
    return f"{names} {'has' if len(paths) == 1 else 'have'}"
