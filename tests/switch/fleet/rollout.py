"""Ansible, rolling out to the hosts of a fleet by the playbook that the package has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.switch.packaged import Machine
from tests.switch.systemd import CHECKOUT

PLAYBOOK = CHECKOUT / "controller/ansible/rollout.yml"
PLUGINS = Path(__file__).with_name("connection_plugins")
TIMEOUT_S = 240
# A host is asked at once whether it is well, and not for long.
HURRIED = {
    "ovs_lbt_check_retries": 3,
    "ovs_lbt_check_delay_s": 1,
    "ovs_lbt_soak_s": 1,
}


@dataclass(frozen=True, slots=True)
class Rollout:
    """What came of a run of the playbook: its exit status, and what it said."""

    status: int
    said: str

    @property
    def batches(self) -> list[set[str]]:
        """The hosts of each batch that was begun."""
        plays = re.split(r"^PLAY \[", self.said, flags=re.MULTILINE)[1:]
        found = [set(re.findall(r"^(?:ok|changed): \[([^\]]+)\]", p, re.MULTILINE)) for p in plays]
        return [hosts for hosts in found if hosts]

    def count(self, host: str, what: str) -> int:
        """How many tasks `what` (`changed`, `failed`) counts for a host in the recap."""
        found = re.search(rf"^{host} +:.*\b{what}=(\d+)", self.said, re.MULTILINE)
        assert found, f"no recap of {host}: {self.said}"
        return int(found[1])


def roll_out(
    machines: Mapping[str, tuple[Machine, str]],
    directory: Path,
    check: bool = False,
    **variables: Any,
) -> Rollout:
    """Run the playbook for machines, by their names, each with the bridge to attach.

    `check`: only ask what it would do.
    """
    hosts = {
        name: {
            "ansible_machine_pid": machine.pid,
            "ovs_lbt_bridges": [{"name": bridge, "policy": "originating-port"}],
        }
        for name, (machine, bridge) in machines.items()
    }
    reached = {
        "ansible_connection": "machine",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_become": False,
    }
    inventory = directory / "inventory.json"
    every = {**reached, **HURRIED, **variables}
    inventory.write_text(json.dumps({"ovs_lbt": {"hosts": hosts, "vars": every}}))
    words = ["-i", str(inventory), *(["--check"] if check else []), str(PLAYBOOK)]
    return _run(words, directory)


def _run(words: Sequence[str], directory: Path) -> Rollout:
    """`ansible-playbook WORDS…`, with nothing of the settings of who runs the tests."""
    playbook = Path(sys.executable).with_name("ansible-playbook")
    assert playbook.exists(), f"{playbook} is not installed: run make setup"
    others = {k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")}
    none = directory / "ansible.cfg"
    none.touch()
    settings = {
        "ANSIBLE_CONFIG": str(none),
        "ANSIBLE_HOME": str(directory / "ansible"),
        "ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_REMOTE_TEMP": "/tmp/ansible",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [str(playbook), *words],
        env={**others, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    print(done.stdout, done.stderr)
    return Rollout(done.returncode, done.stdout + done.stderr)
