"""The units that a packager installs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import controller
from tests import documents

UNITS = sorted((Path(controller.__file__).parent / "systemd").glob("*.service"))


@pytest.mark.system
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    """But for the command, which need not be installed where the tests run."""
    for unit in UNITS:
        text = unit.read_text().replace("/usr/local/bin/ovs-lbt", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert [unit.name for unit in UNITS] == ["ovs-lbt-rescue.service", "ovs-lbt.service"]


def test_the_service_is_ready_watched_ordered_and_restarted() -> None:
    lines = UNITS[1].read_text().splitlines()
    for line in (
        "Type=notify",
        "WatchdogSec=30",
        "Restart=always",
        "Before=network-online.target",
        "OnFailure=ovs-lbt-rescue.service",
    ):
        assert line in lines


def test_the_service_may_set_the_queues_of_uplinks() -> None:
    settings = dict(line.split("=", 1) for line in UNITS[1].read_text().splitlines() if "=" in line)
    assert "CAP_NET_ADMIN" in settings["CapabilityBoundingSet"].split()
    assert "AF_NETLINK" in settings["RestrictAddressFamilies"].split()


def exposure(directory: Path, home: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What systemd says about the units of a checkout, or about the package's."""
    for unit in UNITS:
        text = unit.read_text().replace("ProtectHome=read-only", f"ProtectHome={home}")
        (directory / unit.name).write_text(text)
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", *options]
    units = [str(directory / unit.name) for unit in UNITS]
    return subprocess.run([*command, *units], capture_output=True, text=True)


@pytest.mark.system
@pytest.mark.parametrize(("home", "threshold"), [("read-only", 21), ("yes", 20)])
def test_the_units_have_few_rights(home: str, threshold: int, tmp_path: Path) -> None:
    """As `systemd-analyze security` counts, from 0 to 100."""
    done = exposure(tmp_path, home, f"--threshold={threshold}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.system
def test_docs_say_what_each_remaining_point_of_the_service_is_needed_for(tmp_path: Path) -> None:
    # A line for each unit, the service's last.
    line = exposure(tmp_path, "yes", "--json=short").stdout.splitlines()[-1]
    points = sum(float(setting["exposure"] or 0) for setting in json.loads(line))
    section = documents.sections("docs/security.md")["Rights of the service"]
    told = re.findall(r"`[ ,a-z]* \((\d\.\d)\)", section)
    assert round(sum(map(float, told)), 1) == round(points, 1)
