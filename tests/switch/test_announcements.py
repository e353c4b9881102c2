"""Our own announcements that come back are no departure. One from outside is: test_vm_life.py."""

from __future__ import annotations

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.waiting import wait_until

LOCKS = "table=22"

pytestmark = on_beds(BedSpec(PLAIN, 2, (None, None)), BedSpec(BALANCE_SLB, 2, (10, 10)))


@pytest.mark.parametrize("kind", frames.ANNOUNCEMENTS)
def test_a_reflected_announcement_is_no_departure(attached: Bed, kind: str) -> None:
    announce_and_reflect(attached, kind)
    announce_and_reflect(attached, kind)


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


def unicast(bed: Bed, sender: Station, receiver: Station) -> list[str]:
    """Where unicast to a VM's address comes out, at most once.

    So it is as soon as the switch's flow cache is as its tables are; until then, nowhere or
    where it was before.
    """
    points = bed.comes_out(bed.frame_of(sender, frames.to(receiver.mac)))
    assert len(points) <= 1, f"unicast from {sender} to {receiver} came out at {points}"
    return points
