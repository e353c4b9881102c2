"""What NORMAL delivers to the VMs of a bridge, the service delivers, once: from a VM, and to it.

On a bond, the same frames are sent while NORMAL forwards. NORMAL would join plain uplinks into a loop,
so there only the frames that it should deliver are known.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from controller.dataplane.tables import Table
from tests.switch import frames
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    LACP,
    NETWORK,
    PLAIN,
    Bed,
    BedSpec,
    Shot,
    Station,
    on_beds,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

BEDS = [BedSpec(team, 2, (None, None, None)) for team in (BALANCE_SLB, LACP, ACTIVE_BACKUP, PLAIN)]
BACKUP = next(spec for spec in BEDS if spec.team == ACTIVE_BACKUP)
NO_LAG = [spec for spec in BEDS if not spec.is_lag]
GROUPS = (f"239.1.{n >> 8}.{n & 0xFF}" for n in itertools.count(1))
# OpenFlow's shortest timeout, which the switch looks for once a second.
LOCKED_S = 2.2
INBOUND_PPS = 500
# An address of two routers, and how often both use it.
SHARED_MAC, SHARED_TURNS = "00:00:5e:00:01:07", 3
MORE_VLANS_THAN_LEARNED = range(2, 1032)


def flooded_by(bed: Bed, vm: Station) -> Iterator[Shot]:
    """Each kind of frame that NORMAL floods; a router asks, and members answer and leave."""
    group = next(GROUPS)
    igmp = functools.partial(frames.igmp, group=group)
    kinds: dict[str, frames.Builder] = {
        **frames.FLOODED,
        "general query": functools.partial(frames.igmp, kind=frames.QUERY, group="224.0.0.1"),
        "query of a group": functools.partial(igmp, kind=frames.QUERY),
        "leave": functools.partial(igmp, kind=frames.LEAVE, destination="224.0.0.2"),
        "IGMPv3 report": frames.igmp_report,
    }
    for kind, build in kinds.items():
        yield bed.frame_of(vm, build, story=kind)


def reports(bed: Bed, vm: Station, group: str) -> Shot:
    build = functools.partial(frames.igmp, kind=frames.REPORT, group=group)
    return bed.frame_of(vm, build, story=f"report of {group}")


def heard_here(bed: Bed, shots: Sequence[Shot]) -> list[tuple[str, Counter[str]]]:
    """For each frame, what it is and how often each station hears it; it leaves once in any case."""
    found = []
    for shot, at in zip(shots, bed.came_out(shots), strict=True):
        here = Counter(name for name, _ in at.elements())
        assert (left := here.pop(NETWORK, 0)) == 1, f"{shot.story}: left {left} times"
        found.append((shot.story, here))
    return found


def everybody_but(bed: Bed, *out: Station) -> Counter[str]:
    return Counter(str(station) for station in bed.stations if station not in out)


@on_beds(*BEDS)
def test_what_a_vm_floods_reaches_every_vm_once(bed: Bed, service: Service) -> None:
    if bed.spec.on_bond:
        bed.introduce_to_normal()
        for story, here in heard_here(bed, [*flooded_by(bed, bed.vms[0])]):
            assert here == everybody_but(bed, bed.vms[0]), f"NORMAL: {story}"
    with service.attached(bed, "--policy", "originating-port"):
        for vm in bed.vms:
            for story, here in heard_here(bed, [*flooded_by(bed, vm)]):
                assert here == everybody_but(bed, vm), story
        group = next(GROUPS)
        router, member, _ = bed.vms
        # The router has asked everybody above, and asks for this group.
        asks = functools.partial(frames.igmp, kind=frames.QUERY, group=group)
        query = bed.frame_of(router, asks)
        ((_, asked), (_, told)) = heard_here(bed, [query, reports(bed, member, group)])
        assert asked == everybody_but(bed, router)
        assert told == everybody_but(bed, member), "nobody else is a member yet"


@on_beds(*NO_LAG)
def test_a_member_does_not_hear_reports_of_its_group(bed: Bed, service: Service) -> None:
    """It would stay silent, and a switch that snoops would not send the group to its own uplink."""
    with service.attached(bed, "--policy", "originating-port"):
        group, (first, second, third) = next(GROUPS), bed.vms
        ((_, of_first),) = heard_here(bed, [reports(bed, first, group)])
        ((_, of_second),) = heard_here(bed, [reports(bed, second, group)])
        assert of_first == everybody_but(bed, first)
        assert of_second == everybody_but(bed, first, second)
        ((_, of_another),) = heard_here(bed, [reports(bed, third, next(GROUPS))])
        assert of_another == everybody_but(bed, third)


@on_beds(BEDS[0])
def test_an_address_in_more_vlans_than_the_switch_learns_is_reached_in_each(
    bed: Bed, service: Service
) -> None:
    with service.attached(bed, "--policy", "originating-port"):
        service.place(bed, 0, 0, 0)
        router, vm, _ = bed.vms
        for sender, build, receiver in (
            (router, frames.broadcast, vm),
            (vm, frames.to(router.mac), router),
        ):
            shots = [
                bed.shot(sender.point, build, sender.mac, vlan, vlan, f"VLAN {vlan}")
                for vlan in MORE_VLANS_THAN_LEARNED
            ]
            copies = bed.fire(shots)
            points = {shot.story: copies[shot.frame_id].points for shot in shots}
            assert {n: at for n, at in points.items() if at.count(str(receiver)) != 1} == {}


@on_beds(next(spec for spec in BEDS if spec.is_lag))
def test_on_a_lag_an_address_that_has_moved_away_silently_is_heard(
    bed: Bed, service: Service
) -> None:
    """As by the bond alone; what comes back of our own frames is dropped."""
    vm, neighbour, _ = bed.vms
    host = bed.hosts[0]

    def from_there() -> dict[str, Counter[str]]:
        """Where each kind of frame comes out that it floods there."""
        shots = [bed.frame_of(host, build, vm.mac, k) for k, build in frames.FLOODED.items()]
        copies = bed.fire(shots)
        return {shot.story: Counter(copies[shot.frame_id].points) for shot in shots}

    def to_it() -> list[str]:
        return bed.comes_out(bed.frame_of(neighbour, frames.to(vm.mac)))

    bed.introduce_to_normal()
    alone = from_there()
    with service.attached(bed, "--policy", "originating-port"):
        own, end = bed.frame_of(vm), bed.uplinks[1].upstream_end
        reflected = bed.shot(end, frames.broadcast, vm.mac, 0, 0, "reflected")
        # One after the other: what comes from two ports at once, Open vSwitch takes in any order.
        assert Counter(bed.comes_out(own))[str(neighbour)] == 1
        assert bed.comes_out(reflected) == []
        time.sleep(LOCKED_S)
        assert from_there() == alone
        # Its neighbours now send to where it is.
        (left_by,) = to_it()
        assert left_by in bed.ends

        def is_back() -> bool:
            bed.introduce()
            return to_it() == [str(vm)]

        wait_until(is_back, "the address is here again")


@on_beds(next(spec for spec in BEDS if spec.is_lag))
def test_on_a_lag_routers_here_and_elsewhere_share_an_address(bed: Bed, service: Service) -> None:
    """Only a frame like one that this host has just flooded is taken for one that comes back."""
    router, neighbour, _ = bed.vms
    host = bed.hosts[0]

    def kinds(number: int) -> list[frames.Builder]:
        def advertises(source: str, vlan: int, frame_id: int) -> bytes:
            own, to, group = f"192.0.2.{number}", "01:00:5e:00:00:12", "224.0.0.18"
            udp = functools.partial(frames.udp, source_ip=own, destination_ip=group)
            return udp(source, to, vlan=vlan, frame_id=frame_id)

        asks = functools.partial(frames.arp_request, target=f"198.51.100.{number}")
        return [asks, advertises, functools.partial(frames.neighbour_solicitation, number=number)]

    def heard() -> list[Counter[tuple[str, int]]]:
        """Where each frame comes out, if the routers flood in turn, one frame after another."""
        pairs = zip(*map(kinds, next(numbers)), strict=True)
        turns = [shot for here, there in pairs for shot in both(here, there)]
        return [at for shot in turns for at in bed.came_out([shot])]

    def both(here: frames.Builder, there: frames.Builder) -> Iterator[Shot]:
        yield bed.frame_of(router, here, SHARED_MAC, "the router here")
        yield bed.frame_of(host, there, SHARED_MAC, "the router elsewhere")
        yield bed.frame_of(neighbour, frames.to(SHARED_MAC), story="to the last one")

    numbers = itertools.cycle(((1, 2), (3, 4), (5, 6)))
    bed.introduce_to_normal()
    alone = heard()
    with service.attached(bed, "--policy", "originating-port"):
        bed.introduce()
        found = [heard() for _ in range(SHARED_TURNS)]
        # What is sent to the last one, the bond alone may send by a cached flow for a moment.
        to_it = [(NETWORK, 0)]
        for turn in found:
            assert [turn[0::3], turn[1::3]] == [alone[0::3], alone[1::3]]
            assert all([*at.elements()] == to_it for at in turn[2::3])
        own, end = bed.frame_of(router, source=SHARED_MAC), bed.uplinks[1].upstream_end
        reflected = bed.shot(end, frames.broadcast, SHARED_MAC, 0, 0, "reflected")
        # One after the other: what comes from two ports at once, Open vSwitch takes in any order.
        assert bed.comes_out(own) and bed.comes_out(reflected) == []


@on_beds(*[spec for spec in NO_LAG if spec.on_bond])
def test_a_vm_that_had_no_uplink_is_not_taken_to_be_upstream(bed: Bed, service: Service) -> None:
    """Without any uplink, NORMAL learns its address; the bond announces it when all uplinks are back.

    The announcement returns on the other uplink, if that is up at the same time.
    """
    first, second = bed.uplinks
    with service.attached(bed, "--policy", "originating-port"):
        with service.dead():
            with bed.cable_pulled(first), bed.cable_pulled(second):
                bed.introduce()
                wait_until(bed.normal_knows_vms, "NORMAL has learned the VMs")
                bed.revalidated()
                bed.introduce()
            bed.revalidated()
            for vm in bed.vms:
                returned = bed.shot(second.upstream_end, frames.rarp, vm.mac, 0, 0, "announcement")
                to_it = bed.frame_of(bed.hosts[0], frames.to(vm.mac))
                copies = bed.fire([returned, to_it])
                assert not copies[returned.frame_id].points
                assert copies[to_it.frame_id].points == [str(vm)]
        service.wait_ready(bed)


@on_beds(BACKUP)
def test_a_vm_receives_once_what_the_network_floods(bed: Bed, service: Service) -> None:
    """The switch upstream has forgotten it, so its frames come by each uplink; it may be silent."""
    once = {str(vm): [str(vm)] for vm in bed.vms}
    bed.introduce_to_normal()
    assert forgotten_upstream(bed) == once
    with service.attached(bed, "--policy", "originating-port"):
        service.place(bed, 0, 1, 1)
        drops_copies(bed)
        bed.introduce()
        assert forgotten_upstream(bed) == once
        with service.dead():
            assert forgotten_upstream(bed) == once
            with bed.cable_pulled(bed.uplinks[1]):
                assert forgotten_upstream(bed) == once
            bed.revalidated()
            assert forgotten_upstream(bed) == once
        service.wait_ready(bed)
        assert forgotten_upstream(bed) == once


@on_beds(BACKUP)
def test_what_is_for_a_vm_that_moves_is_not_dropped(bed: Bed, service: Service) -> None:
    """Copies are dropped before and after; the VM itself is silent."""
    vm, neighbour, host = bed.vms[0], bed.vms[1], bed.hosts[0]
    with service.attached(bed, "--policy", "originating-port"):
        service.place(bed, 0, 0, 0)
        bed.introduce()
        flows = [(host.point, frames.udp(host.mac, to.mac)) for to in (vm, neighbour)]
        no_room = bed.turned_away()
        with bed.ears(vm.point, neighbour.point) as ears, Stream(flows, INBOUND_PPS) as stream:
            for number in (1, 0):
                drops_copies(bed)
                service.move(vm, bed.uplinks[number])
                service.move(neighbour, bed.uplinks[number])
            drops_copies(bed)
            sent = stream.stop()
            ears.until_quiet()
            heard = [stream.received(ears[to.point], i) for i, to in enumerate((vm, neighbour))]
        no_room = bed.turned_away() - no_room
        assert sum(sent.count - len(came) for came in heard) <= no_room, "none is lost"
        assert not any(count > 1 for came in heard for count in came.values())


def drops_copies(bed: Bed) -> None:
    """Wait until every VM and LOCAL is known upstream to be on its uplink."""

    def learning() -> int:
        shown = bed.ofctl("dump-flows", f"table={Table.INBOUND:d}")
        return len(re.findall(r"actions=learn\(", shown))

    wait_until(lambda: learning() == len(bed.stations), "copies are dropped for every VM port")
    bed.settled()


def forgotten_upstream(bed: Bed) -> dict[str, list[str]]:
    """Where a host's frame for each VM comes out, once the switch upstream has forgotten the VMs."""
    came = {}
    for vm in bed.vms:
        bed.tor.ovs.run("ovs-appctl", "fdb/flush", bed.upstream)
        bed.tor.ovs.run("ovs-appctl", "revalidator/purge")
        came[str(vm)] = bed.comes_out(bed.frame_of(bed.hosts[0], frames.to(vm.mac)))
    return came


@on_beds(*[spec for spec in BEDS if spec.team in (BALANCE_SLB, LACP)])
def test_snooping_brings_no_second_copy(bed: Bed, service: Service) -> None:
    """NORMAL sends to members that it knows, and to ports that get all groups, whatever their flags."""
    host, (member, router, _) = bed.hosts[0], bed.vms
    report = functools.partial(frames.igmp, kind=frames.REPORT, group="239.1.2.3")

    def heard() -> dict[str, Counter[str]]:
        """Where each kind of frame comes out that a host sends."""
        kinds = {"group": frames.multicast, "broadcast": frames.broadcast}
        return {
            kind: Counter(bed.comes_out(bed.frame_of(host, build))) for kind, build in kinds.items()
        }

    bed.ovs.vsctl(
        *("set", "bridge", bed.bridge, "mcast_snooping_enable=true", "--"),
        *("set", "port", router.port, "other_config:mcast-snooping-flood=true"),
    )
    try:
        bed.introduce_to_normal()
        bed.fire([bed.frame_of(member, report)])
        bed.revalidated()
        wanted = {str(member): 1, str(router): 1}
        assert heard() == {"group": wanted, "broadcast": everybody_but(bed)}
        with service.attached(bed, "--policy", "originating-port"):
            assert heard() == dict.fromkeys(("group", "broadcast"), everybody_but(bed))
            # A VM that is started without the service hears what NORMAL floods.
            with service.dead(), bed.another_vm() as started:
                bed.introduce()
                assert heard()["broadcast"] == everybody_but(bed)
                assert heard()["group"] == everybody_but(bed, started)
    finally:
        bed.ovs.vsctl(
            *("set", "bridge", bed.bridge, "mcast_snooping_enable=false", "--"),
            *("clear", "port", router.port, "other_config"),
        )


@on_beds(BEDS[0], BEDS[-1])
def test_protected_vm_ports_do_not_reach_each_other(bed: Bed, service: Service) -> None:
    """Open vSwitch drops such frames itself, whichever flow or group outputs them."""
    first, second, third = bed.vms
    ports = first.port, second.port

    def heard() -> list[Counter[str]]:
        """Which stations receive what the first one sends to all, to the second, and to the third."""
        builds = frames.broadcast, frames.to(second.mac), frames.to(third.mac)
        came = [Counter(bed.comes_out(bed.frame_of(first, build))) for build in builds]
        return [counted & everybody_but(bed) for counted in came]

    for port in ports:
        bed.ovs.vsctl("set", "port", port, "protected=true")
    try:
        wanted = [everybody_but(bed, first, second), Counter[str](), Counter([str(third)])]
        if bed.spec.on_bond:
            bed.introduce_to_normal()
            assert heard() == wanted
        with service.attached(bed, "--policy", "originating-port"):
            assert heard() == wanted
            assert "protected" not in service.command("check", bed.bridge).stdout
    finally:
        for port in ports:
            bed.ovs.vsctl("set", "port", port, "protected=false")
