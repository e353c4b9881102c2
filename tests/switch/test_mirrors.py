"""Mirrors, beside NORMAL: their output port gets what is mirrored, and nothing else."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator

from tests.said import says
from tests.switch import frames
from tests.switch.adopting import has_ours
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    LACP,
    NETWORK,
    PLAIN,
    Bed,
    BedSpec,
    Uplink,
    on_beds,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None, None)) for team in (PLAIN, BALANCE_SLB)]


@on_beds(*BEDS)
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


@on_beds(*[BedSpec(team, 2, (10, 10, 99, None)) for team in (LACP, BALANCE_SLB, ACTIVE_BACKUP)])
def test_a_mirror_to_a_vlan_is_as_with_normal(bed: Bed, service: Service) -> None:
    """Without a LAG only if no copy can come back by another member, as attach says."""
    service.start()
    with mirrored(bed, select_all="true", output_vlan="99"):
        if not bed.spec.is_lag:
            refused = service.command("attach", bed.bridge)
            assert refused.returncode and says(
                refused.stderr, "output_vlan 99", "twice", "remove the VLAN from these ports"
            )
            assert says(refused.stderr, bed.bridge, *(vm.port for vm in bed.vms[2:]))
            assert not has_ours(bed)
            for port in (bed.bridge, bed.vms[3].port):
                bed.ovs.vsctl("set", "port", port, "trunks=0,10")
            bed.ovs.vsctl("set", "port", bed.vms[2].port, "tag=10")
        bed.introduce_to_normal()
        expected = in_vlans(bed)
        assert all(copies[NETWORK, 99] for copies in expected.values())
        if bed.spec.is_lag:
            assert all(copies[str(bed.vms[2]), 0] == 1 for copies in expected.values())
        attach(bed, service, "--policy", "originating-port")
        assert in_vlans(bed) == expected
        for uplink in bed.uplinks:
            for vm in bed.vms:
                service.move(vm, uplink)
            wait_until(functools.partial(only_by, bed, service, uplink), "all have moved")
            bed.introduce()
            bed.revalidated()
            assert in_vlans(bed) == expected
        assert service.command("check", bed.bridge).returncode == 0, "the advice leads to no other"
        service.do("detach", bed.bridge)
    bed.ovs.vsctl("clear", "port", bed.bridge, "trunks")


def only_by(bed: Bed, service: Service, uplink: Uplink) -> bool:
    """Whether all VMs use this uplink."""
    bound = service.bindings(bed)
    return {bound[vm.port] for vm in bed.vms} == {uplink.name}


def in_vlans(bed: Bed) -> dict[str, Counter[tuple[str, int]]]:
    """How many copies of each frame come out where, by the tag; the uplinks are one."""
    (one, other, _, trunk), host = bed.vms, bed.hosts[0]
    shots = [
        bed.frame_of(sender, build, story=f"{sender}: {story}", vlan=vlan)
        for story, sender, build, vlan in (
            ("broadcast", one, frames.broadcast, 10),
            ("multicast", other, frames.multicast, 10),
            ("unknown", one, frames.unknown_unicast, 10),
            ("to a VM", one, frames.to(other.mac), 10),
            ("to a host", one, frames.to(host.mac), 10),
            ("broadcast", host, frames.broadcast, 10),
            ("to a VM", host, frames.to(other.mac), 10),
            ("tagged broadcast", trunk, frames.broadcast, 10),
            ("tagged, to a host", trunk, frames.to(host.mac), 10),
        )
    ]
    return dict(zip([shot.story for shot in shots], bed.came_out(shots), strict=True))


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


def attach(bed: Bed, service: Service, *options: str) -> None:
    """Attach the bridge. The analyzer is not bound, so this does not wait for it."""
    service.do("attach", bed.bridge, *bed.uplink_options, *options)
    wait_until(lambda: len(service.bindings(bed)) > 2, "VM ports are bound")
    bed.introduce()
    bed.revalidated()


def heard(bed: Bed) -> list[dict[str, int]]:
    """How many copies of a broadcast come out where: of a VM, of a host, and of the mirror's port."""
    shots = [bed.frame_of(sender) for sender in (bed.vms[0], bed.hosts[0], bed.vms[2])]
    return [{name: count for (name, _), count in at.items()} for at in bed.came_out(shots)]
