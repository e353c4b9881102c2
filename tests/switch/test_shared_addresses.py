"""VMs that send from addresses other than their attached-mac: delivered if accepted."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, Bed, BedSpec, Station, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None, None)) for team in (BALANCE_SLB, ACTIVE_BACKUP)]
VIRTUAL = "00:00:5e:00:01:07"

pytestmark = on_beds(*BEDS)


@pytest.fixture
def told(bed: Bed) -> Iterator[Bed]:
    """The addresses of all VMs are known, and the first one's include a virtual one."""
    for vm in bed.vms:
        macs = f"{vm.mac},{VIRTUAL}" if vm is bed.vms[0] else vm.mac
        bed.ovs.vsctl("set", "interface", vm.port, f'external_ids:attached-mac="{macs}"')
    yield bed
    for vm in bed.vms:
        for key in ("attached-mac", "ovs-lbt-forged-transmits"):
            bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", key)


def reached(bed: Bed, vm: Station, mac: str) -> bool:
    """Whether a VM that has just sent from an address is reached under it, by a VM and by a host."""
    speaks = bed.shot(vm.point, frames.gratuitous_arp, mac, 0, 0, f"{vm} has {mac}")
    bed.fire([speaks])
    asking = (bed.vms[1], bed.hosts[0])
    shots = [bed.shot(s.point, frames.to(mac), s.mac, 0, 0, f"from {s}") for s in asking]
    copies = bed.fire(shots)
    return all(copies[shot.frame_id].points.count(str(vm)) == 1 for shot in shots)


def test_an_address_moves_between_vms_that_may_share_it(told: Bed, service: Service) -> None:
    bed = told
    first, _, third = bed.vms
    for vm in (first, third):
        bed.set("interface", vm.port, forged_transmits="accept")
    bed.introduce_to_normal()
    for vm in (third, first, third):
        # A bond ignores an address for some seconds after it has announced itself elsewhere.
        wait_until(functools.partial(reached, bed, vm, VIRTUAL), f"{vm} is reached by NORMAL")
    with service.attached(bed, "--policy", "originating-port"):
        for vm in (first, third, first):
            assert reached(bed, vm, VIRTUAL)
        assert not reached(bed, bed.vms[1], VIRTUAL), "another VM may not have it"
