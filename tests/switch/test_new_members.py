"""Members join a bond, or the bond is made anew: VMs lose no more than by the bond alone.

Until the service knows a new port, the switch takes it for that of a VM. It brings back broadcasts of
our own VMs then, and must not be taken for the port where these are.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, on_beds
from tests.switch.judging import at_most, judges_time
from tests.switch.service import Service
from tests.switch.traffic import Traffic
from tests.switch.waiting import wait_until

PPS = 200
WATCHED_S = 2.5
# More frames than the bond alone loses: those of a tenth of a second, and of a second on a busy machine.
CHANCE, CHANCE_WHILE_BUSY = PPS // 10, PPS

pytestmark = on_beds(BedSpec(BALANCE_SLB, 3, (None, None)))


@pytest.fixture(autouse=True)
def without_the_third(bed: Bed) -> Iterator[None]:
    """The bond has two members at first; whatever a test does, it has again behind it."""
    make_bond(bed)
    yield
    make_bond(bed)


def make_bond(bed: Bed) -> None:
    names = [uplink.name for uplink in bed.uplinks]
    old = [word for name in (bed.bond, *names) for word in ("--", "--if-exists", "del-port", name)]
    made = ["--", "add-bond", bed.bridge, bed.bond, *names[:2], *bed.spec.bond_settings]
    bed.ovs.vsctl(*old[1:])
    bed.ovs.vsctl(*made[1:])


def add_third(bed: Bed) -> None:
    bed.ovs.vsctl("add-bond-iface", bed.bond, bed.uplinks[2].name)


def nothing(_: Bed) -> None:
    """No change."""


def lost_by(bed: Bed, change: Callable[[Bed], None]) -> Counter[str]:
    """Frames lost while and after something changes: between VMs, to the network and from it."""
    (vm, other), host = bed.vms, bed.hosts[0]
    ways = [(vm, other), (other, vm), (vm, host), (host, vm)]
    unicast = [frames.plain(source.mac, to.mac, 0, 0) for source, to in ways[1:]]
    bed.introduce()
    with Traffic(ways, PPS, [frames.broadcast(vm.mac, 0, 0), *unicast]) as traffic:
        traffic.go_on(PPS // 2)
        change(bed)
        time.sleep(WATCHED_S)
    return Counter(traffic.lost())


@judges_time
@pytest.mark.parametrize("change", [add_third, make_bond])
@pytest.mark.parametrize("dead", [False, True], ids=["service-runs", "service-is-dead"])
def test_members_change(
    bed: Bed, service: Service, change: Callable[[Bed], None], dead: bool
) -> None:
    """What the bond alone lost by the same change before is what may be lost."""
    alone = lost_by(bed, change)
    make_bond(bed)
    with service.attached(bed, "--policy", "originating-port"):
        with service.dead() if dead else contextlib.nullcontext():
            lost = lost_by(bed, change)
        print(f"lost: {lost}; by the bond alone: {alone}")
        more = max((lost - alone).values(), default=0)
        at_most("frames lost that the bond alone delivers", more, CHANCE, CHANCE_WHILE_BUSY)
        service.wait_ready(bed)
        # Also with the members that a service finds when it comes back.
        wait_until(lambda: max(lost_by(bed, nothing).values(), default=0) <= CHANCE, "all is well")
