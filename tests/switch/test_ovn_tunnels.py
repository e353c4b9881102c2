"""OVN's tunnels over two endpoints of a host, by the documents' recipe: VMs of both hosts use all uplinks."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

import pytest

from tests import documents
from tests.switch.bed import Upstream
from tests.switch.ovn.central import TUNNELS_OF_EACH_ENDPOINT, version
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import EXTERNAL, UPLINKS, Host, Vm
from tests.switch.ovn.overlays import endpoint, name_endpoint, names
from tests.switch.ovn.talk import each_once, traffic
from tests.switch.test_ovn_plain_tunnels import shows
from tests.switch.waiting import wait_until

# Then each endpoint has tunnels to those in other networks, and this recipe is for none of it.
pytestmark = pytest.mark.skipif(
    version() >= TUNNELS_OF_EACH_ENDPOINT,
    reason="an OVN for which the documents have another recipe",
)

VMS_PER_NETWORK = 2
PPS, FRAME_BYTES = 100, 1000
FRAMES = 200
# With unequal flows, all VMs of a host receive 4.8 Mbit/s: a plan relieves what is full, and leaves what
# is idle.
CAPACITY_MBPS = 4
# The part of all that an uplink carries if everything uses it, and if it is one of two that carry alike.
ALL, HALF = 0.95, 0.5


@pytest.fixture(scope="module")
def cloud(tor: Upstream) -> Iterator[Cloud]:
    """Two hosts as the recipe leaves them. Each has four VMs, in two networks with a router between."""
    with Cloud(tor) as made:
        networks = [made.add_network(name) for name in ("red", "blue")]
        made.add_router("router", *networks)
        for host in made.hosts:
            host.start_service()
            host.ovs.vsctl(
                *("set", "bridge", EXTERNAL, "external_ids:ovs-lbt-failback-delay-s=0"),
                *(
                    word
                    for name in UPLINKS
                    for word in (
                        *("--", "set", "interface", name),
                        f"external_ids:ovs-lbt-capacity-mbps={CAPACITY_MBPS}",
                    )
                ),
            )
            host.attach("--policy", "originating-port")
            for block in documents.labelled("endpoints"):
                host.type(block, names(host))
            host.join(made.central)
            for network in networks:
                for _ in range(VMS_PER_NETWORK):
                    made.start_vm(host, network)
        made.settle()
        yield made


def pairs(cloud: Cloud) -> list[tuple[Vm, Vm]]:
    """Each VM and one of the other host, in both directions. Two pairs are in one network."""
    (a, b, c, d), (e, f, g, h) = (host.vms for host in cloud.hosts)
    ways = [(a, e), (b, g), (c, f), (d, h)]
    return [*ways, *((to, one) for one, to in ways)]


def unequal(cloud: Cloud) -> list[tuple[Vm, Vm]]:
    """The same, but one VM of each host receives as much as the other three together."""
    ways = pairs(cloud)
    return [*ways, *2 * [ways[0]], *2 * [ways[-1]]]


def shares(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """The part of each uplink in what all have carried meanwhile."""
    carried = {name: after[name] - before[name] for name in before}
    return {name: count / sum(carried.values()) for name, count in carried.items()}


def test_endpoints_are_found_and_are_on_different_uplinks(cloud: Cloud) -> None:
    for host in cloud.hosts:
        both = {endpoint(host, number) for number in range(2)}
        story = f"{host} shows both endpoints, each on an uplink of its own"
        wait_until(functools.partial(shows, host, both, len(UPLINKS)), story)


def test_all_use_one_endpoint_until_vms_name_theirs(cloud: Cloud) -> None:
    first, _ = cloud.hosts
    with each_once(cloud, pairs(cloud), PPS, FRAMES, FRAME_BYTES):
        before = first.sent_bytes()
    used = shares(before, first.sent_bytes())
    assert max(used.values()) > ALL, used


def test_vms_that_name_endpoints_use_both_uplinks(cloud: Cloud) -> None:
    for host in cloud.hosts:
        for number, vm in enumerate(host.vms):
            name_endpoint(host, vm, number % 2)
    assert_both_uplinks_carry_alike(cloud, pairs(cloud), [2, 2, 2, 2])


def test_vms_follow_the_plan(cloud: Cloud) -> None:
    for host in cloud.hosts:
        for vm in host.vms:
            name_endpoint(host, vm, 0)
    wait_until(lambda: _encaps(cloud) == [4, 4], "OVN has all VMs of a host on one endpoint")
    cloud.settle()
    with traffic(cloud, unequal(cloud), PPS, FRAME_BYTES) as talk:
        talk.warm_up()

        def plans_with_moves() -> list[dict[str, Any]]:
            with ThreadPoolExecutor() as both:
                plans = [*both.map(planned, cloud.hosts)]
            return plans if all(plan["commands"] for plan in plans) else []

        # Statistics are in the database now and then, and late if the machine had no time: a plan that
        # has read too few of them finds no uplink full.
        plans = wait_until(plans_with_moves, "each host has a plan")
    for host, plan in zip(cloud.hosts, plans, strict=True):
        # How much that is depends on how fast the machine sends, and when.
        full, free = sorted(plan["endpoints"], key=itemgetter("planned_rx_bps"), reverse=True)
        gap_bps = full["planned_rx_bps"] - free["planned_rx_bps"]
        there = [vm for vm in plan["vms"] if vm["planned_endpoint"] == full["address"]]
        assert there and all(vm["rx_bps"] >= gap_bps for vm in there), "none would be better off"
        with host.entered():
            for command in plan["commands"]:
                host.ovs.run(*shlex.split(command))
    assert_both_uplinks_carry_alike(cloud, unequal(cloud), [1, 1, 3, 3])


def planned(host: Host) -> dict[str, Any]:
    """The answer of `plan --endpoints`."""
    found: dict[str, Any] = json.loads(host.do("plan", "--endpoints", "--json"))
    return found


def assert_both_uplinks_carry_alike(
    cloud: Cloud, ways: list[tuple[Vm, Vm]], vms_of_endpoints: list[int]
) -> None:
    """On both hosts, and in both directions, once so many VMs are on the four endpoints."""
    wait_until(lambda: _encaps(cloud) == vms_of_endpoints, f"VMs on endpoints: {vms_of_endpoints}")
    cloud.settle()
    with each_once(cloud, ways, PPS, FRAMES, FRAME_BYTES):
        before = [(host.sent_bytes(), host.received_bytes()) for host in cloud.hosts]
    after = [(host.sent_bytes(), host.received_bytes()) for host in cloud.hosts]
    found = [
        share
        for ways in zip(before, after, strict=True)
        for way in zip(*ways, strict=True)
        for share in shares(*way).values()
    ]
    assert found == pytest.approx([HALF] * 8, abs=0.05)


def _encaps(cloud: Cloud) -> list[int]:
    """How many VMs are behind each endpoint, as OVN's southbound database has it."""
    columns = ("--bare", "--columns=encap", "find", "port_binding", 'type=""')
    found = cloud.central.sbctl(*columns).split()
    return sorted(found.count(uuid) for uuid in set(found))
