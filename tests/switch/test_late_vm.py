"""A VM that is started, on a bond, while the service is dead: by NORMAL, and then by us.

It reaches the outside and is reached from there, in one copy, and nobody else hears
anything twice; the service that comes back takes it over without losing a frame.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from tests.switch import frames
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, LACP, Bed, BedSpec, Station, on_beds
from tests.switch.judging import few_lost, few_twice, judges_time
from tests.switch.service import Service
from tests.switch.trace import copies
from tests.switch.waiting import wait_until
from tests.switch.wire import Ear, Stream

BROADCAST = "ff:ff:ff:ff:ff:ff"
BEDS = [
    BedSpec(BALANCE_SLB, 2, (10, 10, None)),
    BedSpec(ACTIVE_BACKUP, 2, (None, None)),
    BedSpec(LACP, 2, (10, 10)),
]
PPS = 1000
FRAMES = 300
# Broadcasts to it, while its flag is set: NORMAL gets none then. Mostly nothing else. But the VM's home may
# be another uplink than the bond's, and the switches carry the change into their flow caches entry by
# entry, later where the machine is busy.
LOST_IN_ADOPTION_MAX = 40
TWICE_IN_ADOPTION_MAX = 2
on_bonds = on_beds(*BEDS)


class Traffic:
    """Streams between one VM and the outside: unicast and broadcast, both ways."""

    def __init__(self, bed: Bed, vm: Station) -> None:
        self.bed, self.vm, self.host = bed, vm, bed.hosts[0]
        vlan = vm.vlan or 0
        inwards, outwards = self.host.sends(vlan), vm.sends(vlan)
        self.flows = {
            "unicast to it": (self.host, frames.udp(self.host.mac, vm.mac, vlan=inwards)),
            "broadcast to it": (self.host, frames.broadcast(self.host.mac, inwards, 0)),
            "unicast from it": (vm, frames.udp(vm.mac, self.host.mac, vlan=outwards)),
            "broadcast from it": (vm, frames.broadcast(vm.mac, outwards, 0)),
        }

    @contextlib.contextmanager
    def flowing(self, *kinds: str) -> Iterator[None]:
        """All of the streams, or some, flow in this block and arrive at its end."""
        self.kinds = kinds or tuple(self.flows)
        shots = [(self.flows[k][0].point, self.flows[k][1]) for k in self.kinds]
        with self.bed.ears() as self.ears, Stream(shots, PPS) as self.stream:
            self.wait_for(FRAMES)
            yield
            self.stream.stop()
            self.ears.until_quiet()

    def wait_for(self, more: int) -> None:
        """Until every stream has arrived that many frames further than now."""
        self.stream.more([self.ear(kind) for kind in self.kinds], more)

    def ear(self, kind: str) -> Ear:
        to_vm = self.flows[kind][0] is self.host
        return self.ears[self.vm.point if to_vm else self.host.point]

    def arrived(self, kind: str, ear: Ear) -> Mapping[int, int]:
        return self.stream.received(ear, self.kinds.index(kind))

    def check(self, lost_max: int = 0, twice_max: int = 0) -> None:
        """Each frame arrived once where it should, and nowhere twice, and none came back."""
        sent = self.stream.stop()
        losses: dict[str, int] = {}
        twice: dict[str, int] = {}
        for kind in self.kinds:
            losses[kind] = sent.count - len(self.arrived(kind, self.ear(kind)))
            for name, ear in self.ears.by_name.items():
                copies = self.arrived(kind, ear).values()
                twice[f"{kind} at {name}"] = sum(count > 1 for count in copies)
            back = self.arrived(kind, self.ears[self.flows[kind][0].point])
            assert not back, f"{kind}: {len(back)} came back to where they were sent"
        few_twice(twice, twice_max)
        few_lost(losses, lost_max, PPS)


@judges_time
@on_bonds
def test_a_vm_started_without_the_service(attached: Bed, service: Service) -> None:
    bed = attached
    vlan = bed.vlans[0] or None
    with service.dead(), bed.another_vm(vlan) as vm:
        traffic = Traffic(bed, vm)
        with traffic.flowing("unicast to it", "broadcast to it"):
            pass  # it has not said a word yet
        traffic.check()
        bed.introduce()
        with traffic.flowing():
            adopted(bed, service, traffic)
            traffic.wait_for(FRAMES)
        traffic.check(LOST_IN_ADOPTION_MAX, TWICE_IN_ADOPTION_MAX)


@judges_time
@on_bonds
def test_a_vm_that_gets_a_new_port_without_the_service(attached: Bed, service: Service) -> None:
    """It is known by its old port. It says one word, and only receives from then on."""
    bed, vm = attached, attached.vms[0]
    bed.introduce()
    # Or the upstream switch counts that frame late, and learns from it once more.
    bed.revalidated()
    with service.dead():
        bed.unplug(vm)
        bed.plug_in(vm)
        bed.introduce()
        traffic = Traffic(bed, vm)
        with traffic.flowing("unicast to it", "broadcast to it"):
            adopted(bed, service, traffic)
            traffic.wait_for(FRAMES)
        traffic.check(LOST_IN_ADOPTION_MAX, TWICE_IN_ADOPTION_MAX)


@on_beds(*BEDS[:1])
def test_on_a_bond_that_is_an_access_port_too(attached: Bed, service: Service) -> None:
    """Frames have a tag in our pipeline that NORMAL does not take from such a bond."""
    bed = attached
    bed.ovs.vsctl("set", "port", bed.bond, "tag=10")
    frame: dict[str, str | int] = {"dl_src": bed.hosts[0].mac, "dl_dst": BROADCAST}

    def heard() -> Counter[tuple[str, int]]:
        uplinks = [uplink.name for uplink in bed.uplinks]
        return Counter(c for u in uplinks for c in copies(bed.ovs, bed.bridge, u, **frame))

    known = Counter({(vm.port, 0): 1 for vm in bed.vms if vm.vlan == 10})
    trunks = Counter({(s.port, 0x100A): 1 for s in bed.stations if not s.vlan})
    wait_until(lambda: heard() == known + trunks, "an untagged broadcast is VLAN 10's")
    with service.dead(), bed.another_vm(10) as vm:
        assert heard() == known + trunks + Counter({(vm.port, 0): 1})


def adopted(bed: Bed, service: Service, traffic: Traffic) -> None:
    """Start the service; return when it forwards for the VM and nothing is left to NORMAL.

    Frames are taken up meanwhile: there is not room for those of a minute.
    """
    vm = traffic.vm

    def is_adopted() -> bool:
        traffic.ears.listen()
        return bool(service.bindings(bed).get(vm.port)) and vm.port in bed.not_flooded()

    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(service.start)
        while not started.done():
            traffic.ears.listen(within_s=0.1)
        started.result()
    wait_until(is_adopted, f"the service adopts {vm}, and NORMAL does not flood to it")
