"""Eight VMs on an integration bridge, behind one patch port: balanced as eight ports would be.

Each address has an uplink of its own, and the port a home, by which all of them hear broadcasts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Shot, Station, on_beds
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service
from tests.switch.test_reconnect import flows_of
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import Heard

VMS = 8
CAPACITY_MBPS = 100
WINDOW_S = 2
FLOW_PPS = 500
SETTLES_WITHIN_S = 6.0
BEDS = [BedSpec(PLAIN, 2, (None,), mtu_bytes=9000), BedSpec(BALANCE_SLB, 2, (10,))]
on_every_bed = on_beds(*BEDS)
on_one_bed = on_beds(*BEDS[:1])
OUTSIDER = "02:ee:00:00:00:01"


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=200, failback_delay_s=1)
    with bed.integration_bridge(VMS):
        bed.set("interface", bed.patch, unit="source-mac")
        with session_service.attached(bed, "--policy", "load-based"):
            bed.limit_uplinks(CAPACITY_MBPS)
            yield bed


@pytest.fixture
def spread(team: Bed, service: Service) -> Bed:
    """All addresses known, half of them by either uplink."""
    bed = team
    wait_until(lambda: sum(units(bed, service).values()) == VMS, "all of them are known")
    counts = units(bed, service)
    if sorted(counts.values()) != [VMS // 2] * 2 or sum(counts.values()) != VMS:
        bed.set("bridge", bed.bridge, policy="explicit")
        wait_until(lambda: units(bed, service)[bed.uplinks[0].name] == VMS, "all by the first")
        bed.set("bridge", bed.bridge, policy="originating-port")
        bed.introduce()

        def halved() -> bool:
            return set(units(bed, service).values()) == {VMS // 2}

        wait_until(halved, "half of them by either uplink")
        bed.set("bridge", bed.bridge, policy="load-based")
    bed.introduce()
    wait_until(lambda: as_shown(bed, service), "packets leave as shown")
    bed.revalidated()
    return bed


def units(bed: Bed, service: Service) -> dict[str, int]:
    """How many addresses behind the port are on each uplink; none while nothing is known."""
    ports = service.show_json(bed.bridge)["ports"]
    found: dict[str, int] = next((p.get("units", {}) for p in ports if p["name"] == bed.patch), {})
    return {u.name: found.get(u.name, 0) for u in bed.uplinks}


def homes(bed: Bed) -> dict[str, str]:
    """The uplink by which each VM's broadcasts leave, by the VM's name; "" if none was heard."""
    left = bed.homes()
    return {str(vm): " and ".join(left[str(vm)]) for vm in bed.nested}


def as_shown(bed: Bed, service: Service) -> bool:
    left = Counter(homes(bed).values())
    return {u.name: left[u.name] for u in bed.uplinks} == units(bed, service)


# ---- where frames go -------------------------------------------------------------------


@on_every_bed
def test_addresses_are_spread_and_everything_comes_once(spread: Bed, service: Service) -> None:
    bed = spread
    assert set(units(bed, service).values()) == {VMS // 2}
    check_once(bed, homes(bed))
    shown = service.do("show", bed.bridge)
    assert f"{bed.patch}: {VMS} addresses" in shown
    assert service.metric("ovslbt_port_units", bridge=bed.bridge, port=bed.patch) == VMS
    for uplink in bed.uplinks:
        labels = {"bridge": bed.bridge, "uplink": uplink.name}
        assert service.metric("ovslbt_uplink_units", **labels) == VMS // 2


def check_once(bed: Bed, left_by: dict[str, str]) -> None:
    """Floods and unicast, both ways: exactly one copy wherever one should be, no other."""
    ends = {u.name: str(u.upstream_end) for u in bed.uplinks if bed.carrier(u)}
    everybody = [*bed.stations, *bed.nested]
    (neighbour,), host = bed.vms, bed.hosts[0]
    wanted: list[tuple[Shot, list[str]]] = []
    for vm in bed.nested:
        others = [str(s) for s in everybody if s is not vm]
        for kind, build in frames.FLOODED.items():
            shot = bed.frame_of(vm, build, story=kind)
            wanted.append((shot, [*others, ends[left_by[str(vm)]]]))
        there = unicast(bed, vm, host.mac)
        wanted.append((there, [ends[left_by[str(vm)]]]))
        wanted += [(unicast(bed, sender, vm.mac), [str(vm)]) for sender in (host, neighbour)]
        wanted.append((unicast(bed, vm, neighbour.mac), [str(neighbour)]))
    for build in (frames.broadcast, frames.multicast, frames.arp_request):
        shot = bed.frame_of(host, build, story="a flood")
        wanted.append((shot, [str(s) for s in everybody]))
    copies = bed.fire([shot for shot, _ in wanted])
    wrong = [
        f"{shot.story}: came out at {copies[shot.frame_id].points}, expected {sorted(points)}"
        for shot, points in wanted
        if copies[shot.frame_id].points != sorted(points)
    ]
    assert not wrong, "\n".join(wrong)


def unicast(bed: Bed, sender: Station, destination: str) -> Shot:
    return bed.frame_of(sender, frames.to(destination), story=f"unicast to {destination}")


# ---- who left, and who did not ---------------------------------------------------------


@on_one_bed
def test_neither_reflections_nor_our_learning_packets_are_departures(
    spread: Bed, service: Service
) -> None:
    """Also of those that leave by another uplink than their port's home.

    And the integration bridge never hears of our learning packets: it would take VMs of its own
    to be behind the patch port.
    """
    bed = spread
    target = next(u for u in bed.uplinks if u.name != service.port(bed, bed.patch)["uplink"])
    movers = {vm.mac for vm in bed.nested if homes(bed)[str(vm)] != target.name}
    with bed.ears(*(vm.point for vm in bed.nested), target.upstream_end) as ears:
        service.do("move", bed.patch, target.name)

        def announced() -> bool:
            heard = ears[target.upstream_end].frames()
            return {h.source for h in rarps(heard)} >= movers

        wait_until(announced, "a learning packet for each that moves, by its new uplink")
        for vm in bed.nested:
            heard = rarps(ears[vm.point].frames())
            assert not {h.source for h in heard} & {one.mac for one in bed.nested}
    before = flows_of(bed)
    for build in frames.ANNOUNCEMENTS.values():
        bed.fire([bed.shot(vm.point, build, vm.mac, 0, 0, "its own") for vm in bed.nested])
        for uplink in bed.uplinks:
            back = [
                bed.shot(uplink.upstream_end, build, vm.mac, 0, 0, "its reflection")
                for vm in bed.nested
            ]
            copies = bed.fire(back)
            assert all(copies[shot.frame_id].points == [] for shot in back)
    holds(lambda: sum(units(bed, service).values()) == VMS, "all of them are here", 2.5)
    assert flows_of(bed) == before
    assert set(homes(bed).values()) == {target.name}


def rarps(heard: Sequence[Heard]) -> list[Heard]:
    return [h for h in heard if h.ethertype == frames.ETH_RARP and not h.outgoing]


# ---- restarts and failures -------------------------------------------------------------


@on_every_bed
@judges_time
def test_without_the_service_an_uplink_that_fails_costs_nobody(
    spread: Bed, service: Service
) -> None:
    bed = spread
    failing, other = bed.uplinks
    left_by = homes(bed)
    with service.dead(), bed.cable_pulled(failing):
        by_other = {str(vm): other.name for vm in bed.nested}
        wait_until(lambda: homes(bed) == by_other, "all leave by the other uplink")
        bed.revalidated()
        check_once(bed, by_other)
    wait_until(lambda: homes(bed) == left_by, "everything as it was")
    since_s = time.monotonic()
    wait_until(lambda: as_shown(bed, service), "and shown so")
    soon("shown as it is", time.monotonic() - since_s, SETTLES_WITHIN_S)
    bed.revalidated()
    check_once(bed, left_by)
