"""The command as an operator's shell has it: completion with the names of a real host."""

from __future__ import annotations

import subprocess

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

pytestmark = on_beds(BedSpec(BALANCE_SLB, 2, (None, None)))

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
