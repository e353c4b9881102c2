"""VM ports with a policy of their own, beside others on the same team."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.switch.bed import PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.sendings import Landing, Sending, fire, others, udp
from tests.switch.service import Service
from tests.switch.waiting import wait_until

CONNECTIONS = 40

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 4))


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    with session_service.attached(bed, "--policy", "load-based"):
        yield bed


def test_a_spread_port_beside_whole_ones(team: Bed, service: Service) -> None:
    bed, (spread, whole, *_) = team, team.vms
    service.place(bed, 0, 1, 0, 1, 0)
    flows = {vm: connections(bed, vm) for vm in bed.vms}
    service.do("set", "interface", spread.port, "policy=dynamic")
    wait_until(lambda: len(used(fire(bed, flows[spread]))) == 2, "the spread port's flows part")
    by_home(bed, service, whole, flows[whole])
    home = service.bindings(bed)[spread.port]
    for landing in fire(bed, flows[spread]):
        ((uplink, source, _),) = landing.left
        assert (source == spread.mac) == (uplink == home), landing
    by_home(bed, service, spread, [s for s in others(bed) if s.station == spread])
    service.do("pin", spread.port, bed.uplinks[1].name)
    wait_until(
        lambda: used(fire(bed, flows[spread])) == {(bed.uplinks[1].name, spread.mac)},
        "a pinned port leaves by its pin, whatever its policy",
    )
    service.do("unpin", spread.port)
    wait_until(lambda: len(used(fire(bed, flows[spread]))) == 2, "the spread port's flows part")
    bed.ovs.vsctl("remove", "interface", spread.port, "external_ids", "ovs-lbt-policy")
    wait_until(
        lambda: (
            used(fire(bed, flows[spread])) == {(service.bindings(bed)[spread.port], spread.mac)}
        ),
        "all by its home again, without a policy of its own",
    )
    by_home(bed, service, whole, flows[whole])


def connections(bed: Bed, vm: Station) -> list[Sending]:
    return [udp(bed, vm, (vm.ip, "198.51.100.1"), 30000 + i) for i in range(CONNECTIONS)]


def used(landings: Sequence[Landing]) -> set[tuple[str, str]]:
    """The uplinks in use, with the source addresses there."""
    for landing in landings:
        assert len(landing.left) <= 1, f"more than one copy: {landing}"
    return {(uplink, source) for landing in landings for uplink, source, _ in landing.left}


def by_home(bed: Bed, service: Service, vm: Station, sendings: Sequence[Sending]) -> None:
    """Assert that all of it leaves by the VM's home, from its own address."""
    home = service.bindings(bed)[vm.port]
    for sending, landing in zip(sendings, fire(bed, sendings), strict=True):
        assert landing.left == ((home, vm.mac, 0),), f"{sending}: {landing}, its home is {home}"
