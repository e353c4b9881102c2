"""The parts of `make test-all`, which of them need not run again, and the page with their results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.releases import result
from tests.releases.distributions import DISTRIBUTIONS
from tests.releases.root import RELEASES
from tests.releases.steps import FRESH, KERNEL, PYTEST, Step
from topologies.reports import stored

CHECKOUT = Path(__file__).resolve().parents[2]
# Files there only record results. A change to them cannot change the outcome of a test.
RESULTS = "docs/results/all"
# Only the parts that name such a file run it, and those that run many without naming them.
_TEST = re.compile(r"tests/(\w+/)+test_\w+\.py$")
_RUNS_MANY = re.compile(r"make (test|lint)|quick\.sh|tests/(unit|wire)$")
STATE, PAGE = "state.json", "README.md"
SEEDS, EVENTS = 15, 200
KINDS = ("passed", "failed", "skipped", "deselected")
PACKAGES = ("deb", "package", "others-deb")
# All their tests are skipped on the userspace datapath. Steps of KERNEL run them.
ONLY_ON_THE_KERNEL = ("test_endpoints_in_one_network", "test_ovn_one_network", "test_proxmox")
LOCAL, GUEST, EACH_ROOT = "local", "guest", "each root"
GROUPS = {
    "checks": "`make lint`, `tests/unit` and `tests/wire`",
    "mininet": "`tests/mininet`",
    "switch": "`tests/switch`, userspace datapath",
    "kernel": "`make test-kernel`",
    "packages": "the package, in a root of each release: build, install, purge",
    **{release: f"a minimal root of {release}: `make test-fresh`" for release in RELEASES},
    "fuzz": "`make fuzz`: ten minutes for each parser of what comes from outside",
    "scale": "`make bench-scale ARGS=--quick`",
    "chaos": f"`make soak`: {SEEDS} seeds of {EVENTS} events",
    "times": "`make bench-times`: the limits that the documents promise, with nothing next to it",
}
NOT_RUN = {
    "`make test` in each root": "takes 20 minutes and more in each of four roots",
    "`make test-ryu` outside the roots of Debian": "README does not name Ryu for Ubuntu",
    "`make test-ovs`": "needs an Open vSwitch that is built on the machine",
    "`make bench` and the other benches": "measure, and take ten hours. `tests/mininet` runs their short forms",
    "lost frames beyond a bound in `chaos`": "do not fail a part (`--go-on`): out/all/chaos lists them",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A step of a group; `place`: LOCAL, GUEST, EACH_ROOT, or the release in whose root it runs.

    `at_a_time`: how many parts of the group run side by side. `planned_s`: how long it takes by itself.
    """

    group: str
    step: Step
    planned_s: float
    at_a_time: int = 1
    place: str = LOCAL

    @property
    def name(self) -> str:
        return f"{self.group}/{self.step.name}"

    @property
    def log(self) -> str:
        """The file or directory below that of the run."""
        if self.place in (LOCAL, GUEST):
            return f"{self.name}.log"
        return f"fresh/{self.place}/{self.step.name}.log" if self.place in RELEASES else "fresh"


def parts() -> tuple[Part, ...]:
    """All of them, in the order in which they run."""
    # This imports hypothesis, which is only in .venv. `make test-fresh` runs without it.
    from tests.unit.fuzz.targets import TARGETS

    cores = len(os.sched_getaffinity(0))
    computing = f"{PYTEST} -n {cores} --dist worksteal"
    found = [
        _local("checks", "lint", "make lint", 60, tests=False),
        _local("checks", "unit", f"{computing} tests/unit", 300),
        _local("checks", "wire", f"{computing} tests/wire", 30),
    ]
    for group, planned_s in (("mininet", 50), ("switch", 50)):
        found += [
            _local(
                group,
                file.stem.removeprefix("test_"),
                # The group `times` runs the others, and holds them against stricter limits.
                f"{_alone(file)} -m 'not times'",
                planned_s,
                at_a_time=2 * cores,
            )
            for file in _files(group)
            if file.stem not in ONLY_ON_THE_KERNEL and _timed(file) < _tests(file)
        ]
    found += [Part("kernel", step, 315, at_a_time=cores, place=GUEST) for step in KERNEL]
    packages = Step("packages", "", " ".join(PACKAGES), 0)
    found.append(Part("packages", packages, 1500, place=EACH_ROOT))
    for release in RELEASES:
        steps = [step for step in FRESH if step.name not in (*PACKAGES, "test")]
        if release not in DISTRIBUTIONS[0].releases:
            steps = [step for step in steps if step.name != "ryu"]
        found += [Part(release, step, 150, at_a_time=cores, place=release) for step in steps]
    for name, target in TARGETS.items():
        words = f"--target '{name}' --processes 1 --out 'out/all/fuzz/{name}'"
        command = f".venv/bin/python -m tests.unit.fuzz {words}"
        found.append(_local("fuzz", name, command, target.seconds + 20, at_a_time=cores))
    scale = ".venv/bin/ovs-lbt bench scale --quick --out out/all"
    found.append(_local("scale", "scale", scale, 420, tests=False))
    for seed in range(1, SEEDS + 1):
        # Each kind of team with and without them: teams repeat after three seeds.
        extras = "--adaptive --standby " * (seed % 4 == 0)
        words = f"--seed {seed} --events {EVENTS} {extras}--go-on --out out/all/chaos"
        command = f".venv/bin/python -m tests.switch.chaos.soak {words}"
        found.append(
            _local("chaos", f"seed-{seed}", command, 350 if extras else 200, at_a_time=cores)
        )
    for file in (*_files("mininet"), *_files("switch")):
        if _timed(file):
            name = file.stem.removeprefix("test_")
            words = f"-m times --figures out/all/times/{name}.json"
            found.append(_local("times", name, f"{_alone(file)} {words}", 110))
    return tuple(found)


def _tests(file: Path) -> int:
    return len(re.findall(r"^def test_", file.read_text(), re.MULTILINE))


def _timed(file: Path) -> int:
    """How many tests of a file belong to `make bench-times`."""
    return len(
        re.findall(r"^@(?:judging\.)?(?:judges_time|in_bench)\b", file.read_text(), re.MULTILINE)
    )


def _files(group: str) -> list[Path]:
    return sorted((CHECKOUT / "tests" / group).rglob("test_*.py"))


def _local(
    group: str, name: str, command: str, planned_s: float, at_a_time: int = 1, tests: bool = True
) -> Part:
    return Part(group, Step(name, name, command, 3600, tests), planned_s, at_a_time)


def _alone(file: Path) -> str:
    return f"{PYTEST} -p no:cacheprovider {file.relative_to(CHECKOUT)}"


def chosen(all_parts: Sequence[Part], names: Sequence[str] | None) -> list[Part]:
    """The parts of these names or groups; all of them for None.

    Raises:
        ValueError: there is none of a name.
    """
    known = {part.name for part in all_parts} | {part.group for part in all_parts}
    for name in names or ():
        if name not in known:
            raise ValueError(f"--steps: there is no part {name}; groups: {' | '.join(GROUPS)}")
    return [part for part in all_parts if names is None or {part.name, part.group} & {*names}]


def planned(all_parts: Iterable[Part], took_s: Mapping[str, float]) -> list[Part]:
    """The parts with the time that each took when it last passed, if that is known; long ones of a group first."""
    found = [replace(one, planned_s=took_s.get(one.name, one.planned_s)) for one in all_parts]
    order = list(GROUPS)

    def before(part: Part) -> tuple[int, float]:
        if part.place in RELEASES:
            # Roots run side by side, and each its steps in their order.
            return order.index(RELEASES[0]), 0
        return order.index(part.group), -part.planned_s * (part.at_a_time > 1)

    return sorted(found, key=before)


def minutes(planned_parts: Iterable[Part]) -> float:
    """How long the parts take together."""
    return sum(part.planned_s / part.at_a_time for part in planned_parts) / 60


def read(*paths: Path) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The results of earlier runs, perhaps on another machine; how long each part took when it last passed."""
    found = [stored.read(path) for path in paths if path.exists()]
    took_s = {name: seconds for one in found for name, seconds in one["took_s"].items()}
    return [part for one in found for part in one["parts"]], took_s


def write(path: Path, found: Sequence[Mapping[str, Any]], took_s: Mapping[str, float]) -> None:
    """Write results for `read`, and keep how long other parts took."""
    passed = {one["name"]: one["seconds"] for one in found if one["verdict"] == result.PASSED}
    result.write(path, {"took_s": {**took_s, **passed}, "parts": [*found]})


def counts(one: Mapping[str, Any], part: Part, checkout: Path) -> bool:
    """Whether a part need not run again: it passed, and nothing that it reads has changed since."""
    if result.is_bad(one) or "+" in one["commit"]:
        return False
    asked = ["git", "-C", str(checkout), "diff", "--name-only", "--no-renames"]
    done = subprocess.run([*asked, one["commit"], "HEAD"], capture_output=True, text=True)
    changed = done.stdout.splitlines()
    return done.returncode == 0 and not any(_reads(part, file, checkout) for file in changed)


def old(found: Iterable[Mapping[str, Any]], checkout: Path) -> list[str]:
    """The parts that must run again."""
    known = {part.name: part for part in parts()}
    return [
        one["name"]
        for one in found
        if one["name"] in known and not counts(one, known[one["name"]], checkout)
    ]


def _reads(part: Part, file: str, checkout: Path) -> bool:
    """Whether a file can change the outcome of a part."""
    if file.startswith(f"{RESULTS}/"):
        return False
    if not _TEST.match(file) or _RUNS_MANY.search(part.step.command):
        return True
    module = file.removesuffix(".py").replace("/", ".")
    asked = ["git", "-C", str(checkout), "grep", "-q", f"from {module} import", "--"]
    # Unit tests that import it are run by the parts above only.
    others = (".", ":(exclude,glob)tests/unit/**/test_*.py", ":(exclude)tests/wire")
    imported = subprocess.run([*asked, *others], capture_output=True).returncode == 0
    return imported or file in part.step.command


def failed(part: Part, why: str) -> dict[str, Any]:
    """The result of a step that could not begin."""
    nothing = dict.fromkeys(KINDS, 0)
    return {"name": part.step.name, "verdict": why, "seconds": 0.0, **nothing, "skips": {}}


def joined(part: Part, found: Sequence[Mapping[str, Any]], **facts: Any) -> dict[str, Any]:
    """The result of a part, from the results of its steps."""
    bad = [f"{one['name']}: {one['verdict']}" for one in found if result.is_bad(one)]
    whole: dict[str, Any] = {kind: sum(one[kind] for one in found) for kind in KINDS}
    reasons: dict[str, int] = {}
    for one in found:
        for reason, number in one["skips"].items():
            reasons[reason] = reasons.get(reason, 0) + number
    if missing := whole["skipped"] - sum(reasons.values()):
        reasons["the log, without a reason"] = missing
    return {
        "name": part.name,
        "verdict": "; ".join(bad) or result.PASSED,
        "seconds": round(sum(one["seconds"] for one in found), 1),
        **whole,
        "skips": reasons,
        **facts,
    }


def page(found: Iterable[Mapping[str, Any]], old: Collection[str]) -> str:
    """What ran, what was skipped and what did not run. `old`: the parts that must run again."""
    known = parts()
    of = {one["name"]: one for one in found}
    ran = [of[part.name] for part in known if part.name in of]
    bad = [one for one in ran if result.is_bad(one)]
    again = [one["name"] for one in ran if one["name"] in old and one not in bad]
    spent_min = sum(one["wall_s"] for one in ran) / 60
    lines = [
        "# What `make test-all` ran",
        "",
        f"{len(ran) - len(bad)} of {len(known)} parts passed ({len(again)} of them before files changed that they read),"
        f" {len(bad)} failed, {len(known) - len(ran)} did not run, in {spent_min:.0f} minutes. `make test-all` made this"
        " page; [state.json](state.json) has each part.",
        "",
        "| part | what | passed | failed | skipped | left out by `-k` or `-m` | minutes | commit | on |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            _row(group, [one for one in ran if one["name"].startswith(f"{group}/")])
            for group in GROUPS
        ),
    ]
    skipped = [
        f"`{one['name']}`: {number} in {reason}"
        for one in ran
        for reason, number in one["skips"].items()
    ]
    sections = {
        "Failed": [f"`{one['name']}`: {one['verdict']}" for one in bad],
        "Passed before files changed that they read": _by_group(again),
        "Skipped": skipped,
        "Did not run yet": _by_group(part.name for part in known if part.name not in of),
        "Not a part of `make test-all`": [f"{what}: {why}." for what, why in NOT_RUN.items()],
    }
    for head, rows in sections.items():
        if rows:
            lines += ["", f"## {head}", "", *(f"- {line}" for line in rows)]
    return "\n".join(lines) + "\n"


def _by_group(names: Iterable[str]) -> list[str]:
    """A line for each group of parts."""
    found: dict[str, list[str]] = {}
    for group, name in (name.split("/") for name in names):
        found.setdefault(group, []).append(f"`{name}`")
    return [f"`{group}`: {', '.join(names)}" for group, names in found.items()]


def _row(group: str, ran: Sequence[Mapping[str, Any]]) -> str:
    spent_min = sum(one["wall_s"] for one in ran) / 60
    cells = [
        group,
        GROUPS[group],
        *(str(sum(one[kind] for one in ran)) for kind in KINDS),
        f"{spent_min:.0f}",
        ", ".join(sorted({f"`{one['commit']}`" for one in ran})) or "did not run",
        "; ".join(sorted({one["machine"] for one in ran})),
    ]
    return f"| {' | '.join(cells)} |"


def publish(state: Path, checkout: Path) -> None:
    """Copy the results and write their page, so that another checkout can continue from them."""
    directory = checkout / RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(state, directory / STATE)
    found = read(state)[0]
    (directory / PAGE).write_text(page(found, old(found, checkout)))
