"""The table of tested releases in docs/releases.md, made from what was run."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import documents
from tests.releases import result
from tests.releases.kernel import short_version
from tests.releases.steps import FRESH, KERNEL
from topologies.reports import stored

RESULTS = Path("docs/results/releases")
KERNEL_LOGS = Path("docs/results/kernel")
PAGE = Path("docs/releases.md")
BEGIN, END = "<!-- releases: begin -->", "<!-- releases: end -->"
HEAD = (
    "| distribution | Open vSwitch | datapath | Python | framework | passed | did not run | commit |\n"
    "|---|---|---|---|---|---|---|---|"
)
RYU, OS_KEN = "Ryu", "os-ken"


def publish(paths: Sequence[Path], checkout: Path) -> int:
    """Take results over, and write the table again.

    Returns:
        0: done; 1: one of them is of what nobody can look up.
    """
    for path in paths:
        found = stored.read(path)
        if "+" in found["commit"]:
            print(
                f"{path} is a result of uncommitted changes: {found['commit']}; commit them, and run the tests again",
                file=sys.stderr,
            )
            return 1
        published = checkout / RESULTS / f"{name_of(found)}.json"
        published.parent.mkdir(parents=True, exist_ok=True)
        if published.exists():
            found = with_steps_before(found, stored.read(published))
        result.write(published, found)
        # Documents quote some of the logs; only these are kept.
        for kept in (checkout / KERNEL_LOGS).glob("*.log") if "kernel" in found else ():
            if (path.parent / kept.name).exists():
                shutil.copyfile(path.parent / kept.name, kept)
    page = checkout / PAGE
    page.write_text(with_table(page.read_text(), read(checkout)))
    return 0


def with_steps_before(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """A result with the steps that only an earlier one has, each with the commit that it ran on.

    All steps take an hour and more, and many commits concern few of them. Those of another Open vSwitch
    are left out.
    """
    if before["openvswitch"] != found["openvswitch"]:
        return found
    names = ran(found)
    kept = [
        {"commit": before["commit"], **step}
        for step in before["steps"]
        if step["name"] not in names
    ]
    return {**found, "steps": [*kept, *found["steps"]]}


def name_of(found: dict[str, Any]) -> str:
    """Of a result's file."""
    if "kernel" in found:
        return f"kernel-{short_version(found['kernel']['version'])}"
    if found["built"]:
        return f"ovs-{found['openvswitch']}"
    distribution = found["distribution"]
    if codename := re.search(r"\((\w+)\)", distribution):
        return codename[1]
    words = re.match(r"(\w+) (\d+\.\d+)\b", distribution)
    return "-".join(words.groups() if words else distribution.split()).lower()


def read(checkout: Path) -> list[dict[str, Any]]:
    """Everything that is published: distributions, others' releases of Open vSwitch, kernels."""
    found = [stored.read(path) for path in (checkout / RESULTS).glob("*.json")]
    return sorted(
        found, key=lambda one: ("kernel" in one, one["built"], _numbers(one["openvswitch"]))
    )


def table(found: Sequence[dict[str, Any]]) -> str:
    """A row for each result, and the steps that run with each datapath."""
    steps = [
        f"- {datapath}: {'; '.join(step.what for step in all_steps)}"
        for datapath, all_steps in (("Userspace datapath", FRESH), ("Kernel datapath", KERNEL))
    ]
    return "\n".join([HEAD, *map(_row, found), "", "All steps:", "", *steps])


def with_table(text: str, found: Sequence[dict[str, Any]]) -> str:
    """A document with the table between its marks."""
    return documents.with_made(text, BEGIN, END, f"\n{table(found)}\n")


def ran(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The steps that began, by name."""
    return {one["name"]: one for one in found["steps"]}


def _row(found: dict[str, Any]) -> str:
    steps = ran(found)
    possible = KERNEL if "kernel" in found else FRESH
    if "kernel" in found:
        wanted = {step.name for step in KERNEL}
        steps = {name: one for name, one in steps.items() if name in wanted}
    missing = [step.what for step in possible if step.name not in steps]
    passed = sum(one["passed"] for one in steps.values())
    failed = sum(one["failed"] for one in steps.values())
    rerun = sum(one["rerun"] for one in steps.values())
    cells = [
        f"{found['distribution']}, Open vSwitch built" if found["built"] else found["distribution"],
        found["openvswitch"],
        _datapath(found),
        found["python"],
        _framework(found, steps),
        _counts(passed, failed, rerun, [name for name, one in steps.items() if result.is_bad(one)]),
        "; ".join(missing),
        _commits(found, steps),
    ]
    return f"| {' | '.join(cells)} |"


def _datapath(found: dict[str, Any]) -> str:
    if "kernel" not in found:
        return "userspace"
    return f"kernel: Linux {found['kernel']['version']}, {found['kernel']['runs']}"


def _framework(found: dict[str, Any], steps: dict[str, Any]) -> str:
    """Stock Ryu only where its tests ran."""
    frameworks = found["frameworks"]
    words = [f"{OS_KEN} {frameworks[OS_KEN]}"] if OS_KEN in frameworks else []
    if RYU in frameworks and "ryu" in steps:
        words.append(f"stock Ryu {frameworks[RYU]}")
    return ", ".join(words) or "none"


def _commits(found: dict[str, Any], steps: dict[str, dict[str, Any]]) -> str:
    """The commit of most steps, and that of each step that ran on another one."""
    by_commit: dict[str, list[str]] = {}
    for name, step in steps.items():
        by_commit.setdefault(step.get("commit", found["commit"]), []).append(name)
    most, *others = sorted(by_commit.items(), key=lambda one: -len(one[1]))
    words = [f"{', '.join(names)}: `{commit}`" for commit, names in others]
    return "; ".join([f"`{most[0]}`", *words])


def _counts(passed: int, failed: int, rerun: int, bad: Sequence[str]) -> str:
    words = [f"{passed} of {passed + failed}"]
    if rerun:
        words.append(f"{rerun} tried again")
    if bad:
        words.append(f"failed: {', '.join(bad)}")
    return "; ".join(words)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
