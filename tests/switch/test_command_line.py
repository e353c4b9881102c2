"""The command as an operator's shell has it: completion with the names of a real host, confirmations."""

from __future__ import annotations

import subprocess

import pytest

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec
from tests.switch.service import Service
from tests.switch.waiting import wait_until

SPEC = BedSpec(BALANCE_SLB, 2, (None, None))
pytestmark = pytest.mark.parametrize("bed", [SPEC], ids=str, indirect=True)

# Where the script of the shell is, a line, and what bash then offers.
BASH = """
. <("$1" completion bash)
COMP_LINE=$2 COMP_POINT=${#2}
compopt() { :; }
_ovs_lbt
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(service: Service, typed: str) -> list[str]:
    """What bash offers for a line, sorted."""
    line = f"ovs-lbt {typed}"
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", service.executable, line],
        env=service.ovs.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.split())


def test_bash_completes_names_with_and_without_the_service(attached: Bed, service: Service) -> None:
    bed = attached
    uplinks = sorted(uplink.name for uplink in bed.uplinks)
    vm = bed.vms[0].port

    def complete() -> None:
        # Who types does not wait for a database that does not answer within 2 s: he presses the key again.
        wait_until(lambda: offered(service, "show ") == [bed.bridge], "the bridge")
        wait_until(lambda: offered(service, f"move {vm} ") == uplinks, "its uplinks")
        assert set(uplinks).isdisjoint(offered(service, "move "))
        wait_until(lambda: vm in offered(service, "explain "), "its VM ports")
        wait_until(lambda: offered(service, f"set interface {vm} pin=") == uplinks, "uplinks")
        role = f"set interface {uplinks[0]} ro"
        wait_until(lambda: offered(service, role) == ["role="], "the keys of an uplink")

    complete()
    with service.dead():
        complete()


def test_commands_say_what_they_have_done(attached: Bed, service: Service) -> None:
    bed, vm = attached, attached.vms[0]
    first, second = (uplink.name for uplink in bed.uplinks)
    service.do("move", vm.port, first)
    said = [
        service.do(*words.split())
        for words in (
            f"move {vm.port} {second}",
            f"pin {vm.port} {first}",
            f"unpin {vm.port}",
            f"unpin {vm.port}",
            f"drain {second}",
            f"undrain {second}",
            f"set bridge {bed.bridge} threshold=60",
            f"set bridge {bed.bridge} threshold=75",
        )
    ]
    assert said[4].startswith(f"{second}: idle, ")
    assert [*said[:4], *said[5:]] == [
        f"{vm.port}: moved from {first} to {second}\n",
        f"{vm.port}: pinned to {first}, from {second}\n",
        f"{vm.port}: no longer pinned to {first}\n",
        f"{vm.port}: had no pin\n",
        f"{second}: active again\n",
        f"{bed.bridge}: threshold=60 (was 75, the default)\n",
        f"{bed.bridge}: threshold=75 (was 60)\n",
    ]
