"""The service ends between the two steps of a move: the VM still hears broadcasts."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from controller.dataplane.tables import HELD_TIMEOUT_S
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Upstream
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service, launcher_with
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None,) * 2) for team in (PLAIN, BALANCE_SLB)]
# The switch looks once a second for flows that are to end.
HEARD_AGAIN_WITHIN_S = HELD_TIMEOUT_S + 1.5


@pytest.fixture(params=BEDS, ids=str)
def halfway(
    request: pytest.FixtureRequest, own: Service, tor: Upstream
) -> Iterator[tuple[Bed, Service]]:
    """A bed whose service moves a VM halfway. The Open vSwitch is its own: of two services, one would lead."""
    own.start()
    with Bed(own.ovs, tor, request.param) as bed:
        own.attach(bed, "--policy", "originating-port")
        own.kill()
        # The second step of a move never follows.
        own.launcher = launcher_with("controller.bridge.installation", REVALIDATED_AFTER_S=3600.0)
        own.start()
        own.wait_ready(bed)
        try:
            yield bed, own
        finally:
            own.kill()
            own.launcher = []
            own.start()
            own.do("detach", bed.bridge)


@judges_time
def test_a_vm_that_is_half_moved_hears_broadcasts(halfway: tuple[Bed, Service]) -> None:
    """From the network, once, though nobody is there to complete the move."""
    (bed, service), vm = halfway, halfway[0].vms[0]
    here = service.bindings(bed)[vm.port]
    (there,) = (uplink.name for uplink in bed.uplinks if uplink.name != here)
    words = [str(service.executable), "-t", service.name, "move", vm.port, there]
    with subprocess.Popen(words, env=service.ovs.env, stderr=subprocess.DEVNULL):
        wait_until(lambda: bed.homes()[str(vm)] == [there], "the first step is made")
        service.kill()
    since_s = time.monotonic()
    wait_until(lambda: str(vm) in _broadcast(bed), "it hears broadcasts again")
    after_s = time.monotonic() - since_s
    soon("half moved, hears broadcasts after, s", after_s, HEARD_AGAIN_WITHIN_S)
    bed.revalidated()
    assert _broadcast(bed) == sorted(map(str, bed.stations))


def _broadcast(bed: Bed) -> list[str]:
    return bed.comes_out(bed.frame_of(bed.hosts[0]))
