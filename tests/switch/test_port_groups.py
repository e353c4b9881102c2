"""VM ports with a policy of their own, beside others on the same team."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Station
from tests.switch.sendings import Landing, Sending, fire, others, udp
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import CATCH_UP_S, Stream

FRAME_BYTES_MAX = 9000
BEDS = [BedSpec(PLAIN, 2, (None,) * 4, mtu_bytes=FRAME_BYTES_MAX)]
CAPACITY_MBPS = 100
WINDOW_S = 2
FLOW_PPS = 600
# Whoever moves again does so a window, a poll and the lag of flow counters later: 3.2 s.
QUIET_S = 4.4
CONNECTIONS = 40

pytestmark = [pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)]


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    session_service.start()
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=200, failback_delay_s=0)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    session_service.attach(bed, "--policy", "load-based")
    yield bed
    session_service.do("detach", bed.bridge)


@contextlib.contextmanager
def own_policy(bed: Bed, service: Service, vm: Station, preset: str) -> Iterator[None]:
    service.do("set", "interface", vm.port, f"policy={preset}")
    try:
        yield
    finally:
        bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "ovs-lbt-policy")


def test_a_static_port_stays_and_its_load_counts(team: Bed, service: Service) -> None:
    bed, (static, *free) = team, team.vms
    with own_policy(bed, service, static, "originating-port"):
        ofport = int(bed.ovs.vsctl("get", "interface", static.port, "ofport"))
        home = ofport % len(bed.uplinks)
        wait_until(
            lambda: service.bindings(bed)[static.port] == bed.uplinks[home].name,
            "the static port is where its number puts it",
        )
        service.place(bed, *[home] * 4, 1 - home)
        # 85 %, and the busiest that would fit elsewhere is the static port.
        with load(bed, {static: 40, free[0]: 25, free[1]: 20}):
            wait_until(lambda: by(service, bed, free[0]) != home, "the LBT port moves")
            holds(
                lambda: [by(service, bed, vm) for vm in bed.vms] == [home, 1 - home, home, home],
                "nobody else moves",
                QUIET_S,
            )
        assert service.port(bed, free[0])["reason"] == "threshold"
    # 85 % again, by ports that are all free.
    with load(bed, {static: 40, free[1]: 20, free[2]: 25}):
        wait_until(lambda: by(service, bed, static) != home, "it moves as others do")


def test_a_spread_port_beside_whole_ones(team: Bed, service: Service) -> None:
    bed, (spread, whole, *_) = team, team.vms
    service.place(bed, 0, 1, 0, 1, 0)
    flows = {vm: connections(bed, vm) for vm in bed.vms}
    with own_policy(bed, service, spread, "dynamic"):
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


def by(service: Service, bed: Bed, vm: Station) -> int:
    """The number of the uplink that a VM uses."""
    return [u.name for u in bed.uplinks].index(service.bindings(bed)[vm.port])


def load(bed: Bed, rates_mbps: dict[Station, float]) -> Stream:
    """UDP of these rates to the outside."""
    flows = []
    for vm, rate_mbps in rates_mbps.items():
        size = round(rate_mbps * 1e6 / 8 / FLOW_PPS)
        assert size < FRAME_BYTES_MAX
        flows.append((vm.point, frames.udp(vm.mac, bed.hosts[0].mac, frame_bytes=size)))
    return Stream(flows, FLOW_PPS, catch_up_s=CATCH_UP_S)
