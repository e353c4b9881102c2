"""The package's scripts and lists, as files; what they do is tests/switch/test_package.py."""

from __future__ import annotations

import configparser
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from controller.api.commands import DEFAULT_METRICS
from controller.cli.run import RUN_VARIABLES

CHECKOUT = Path(__file__).parents[3]
DEBIAN = CHECKOUT / "controller/debian"
SCRIPTS = [DEBIAN / name for name in ("build", "postinst", "prerm", "postrm")]


def pinned() -> dict[str, str]:
    """The versions in the package, by the distribution's name."""
    lines = (DEBIAN / "requirements.txt").read_text().splitlines()
    pins = [re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    return {pin[1]: pin[2] for pin in pins if pin}


@pytest.mark.system
def test_shellcheck_finds_nothing_wrong() -> None:
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_service_needs_is_in_the_package_as_it_is_tested() -> None:
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    needed = set(re.findall(r"^([a-z][\w.-]*)", setup["options"]["install_requires"], re.MULTILINE))
    # Debian's, which goes with the Open vSwitch beside it.
    assert needed - {"ovs"} <= pinned().keys()
    # What is imported from day to day; the system's Python may have brought others.
    assert pinned()["os-ken"] == version("os-ken")


def test_every_command_that_builds_a_release_is_run_in_a_minimal_root() -> None:
    text = (CHECKOUT / ".github/workflows/release.yml").read_text()
    job, publish = map(yaml.safe_load(text)["jobs"].get, ("package", "publish"))
    commands = [step["run"] for step in job["steps"] if "run" in step]
    # What the step `deb` of `make test-fresh` finds there.
    found = text.partition("\n  publish:")[0].splitlines()
    assert [line.strip() for line in found if "- run:" in line] == [f"- run: {c}" for c in commands]
    assert "make deb" in commands and publish["needs"] == "package"


def test_every_option_of_the_service_is_in_its_file() -> None:
    named = {*RUN_VARIABLES.values(), "OVS_LBT_NAME"}
    lines = (DEBIAN / "default").read_text().splitlines()
    offered = dict(line.removeprefix("#").split("=", 1) for line in lines if "OVS_LBT_" in line)
    assert offered.keys() == named
    assert offered["OVS_LBT_METRICS"] == DEFAULT_METRICS


def test_nothing_is_set_unless_the_operator_does() -> None:
    lines = (DEBIAN / "default").read_text().splitlines()
    assert all(line.startswith("#") or not line for line in lines)


def test_one_package_is_for_every_python_that_setup_cfg_takes() -> None:
    control = (DEBIAN / "control").read_text()
    assert re.findall(r"python3 \(.*?\)", control) == ["python3 (>= @PYTHON@~)"]
    build = (DEBIAN / "build").read_text()
    assert "packages=$env/lib/python3/dist-packages\n" in build, "no version of Python in its paths"
