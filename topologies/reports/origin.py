"""Records the origin of a run: the code, the command, the machine and its load."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import topologies

# The directory of the checkout, if the code runs from one.
ROOT = Path(topologies.__file__).resolve().parents[1]
NOT_RECORDED = "not recorded"
# The default OpenFlow framework of the service, and the variable that selects another.
FRAMEWORK, FRAMEWORK_VARIABLE = "os-ken", "OVS_LBT_FRAMEWORK"

# A line of the list of commits that were rebased: the name in raw figures, and the commit here.
REBASED = re.compile(r"^([0-9a-f]{7}) -> ([0-9a-f]{7})\b", re.MULTILINE)


def origin(command: Sequence[str]) -> dict[str, Any]:
    """The origin of a run that starts now, without what is unknown.

    `load_average` is that of the machine over the last 1, 5 and 15 minutes. It shows whether other
    programs were busy. `command` names the program without the directory where this machine has it.
    """
    program = [Path(one).name for one in command[:1]]
    return {
        **_code(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "load_average": [round(one, 2) for one in os.getloadavg()],
        "command": shlex.join([*program, *command[1:]]),
    }


def same_code(origin_: Mapping[str, Any]) -> bool:
    """Whether the present code made a run, according to its commit and the changes since then."""
    return all(origin_.get(key) == _code().get(key) for key in ("commit", "modified", "changes"))


def of_runs(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The origin of each run of a report of any kind; empty for a run without one.

    A report can have one origin for all of its runs.
    """
    runs = [
        run
        for scenario in report.get("scenarios", ())
        for found in scenario["contenders"].values()
        for run in found.get("runs", ())
    ]
    runs += report.get("rows", ())
    whole = report.get("origin", {})
    return [run.get("origin", whole) for run in runs]


def rebased(text: str) -> dict[str, str]:
    """The commits of this history by their names in raw figures, from a list of those."""
    return dict(REBASED.findall(text))


def commits(report: Mapping[str, Any], here: Mapping[str, str]) -> str:
    """The commits of a report's runs in this history, from those in `here` that were rebased."""
    found = dict.fromkeys(one.get("commit", "")[:7] for one in of_runs(report))
    known = dict.fromkeys(f"`{here.get(name, name)}`" for name in found if name)
    return ", ".join([*known, *([NOT_RECORDED] if "" in found else [])])


def described(origins: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A text on each part of the origins of several runs, by its name."""
    loads = sorted(one["load_average"][0] for one in origins if one.get("load_average"))
    commits = [
        f"{one['commit']}{' with uncommitted changes' * bool(one.get('modified'))}"
        if one.get("commit")
        else NOT_RECORDED
        for one in origins
    ]
    return {
        "commit": "; ".join(dict.fromkeys(commits)) or NOT_RECORDED,
        "load average at the start of runs": f"{loads[0]} to {loads[-1]}"
        if loads
        else NOT_RECORDED,
        "command": "; ".join(dict.fromkeys(one.get("command", NOT_RECORDED) for one in origins)),
    }


@cache
def _code() -> Mapping[str, Any]:
    """The commit of the running code, and whether tracked files differ from it, with a hash of the changes.

    The result is cached, because files may change during a long campaign, but the loaded code does
    not.
    """
    commit = git("rev-parse", "HEAD")
    if commit is None or git("ls-files", "--error-unmatch", "topologies/bench.py") is None:
        return {}
    changed = git("diff", "HEAD") or ""
    digest = {"changes": hashlib.sha256(changed.encode()).hexdigest()[:12]} if changed else {}
    return {"commit": commit.strip(), "modified": bool(changed), **digest}


def git(*words: str, root: Path = ROOT) -> str | None:
    """The output of a git command in the checkout; None if it fails or git is missing."""
    try:
        found = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout if found.returncode == 0 else None


@cache
def open_vswitch() -> str:
    """The first line of `ovs-vswitchd --version`; empty without that program."""
    try:
        said = subprocess.run(["ovs-vswitchd", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return ""
    return said.partition("\n")[0]


@cache
def _versions() -> Mapping[str, str]:
    framework = os.environ.get(FRAMEWORK_VARIABLE) or FRAMEWORK
    found = {
        "Open vSwitch": open_vswitch().rpartition(" ")[2],
        "kernel": platform.release(),
        "Python": platform.python_version(),
    }
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["framework"] = f"{framework} {importlib.metadata.version(framework)}"
    return {name: version for name, version in found.items() if version}
