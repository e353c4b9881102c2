"""Installed and removed under the real systemd, step by step as the documents say, with a standby."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import documents
from tests.switch import packaged
from tests.switch.adopting import state
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.packaged import Machine
from tests.switch.service import Service
from tests.switch.systemd import CHECKOUT
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def bed(own: Service, tor: Upstream) -> Iterator[Bed]:
    with Bed(own.ovs, tor, BedSpec(BALANCE_SLB, 2, (None, None))) as made:
        made.introduce_to_normal()
        yield made


@pytest.fixture
def machine(own: Service, bed: Bed) -> Iterator[Machine]:
    with Machine(own.ovs) as made:
        yield made


def follow(machine: Machine, label: str, directory: str = "/root") -> list[str]:
    """Type the blocks of a label into root's shell; what each says."""
    there = shlex.quote(directory)
    return [shell(machine, f"cd {there}\n{block.text}") for block in documents.labelled(label)]


def shell(machine: Machine, script: str) -> str:
    return machine.do("bash", "-euo", "pipefail", "-c", script)


def leads(machine: Machine, name: str, bed: Bed) -> bool:
    """Whether the service of that name manages the bridge."""
    done = machine.run("ovs-lbt", "-t", name, "show", bed.bridge, "--json")
    if done.returncode:
        return False
    (shown,) = json.loads(done.stdout)["bridges"]
    return bool(shown["connected"])


def a_standby_takes_over(machine: Machine, bed: Bed) -> None:
    """With the bridge attached; the standby is removed in the end."""
    _, told = follow(machine, "standby")
    assert told.startswith("on standby"), told
    homes = settled_homes(bed)
    shell(machine, "systemctl stop ovs-lbt")
    wait_until(lambda: leads(machine, "ovs-lbt-b", bed), "the standby leads")
    check_everything(bed, homes)
    shell(machine, "systemctl start ovs-lbt")
    follow(machine, "remove-standby")
    wait_until(lambda: leads(machine, "ovs-lbt", bed), "the first one leads again")
    check_everything(bed, homes)


def test_the_package(machine: Machine, bed: Bed, tmp_path: Path) -> None:
    before, package = state(bed), packaged.build()
    machine.path(f"/root/{package.name}").write_bytes(package.read_bytes())
    follow(machine, "install-package")
    shell(machine, f"ovs-lbt attach {bed.bridge} --policy originating-port")
    wait_until(lambda: leads(machine, "ovs-lbt", bed), "the bridge is attached")
    a_standby_takes_over(machine, bed)
    homes = settled_homes(bed)
    machine.path(f"/root/{package.name}").unlink()
    successor = packaged.successor(package, tmp_path).read_bytes()
    machine.path("/root/ovs-lbt_next.deb").write_bytes(successor)
    follow(machine, "upgrade-package")
    wait_until(lambda: leads(machine, "ovs-lbt", bed), "the upgraded service leads")
    assert "+next" in shell(machine, "ovs-lbt --version")
    assert settled_homes(bed) == homes
    follow(machine, "remove-package")
    assert state(bed) == before


def test_the_units_of_a_checkout(machine: Machine, bed: Bed) -> None:
    before = state(bed)
    # As `make setup` does it.
    command = shlex.quote(f"{CHECKOUT}/.venv/bin/ovs-lbt")
    shell(machine, f"ln -s {command} /usr/local/bin/ovs-lbt")
    follow(machine, "install-units", str(CHECKOUT))
    shell(machine, f"ovs-lbt attach {bed.bridge} --policy originating-port")
    wait_until(lambda: leads(machine, "ovs-lbt", bed), "the bridge is attached")
    a_standby_takes_over(machine, bed)
    shell(machine, f"ovs-lbt detach {bed.bridge}")
    follow(machine, "remove-units")
    assert state(bed) == before
    left = shell(machine, "ls -d /etc/systemd/system/ovs-lbt* /usr/local/bin/ovs-lbt || true")
    assert left == "/etc/systemd/system/ovs-lbt-b.service\n", "the standby's unit is its admin's"
