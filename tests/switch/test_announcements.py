"""An address that announces itself from outside has left; our own announcements have not.

All of it happens in the data plane: each case is tried with the service dead, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

LOCKS = "table=22"

pytestmark = on_beds(BedSpec(PLAIN, 2, (None, None)), BedSpec(BALANCE_SLB, 2, (10, 10)))


@pytest.fixture(scope="module", params=[True, False], ids=["alive", "dead"])
def service_alive(
    request: pytest.FixtureRequest, attached: Bed, session_service: Service
) -> Iterator[Bed]:
    """The attached bed, with the service alive or dead."""
    session_service.start()
    if request.param:
        yield attached
        return
    with session_service.dead():
        yield attached


@pytest.mark.parametrize("kind", frames.ANNOUNCEMENTS)
def test_an_address_that_announces_itself_outside_has_left(service_alive: Bed, kind: str) -> None:
    bed = service_alive
    leaver, neighbour = bed.stations[0], bed.stations[1]
    bed.fire([bed.frame_of(leaver)])
    wait_until(lambda: reaches_locally(bed, neighbour, leaver), "it is found where it spoke")
    # For 5 s after our own announcements, the first from outside is taken for a reflection.
    bed.ofctl("del-flows", LOCKS)
    bed.revalidated()
    end, tag = bed.uplinks[0].upstream_end, leaver.vlan or 0
    bed.fire([bed.shot(end, frames.ANNOUNCEMENTS[kind], leaver.mac, tag, tag, kind)])
    story = f"it is found outside after its {kind} there"
    wait_until(lambda: leaves(bed, neighbour, leaver), story)
    bed.fire([bed.frame_of(leaver)])
    story = "it came back and spoke, and is found"
    wait_until(lambda: reaches_locally(bed, neighbour, leaver), story)


@pytest.mark.parametrize("kind", ["ARP request", "broadcast", "neighbour solicitation"])
def test_what_is_not_an_announcement_moves_nobody(service_alive: Bed, kind: str) -> None:
    bed = service_alive
    vm, neighbour = bed.stations[0], bed.stations[1]
    bed.fire([bed.frame_of(vm)])
    for uplink in bed.uplinks:
        tag = vm.vlan or 0
        end, build = uplink.upstream_end, frames.FLOODED[kind]
        points = bed.comes_out(bed.shot(end, build, vm.mac, tag, tag, "a reflection"))
        assert points == [], f"a reflected {kind} was delivered to {points}"
    wait_until(lambda: reaches_locally(bed, neighbour, vm), "it is found where it was")


@pytest.mark.parametrize("kind", frames.ANNOUNCEMENTS)
def test_a_reflected_announcement_is_no_departure(service_alive: Bed, kind: str) -> None:
    announce_and_reflect(service_alive, kind)
    announce_and_reflect(service_alive, kind)


def test_nor_is_one_after_the_lock(attached: Bed) -> None:
    """The lock has ended, and the switch must not forward from its flow cache of before."""
    announce_and_reflect(attached, "gratuitous ARP")
    attached.revalidated()
    announce_and_reflect(attached, "gratuitous ARP")
    wait_until(lambda: "cookie" not in attached.ofctl("dump-flows", LOCKS), "the lock ends")
    attached.revalidated()
    announce_and_reflect(attached, "gratuitous ARP")


def announce_and_reflect(bed: Bed, kind: str) -> None:
    """A VM announces itself; the upstream switch floods that back at once by every other
    uplink, and a moment later it comes by all of them once more.
    """
    vm, neighbour = bed.stations[1], bed.stations[0]
    build, tag = frames.ANNOUNCEMENTS[kind], vm.vlan or 0
    points = bed.comes_out(bed.frame_of(vm, build))
    assert str(vm) not in points, f"its own {kind} came back to {vm}"
    assert len(points) == len(set(points)), f"a {kind} and its reflection came out at {points}"
    for uplink in bed.uplinks:
        back = bed.shot(uplink.upstream_end, build, vm.mac, tag, tag, "its reflection")
        points = bed.comes_out(back)
        assert points == [], f"a {kind} reflected by {uplink} was delivered to {points}"
    story = f"a reflected {kind} counts as no departure"
    wait_until(lambda: reaches_locally(bed, neighbour, vm), story)


def reaches_locally(bed: Bed, sender: Station, receiver: Station) -> bool:
    """Whether unicast between two VMs is delivered here and nowhere else."""
    return unicast(bed, sender, receiver) == [str(receiver)]


def leaves(bed: Bed, sender: Station, receiver: Station) -> bool:
    """Whether unicast to an address leaves by one uplink, and nowhere else."""
    return unicast(bed, sender, receiver) in [[end] for end in bed.ends]


def unicast(bed: Bed, sender: Station, receiver: Station) -> list[str]:
    """Where unicast to a VM's address comes out, at most once.

    So it is as soon as the switch's flow cache is as its tables are; until then, nowhere or
    where it was before.
    """
    points = bed.comes_out(bed.frame_of(sender, frames.to(receiver.mac)))
    assert len(points) <= 1, f"unicast from {sender} to {receiver} came out at {points}"
    return points
