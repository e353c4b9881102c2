"""Mirrors, beside NORMAL: their output port gets what is mirrored, and nothing else."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.said import says
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None, None)) for team in (PLAIN, BALANCE_SLB)]


@pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)
def test_the_output_port_gets_what_normal_gives_it(bed: Bed, service: Service) -> None:
    mirrored_vm, analyzer = (
        bed.ovs.vsctl("get", "port", vm.port, "_uuid") for vm in (bed.vms[0], bed.vms[2])
    )
    both = {"select_src_port": mirrored_vm, "select_dst_port": mirrored_vm}
    with mirrored(bed, **both, output_port=analyzer):
        with forwarded_by_normal(bed):
            expected = heard(bed)
        assert [at.get("vm2") for at in expected] == [1, 1, None] and expected[2] == {}
        service.start()
        attach(bed, service)
        assert bed.vms[2].port not in service.bindings(bed)
        assert heard(bed) == expected
        service.do("detach", bed.bridge)


@pytest.mark.parametrize("bed", BEDS[:1], ids=str, indirect=True)
def test_plain_uplinks_do_not_multiply_what_is_mirrored(bed: Bed, service: Service) -> None:
    service.start()
    with mirrored(bed, select_all="true", output_vlan="99"):
        refused = service.command("attach", bed.bridge, *bed.uplink_options)
        assert refused.returncode and says(refused.stderr, "VLAN 99", "loop", "trunks")
        bed.ovs.vsctl("set", "port", bed.uplinks[1].name, "trunks=0,1")
        attach(bed, service)
        assert sorted(Counter(copies_out(bed)).values()) in ([2], [1, 1]), "one of each"
        service.do("detach", bed.bridge)
        bed.ovs.vsctl("clear", "port", bed.uplinks[1].name, "trunks")


@contextlib.contextmanager
def mirrored(bed: Bed, **output: str) -> Iterator[None]:
    """A mirror with these columns exists in this block."""
    created = ["--id=@m", "create", "mirror", "name=m"]
    created += [f"{column}={value}" for column, value in output.items()]
    bed.ovs.vsctl("--", *created, "--", "set", "bridge", bed.bridge, "mirrors=@m")
    try:
        yield
    finally:
        bed.ovs.vsctl("clear", "bridge", bed.bridge, "mirrors")


@contextlib.contextmanager
def forwarded_by_normal(bed: Bed) -> Iterator[None]:
    """NORMAL forwards in this block; of plain uplinks by one, because they would be a loop."""
    if bed.spec.on_bond:
        bed.introduce()
        yield
        return
    with bed.cable_pulled(bed.uplinks[1]):
        bed.ovs.vsctl("set-fail-mode", bed.bridge, "standalone")
        yield
        bed.ovs.vsctl("set-fail-mode", bed.bridge, "secure")


def attach(bed: Bed, service: Service) -> None:
    """Attach the bridge. The analyzer is not bound, so this does not wait for it."""
    service.do("attach", bed.bridge, *bed.uplink_options)
    wait_until(lambda: len(service.bindings(bed)) > 2, "VM ports are bound")
    bed.introduce()
    bed.revalidated()


def heard(bed: Bed) -> list[dict[str, int]]:
    """How many copies of a broadcast come out where: of a VM, of a host, and of the mirror's port."""
    shots = [
        bed.shot(sender.point, frames.broadcast, sender.mac, 0, 0, "a broadcast")
        for sender in (bed.vms[0], bed.hosts[0], bed.vms[2])
    ]
    copies = bed.fire(shots)
    ends = {str(uplink.upstream_end) for uplink in bed.uplinks}
    return [
        {
            name if name not in ends else "upstream": count
            for (name, _), count in copies[shot.frame_id].at.items()
        }
        for shot in shots
    ]


def copies_out(bed: Bed) -> list[str]:
    """Where a VM's broadcast and its mirrored copy leave the bridge for the network."""
    vm = bed.vms[0]
    shot = bed.shot(vm.point, frames.broadcast, vm.mac, 0, 0, "a broadcast")
    ends = {str(uplink.upstream_end) for uplink in bed.uplinks}
    return [point for point in bed.fire([shot])[shot.frame_id].points if point in ends]
