"""Known vulnerabilities of what is installed with ovs-lbt: `make lint` runs `python -m tests.advisories`.

It looks at each version of `controller/debian/requirements*.txt`, and at the lowest one that a line of
`setup.cfg` takes. It compares them with `advisories.txt`, and asks pip-audit if its service answers.
"""

from __future__ import annotations

import configparser
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

CHECKOUT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".txt")
TIMEOUT_S = 60


def named() -> dict[str, set[str]]:
    """By package, the versions of its lines."""
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    texts = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    pins = [path.read_text() for path in (CHECKOUT / "controller/debian").glob("requirements*.txt")]
    found: dict[str, set[str]] = {}
    for line in "\n".join(texts + pins).splitlines():
        if line and not line.startswith("#"):
            name, versions = lowest(line.split(" --hash")[0])
            found.setdefault(name, set()).update(versions)
    return found


def lowest(requirement: str) -> tuple[str, set[str]]:
    """The package of a requirement, and the lowest versions that it takes; 0 if it has no limit."""
    one = Requirement(requirement)
    limits = {s.version for s in one.specifier if s.operator in (">=", "~=", "==", "===")}
    return canonicalize_name(one.name), limits or {"0"}


def known_bad(versions: dict[str, set[str]], lines: Iterable[str]) -> Iterator[str]:
    """What a list like `advisories.txt` says about these versions."""
    for line in lines:
        fact, _, accepted = line.partition(": ")
        if not line.startswith("#") and not accepted:
            name, bad, advisories = fact.split()
            for version in versions.get(name, ()):
                if SpecifierSet(bad).contains(version, prereleases=True):
                    yield f"{name} {version} has {advisories}; use a version that is not {bad}"


def audited(answer: str, lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """What pip-audit's answer in JSON says against packages, and the packages about which it knows nothing."""
    accepted = {line.split()[0] for line in lines if not line.startswith("#") and ": " in line}
    found = json.loads(answer)["dependencies"]
    bad = [
        f"{one['name']} {one['version']} has {vulnerability['id']}; fixed in {vulnerability['fix_versions']}"
        for one in found
        if one["name"] not in accepted
        for vulnerability in one.get("vulns", ())
    ]
    return bad, [one["name"] for one in found if "skip_reason" in one]


def main() -> int:
    lines, versions = LIST.read_text().splitlines(), named()
    bad = list(known_bad(versions, lines))
    # Of the package's pin and the lower limit in setup.cfg, which may be less: pip-audit takes one.
    asked = "".join(f"{name}=={max(versions[name], key=Version)}\n" for name in sorted(versions))
    words = ["-r", "/dev/stdin", "--no-deps", "--disable-pip", "--format=json", "--timeout=5"]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *words, "--progress-spinner=off"],
        input=asked,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    more, unknown = audited(done.stdout, lines) if done.stdout else ([], sorted(versions))
    for text in dict.fromkeys(bad + more):
        print(text)
    if unknown:
        print(f"pip-audit knows nothing about {len(unknown)} packages; {LIST.name} was compared")
    return 1 if bad or more else 0


if __name__ == "__main__":
    sys.exit(main())
