"""A VM leaves while the service is dead, and nobody hears it announce itself elsewhere.

The switch alone has to find out, by the VM's port, that what it has learned there no longer holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import (
    BALANCE_SLB,
    LACP,
    PLAIN,
    STATIC_LAG,
    Bed,
    BedSpec,
    Station,
    on_beds,
    run,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until

LEAVES = ("its port is deleted", "its link goes down")

pytestmark = [
    on_beds(*[BedSpec(team, 2, (10,) * 3) for team in (PLAIN, BALANCE_SLB, LACP, STATIC_LAG)]),
    pytest.mark.parametrize("how", LEAVES),
]


def test_a_neighbour_reaches_a_vm_that_has_left(attached: Bed, service: Service, how: str) -> None:
    """It has been cold-started on another host, or its announcement was lost on a dying link."""
    bed, (vm, neighbour, _) = attached, attached.vms
    _known(bed, service)
    assert _to_it(bed, neighbour, vm) == [str(vm)]
    with service.dead(), _left(bed, vm, how):
        *here, left_by = sorted(_to_it(bed, neighbour, vm), key=bed.ends.__contains__)
        assert left_by in bed.ends, "to the network, where it is"
        others = {bed.local, *bed.vms} - {neighbour, vm}
        assert sorted(here) == sorted(map(str, others)), "and flooded, as NORMAL floods it"
    _returned(bed, service, vm)


def test_what_a_vm_that_has_left_broadcasts_is_heard(
    attached: Bed, service: Service, how: str
) -> None:
    """Of each broadcast one copy comes to each VM that is here, and none goes back."""
    bed, (vm, *others), host = attached, attached.vms, attached.hosts[0]
    _known(bed, service)
    with service.dead(), _left(bed, vm, how):
        heard = bed.comes_out(bed.frame_of(host, source=vm.mac))
        assert heard == sorted(map(str, [bed.local, *others]))
    _returned(bed, service, vm)


def _known(bed: Bed, service: Service) -> None:
    """Both switches know where every VM is, and none has announced itself a moment ago."""
    service.wait_ready(bed)
    bed.ofctl("del-flows", "table=22")
    bed.introduce()
    bed.revalidated()


@contextlib.contextmanager
def _left(bed: Bed, vm: Station, how: str) -> Iterator[None]:
    def set_link(to: str) -> None:
        run("ip", "link", "set", "eth0", to, netns=vm.point.netns)
        shown = ("get", "interface", vm.port, "link_state")
        wait_until(lambda: bed.ovs.vsctl(*shown) == to, f"the link is shown {to}")

    by_link = how == "its link goes down"
    if by_link:
        set_link("down")
    else:
        bed.unplug(vm)
    bed.revalidated()
    try:
        yield
    finally:
        if by_link:
            set_link("up")
        else:
            bed.plug_in(vm)


def _returned(bed: Bed, service: Service, vm: Station) -> None:
    wait_until(lambda: bool(service.bindings(bed).get(vm.port)), f"{vm}'s port is bound")

    def reached() -> bool:
        """A service that has just started is bound before the switch has all of its flows."""
        bed.introduce()
        bed.revalidated()
        return _to_it(bed, bed.vms[1], vm) == [str(vm)]

    wait_until(reached, f"{vm} is reached")


def _to_it(bed: Bed, sender: Station, vm: Station) -> list[str]:
    return bed.comes_out(bed.frame_of(sender, frames.to(vm.mac)))
