"""What is run on a release, step by step, and how its output is counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

PYTEST = ".venv/bin/python -m pytest -q"


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a release must do.

    `what` is for README; `command` is bash, in the checkout. `tests`: it fails if it ran no test.
    """

    name: str
    what: str
    command: str
    limit_s: float
    tests: bool = True


def _tests(name: str, limit_s: float, *files: str) -> Step:
    paths = " ".join(f"tests/switch/test_{file}.py" for file in files)
    return Step(name, name, f"{PYTEST} {paths}", limit_s)


# The same on every Open vSwitch.
TESTS = (
    _tests("attach", 900, "attach"),
    _tests("delivery", 900, "delivery"),
    _tests("failover", 900, "failover"),
    _tests("load-based", 900, "load_based"),
    _tests("adaptive", 900, "split", "hot_vm"),
    _tests("adoption", 900, "adoption"),
    _tests("restart", 900, "restart"),
)


def _set_up(step: Step) -> Step:
    """The step, in a root that may not have been set up."""
    return replace(step, command=f"make setup && {{ {step.command}; }}")


def _on_the_kernel(name: str, *words: str) -> Step:
    """A step on the kernel's datapath, perhaps in a guest: files are not kept, and its clock may be late.

    A test may take that long by the guest's clock. What ends a step by this machine's clock is only
    for a guest that hangs.
    """
    return Step(name, name, f"{PYTEST} -p no:cacheprovider --timeout 900 {' '.join(words)}", 3600)


_SWITCH = "tests/switch/test"
# On the kernel's datapath. Those that take longest come first, as several run beside each other.
KERNEL = (
    _on_the_kernel(
        "delivery", f"{_SWITCH}_delivery.py", "-k 'not (active-backup or plain-3-vlans)'"
    ),
    _on_the_kernel("attach", f"{_SWITCH}_attach.py"),
    _on_the_kernel("failover", f"{_SWITCH}_failover.py"),
    _on_the_kernel("cached-failover", f"{_SWITCH}_cached_failover.py"),
    _on_the_kernel("lacp", f"{_SWITCH}_lacp.py"),
    _on_the_kernel("adoption", f"{_SWITCH}_adoption.py", "-k 'under_load or as_it_was'"),
    _on_the_kernel("restart", f"{_SWITCH}_restart.py", "-k 'killed or pipeline or normal'"),
    _on_the_kernel("load-based", f"{_SWITCH}_load_based.py", "-k 'two_moves or pinned'"),
    _on_the_kernel("split", f"{_SWITCH}_split.py"),
    _on_the_kernel("adaptive", f"{_SWITCH}_hot_vm.py"),
    _on_the_kernel("VLANs", f"{_SWITCH}_vlans.py", "-k 'normal_does or re_tagged'"),
    _on_the_kernel("hashing", f"{_SWITCH}_hashing.py", "-k 'connections or fragments'"),
    _on_the_kernel("dp_hash", f"{_SWITCH}_dp_hash.py"),
    _on_the_kernel("linux-bond", "-s tests/kernel/test_linux_bond.py"),
    _on_the_kernel("connection-hash", f"{_SWITCH}_connection_hash.py"),
    _on_the_kernel("path-check", f"{_SWITCH}_path_check.py", "-k 'both-ways or mtu_that'"),
    _on_the_kernel("upgrade", f"{_SWITCH}_ovs_upgrade.py"),
    _on_the_kernel(
        "endpoints", f"{_SWITCH}_endpoints_in_one_network.py", f"{_SWITCH}_ovn_one_network.py"
    ),
    _on_the_kernel("proxmox", f"{_SWITCH}_proxmox.py"),
)
# What `make test` runs of these: the shortest that forwards frames. The service attaches a bridge and moves a VM.
SHORT = (
    _on_the_kernel(
        "short-attach", f"'{_SWITCH}_attach.py::test_move_pin_and_unpin[balance-slb-2-untagged]'"
    ),
)
# In a minimal root of the distribution, in this order.
PACKAGE = "tests/releases/package.sh"
OTHERS_DEB = Step(
    "others-deb",
    "the package of the other release",
    f"bash {PACKAGE} out/others/ovs-lbt_*.deb",
    900,
)
# First of all, as it needs nothing of what the others install.
QUICK = Step("test-quick", "`make test-quick`", "bash tests/releases/quick.sh", 1800)
# The release workflow as for a tag of this version. Then the demo, and that its environment is small.
RELEASE = (
    "GITHUB_REF_NAME=v$(sed -n 's/^version = //p' setup.cfg) bash -ec"
    " \"$(sed -n '/^  publish:/q; s/^ *- run: //p' .github/workflows/release.yml)\""
)
DEMO = 'rm -rf .venv && make demo ARGS=--quick && test "$(du -sm .venv | cut -f1)" -le 250'
FRESH = (
    QUICK,
    Step("demo", "`make demo ARGS=--quick`", DEMO, 1800),
    Step("deb", "`make deb`", RELEASE, 300, tests=False),
    Step(
        "package",
        "the package, from install to purge",
        f"bash {PACKAGE} out/deb/ovs-lbt_*.deb",
        900,
    ),
    OTHERS_DEB,
    *map(_set_up, TESTS),
    _set_up(
        _tests("OVN", 1800, "ovn_provider", "ovn_tunnels", "ovn_plain_tunnels", "ovn_overlays")
    ),
    Step("ryu", "`make test-ryu`", "make test-ryu", 2400),
    Step("test", "`make test`", "make test", 7200),
)
_PYTEST_LINE = re.compile(r"^=* ?(?P<counts>\d+ \w+(?:, \d+ \w+)*) in [\d.]+s\b.*$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (\w+)")
_VERDICT = re.compile(r"^(PASS|FAIL)  ", re.MULTILINE)
# The last line of chaos and of the fuzzer.
_AT_RANDOM = re.compile(r"(\d+) (?:events|cases), (\d+) (?:violations|failed)\b")
_SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] (\S+?)(?::\d+)?: (.+)$", re.MULTILINE)
KINDS = {"passed": "passed", "failed": "failed", "error": "failed", "errors": "failed"}


def chosen(steps: tuple[Step, ...], names: list[str] | None) -> tuple[Step, ...]:
    """The steps of these names, in their order; all of them for None.

    Raises:
        ValueError: there is none of a name.
    """
    known = [step.name for step in steps]
    for name in names or ():
        if name not in known:
            raise ValueError(f"--steps: there is no step {name}; expected {' | '.join(known)}")
    return tuple(step for step in steps if names is None or step.name in names)


def counted(text: str) -> Mapping[str, int]:
    """How much passed, failed and did not run, by pytest's last lines, by PASS and FAIL, and by random events."""
    counts = {"passed": 0, "failed": 0, "rerun": 0, "skipped": 0, "deselected": 0}
    for line in _PYTEST_LINE.finditer(text):
        for number, word in _COUNT.findall(line["counts"]):
            kind = KINDS.get(word, word)
            if kind in counts:
                counts[kind] += int(number)
    for verdict in _VERDICT.findall(text):
        counts["passed" if verdict == "PASS" else "failed"] += 1
    for line in _AT_RANDOM.finditer(text):
        counts["passed"] += int(line[1]) - int(line[2])
        counts["failed"] += int(line[2])
    return counts


def skips(text: str) -> Mapping[str, int]:
    """How many tests were skipped, by file and reason."""
    found: dict[str, int] = {}
    for number, file, reason in _SKIPPED.findall(text):
        found[f"{file}: {reason}"] = found.get(f"{file}: {reason}", 0) + int(number)
    return found
