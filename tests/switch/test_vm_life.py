"""What happens to a VM, and that its neighbours and the network find it all the while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Station, on_beds, run
from tests.switch.judging import judges_time, lost_for_want_of_room, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

LOCKS = "table=22"
PPS = 500
FOUND_WITHIN_S = 1.0
# An OpenFlow message from a port deleted, and a bundle.
FOUND_AT_ONCE_S = 0.3

pytestmark = on_beds(BedSpec(BALANCE_SLB, 2, (10,) * 3))


@pytest.fixture
def life(attached: Bed, service: Service) -> Bed:
    """The attached bed: every VM is at its place, and known there to both switches."""
    bed = attached
    service.wait_ready(bed)
    # What they have announced in the test before is more than five seconds ago.
    bed.ofctl("del-flows", LOCKS)
    bed.tor.ovs.run("ovs-appctl", "-t", "ovs-vswitchd", "fdb/flush", bed.upstream)
    bed.introduce()
    bed.revalidated()
    return bed


# ---- it leaves, and comes ---------------------------------------------------------------


@judges_time
@pytest.mark.parametrize("kind", frames.ANNOUNCEMENTS)
def test_a_vm_that_announces_itself_elsewhere_is_found_there(
    life: Bed, service: Service, kind: str
) -> None:
    """And here again when it comes back: the service is dead all the while."""
    bed, (vm, neighbour, _) = life, life.vms
    host, vlan = bed.hosts[0], bed.vlans[0]
    with service.dead(), talk(bed, neighbour, vm) as found_after_s:
        say(bed, host, vm.mac, frames.ANNOUNCEMENTS[kind], host.sends(vlan))
        soon(f"found after a {kind} from outside", found_after_s(host), FOUND_WITHIN_S)
        say(bed, vm, vm.mac, frames.ANNOUNCEMENTS[kind], vm.sends(vlan))
        soon(f"found after a {kind} of its own", found_after_s(vm), FOUND_WITHIN_S)


@judges_time
def test_a_vm_whose_port_goes_is_found_elsewhere_at_once(life: Bed, service: Service) -> None:
    """It has announced nothing: the network knows where it is, and here nobody was told."""
    bed, (vm, neighbour, _) = life, life.vms
    host = bed.hosts[0]
    with talk(bed, neighbour, vm) as found_after_s:
        say(bed, host, vm.mac, frames.broadcast, host.sends(bed.vlans[0]))
        bed.unplug(vm)
        gone_s = found_after_s(host)
        bed.plug_in(vm)
        wait_until(lambda: bound(bed, service, vm), "the VM's new port is bound")
        say(bed, vm, vm.mac, frames.broadcast, vm.sends(bed.vlans[0]))
        back_s = found_after_s(vm)
    soon("found elsewhere", gone_s, FOUND_AT_ONCE_S)
    soon("found when it came back and spoke", back_s, FOUND_WITHIN_S)


@judges_time
def test_a_vm_that_was_remote_comes_in(life: Bed, service: Service) -> None:
    """Known outside until now, and announced there: its first word here counts."""
    bed, (_, neighbour, _) = life, life.vms
    host, vlan = bed.hosts[0], bed.vlans[0]
    with bed.another_vm(neighbour.vlan) as vm:
        say(bed, host, vm.mac, frames.rarp, host.sends(vlan))
        wait_until(lambda: bound(bed, service, vm), "the VM's port is bound")
        with talk(bed, neighbour, vm, host) as found_after_s:
            say(bed, vm, vm.mac, frames.broadcast, vm.sends(vlan))
            soon("found after it spoke here", found_after_s(vm), FOUND_WITHIN_S)


def test_a_vm_on_its_way_here_is_found_where_it_still_is(life: Bed, service: Service) -> None:
    """The hypervisor has made its port, and says whose it will be, long before it comes."""
    bed, (neighbour, *_), host = life, life.vms, life.hosts[0]
    with bed.another_vm(neighbour.vlan) as port:
        bed.ovs.vsctl("set", "interface", port.port, f'external_ids:attached-mac="{host.mac}"')
        wait_until(lambda: host.mac in bed.ofctl("dump-flows", "table=1"), "it is known whose")
        bed.revalidated()
        (left,) = delivered(bed, neighbour, host)
        assert left in bed.ends
        for build in frames.FLOODED.values():
            assert str(neighbour) in bed.comes_out(bed.frame_of(host, build))
        came = replace(port, mac=host.mac)
        say(bed, came, host.mac, frames.rarp, 0)
        bed.revalidated()
        assert delivered(bed, neighbour, came) == [str(port)], "and it has come"


# ---- its port ---------------------------------------------------------------------------


def test_a_vm_whose_port_is_renamed(life: Bed, service: Service) -> None:
    """As when libvirt starts it anew: another interface, another number."""
    bed, (vm, neighbour, _) = life, life.vms
    renamed = replace(vm, port=vm.port + "x")
    bed.unplug(vm)
    rename(vm.port, renamed.port)
    try:
        bed.plug_in(renamed)
        wait_until(lambda: bound(bed, service, renamed), "the new name is shown and bound")
        assert vm.port not in service.bindings(bed)
        say(bed, vm, vm.mac, frames.broadcast, vm.sends(bed.vlans[0]))
        # A neighbour's frame could be taken up before it.
        bed.revalidated()
        assert delivered(bed, neighbour, vm) == [str(vm)]
        assert delivered(bed, bed.hosts[0], vm) == [str(vm)]
    finally:
        bed.unplug(renamed)
        rename(renamed.port, vm.port)
        bed.plug_in(vm)


# ---- its address ------------------------------------------------------------------------


@judges_time
def test_an_address_on_two_ports_is_where_it_spoke_last(life: Bed, service: Service) -> None:
    bed, (first, second, other) = life, life.vms
    host, vlan = bed.hosts[0], bed.vlans[0]
    known = len(learned(bed))
    shared = frames.broadcast(first.mac, first.sends(vlan), 0)
    bystander = frames.udp(host.mac, other.mac, vlan=host.sends(vlan))
    flows = [(first.point, shared), (second.point, shared), (host.point, bystander)]
    no_room = bed.turned_away()
    with bed.ears(other.point) as ears, Stream(flows, PPS) as stream:
        ear = ears[other.point]
        wait_until(lambda: len(stream.received(ear, 2)) > PPS, "a second of it")
        stream.stop()
        ears.until_quiet()
        received = stream.received(ear, 2)
        no_room = bed.turned_away() - no_room
    lost_for_want_of_room(stream.lost(ear, 2), no_room, PPS)
    assert set(received.values()) == {1}
    assert len(learned(bed)) <= known, "an address has one place, however often it moves"
    for speaker in (first, second, first):
        say(bed, speaker, first.mac, frames.broadcast, speaker.sends(vlan))
        bed.revalidated()
        for sender in (other, host):
            at = delivered(bed, sender, first)
            assert at == [str(speaker)], f"{sender} found the last speaker, {speaker}, at {at}"
    assert service.alive


@judges_time
def test_learning_packets_that_come_back_are_no_departure(life: Bed, service: Service) -> None:
    """The switch upstream floods them to the other uplink, at 0, 1 and 3 s."""
    bed, (vm, neighbour, _) = life, life.vms
    first, second = bed.uplinks
    no_room = bed.turned_away()
    with bed.ears(*[u.upstream_end for u in bed.uplinks], vm.point) as ears:
        with Stream([(neighbour.point, unicast(bed, neighbour, vm))], PPS) as stream:
            service.move(vm, first)
            service.move(vm, second)
            packets = 0

            def announced() -> bool:
                nonlocal packets
                heard = ears[second.upstream_end].frames()
                packets = sum(h.ethertype == frames.ETH_RARP and not h.outgoing for h in heard)
                return packets >= 3

            wait_until(announced, "the move is announced three times")
            back = [h for h in ears[first.upstream_end].frames() if h.ethertype == frames.ETH_RARP]
            assert any(h.outgoing for h in back), "the bench: they were not flooded back"
        ears.until_quiet()
        lost = stream.lost(ears[vm.point], 0)
        lost_for_want_of_room(lost, bed.turned_away() - no_room, PPS)
        for uplink in bed.uplinks:
            assert not stream.received(ears[uplink.upstream_end], 0), "it left the host"


# ---- tools ------------------------------------------------------------------------------


@contextlib.contextmanager
def talk(
    bed: Bed, sender: Station, vm: Station, at: Station | None = None
) -> Iterator[Callable[[Station], float]]:
    """A steady flow to the VM's address, found at `at` first; how long until it is elsewhere."""
    host = bed.hosts[0]
    with (
        bed.ears(vm.point, host.point) as ears,
        Stream([(sender.point, unicast(bed, sender, vm))], PPS) as stream,
    ):

        def arrives(station: Station, since_s: float) -> float | None:
            arrivals = stream.arrivals(ears[station.point], 0)
            return min((at_s for _, at_s in arrivals if at_s > since_s), default=None)

        def found_after_s(station: Station) -> float:
            since_s = time.time()
            first_s = wait_until(
                lambda: arrives(station, since_s), f"frames to {vm}'s address arrive at {station}"
            )
            assert first_s
            print(f"found at {station} after {first_s - since_s:.3f} s")
            return first_s - since_s

        found_after_s(at or vm)
        yield found_after_s
        stream.stop()


def unicast(bed: Bed, sender: Station, vm: Station) -> bytes:
    return frames.udp(sender.mac, vm.mac, vlan=sender.sends(bed.vlans[0]))


def delivered(bed: Bed, sender: Station, vm: Station) -> list[str]:
    """Where a frame to the VM's address comes out of the bridge."""
    return bed.comes_out(bed.frame_of(sender, frames.to(vm.mac)))


def say(bed: Bed, at: Station, mac: str, build: frames.Builder, tag: int) -> None:
    """A frame with this source, sent there."""
    bed.send(at.point, build(mac, tag, 0))


def learned(bed: Bed) -> list[str]:
    """The flows that say where an address is."""
    return [f for f in bed.ofctl("dump-flows", "table=20").splitlines() if "hard_timeout" in f]


def bound(bed: Bed, service: Service, vm: Station) -> bool:
    return bool(service.bindings(bed).get(vm.port))


def rename(old: str, new: str) -> None:
    run("ip", "link", "set", old, "down")
    run("ip", "link", "set", old, "name", new)
    run("ip", "link", "set", new, "up")
