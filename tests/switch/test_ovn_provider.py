"""OVN's provider networks on a bond: a VLAN, a router with SNAT and a floating IP, each address an uplink's."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests import documents
from tests.switch.bed import BALANCE_SLB, Upstream, run
from tests.switch.judging import few_lost, few_twice, judges_time
from tests.switch.ovn.cloud import Cloud, Network
from tests.switch.ovn.host import EXTERNAL, INTEGRATION, UPLINKS, Host, Vm
from tests.switch.ovn.talk import each_once, traffic
from tests.switch.waiting import wait_until

PHYSICAL, VLAN = "physnet1", 20
# Nothing is sent in tunnels here, but ovn-controller wants an endpoint.
NO_ENDPOINT = "127.0.0.1"
FLOATING_IP, FLOATING_MAC = "10.2.0.11", "02:0a:02:00:00:11"
VMS = 4
PPS, FRAMES = 100, 100
# Two VMs that send so much fill one uplink, but not both.
BUSY_PPS, BUSY_FRAME_BYTES, UPLINK_MBPS = 700, 1250, 16
WINDOW_S = 2
# Upstream, what is for a VM is sent by the failed uplink until an announcement comes by another one.
LOST_IN_FAILOVER_MAX = 10


@dataclass(slots=True)
class Place:
    """A host with a `balance-slb` bond, a VLAN, and a tenant's network behind a router with SNAT.

    The first VM of the tenant has a floating IP.
    """

    cloud: Cloud
    vlan: Network
    external: Network
    tenant: Network

    @property
    def host(self) -> Host:
        return self.cloud.hosts[0]

    @property
    def patch(self) -> str:
        """The patch port that ovn-controller makes for the VLAN's localnet port."""
        return f"patch-ln-{self.vlan.name}-to-{INTEGRATION}"

    def log_tails(self, lines: int) -> dict[str, str]:
        """As the cloud's."""
        return self.cloud.log_tails(lines)

    def outside(self) -> Vm:
        """The host upstream in the VLAN."""
        assert self.vlan.outside
        return self.vlan.outside

    def ways(self) -> list[tuple[Vm, Vm]]:
        """Every VM of the VLAN and the host upstream, in both directions."""
        to = self.outside()
        return [*((vm, to) for vm in self.vlan.vms), *((to, vm) for vm in self.vlan.vms)]

    def uplinks(self) -> dict[str, str]:
        """The uplink of each address behind the patch port; empty while the port is away."""
        ports = self.host.service.show_json(EXTERNAL)["ports"]
        if self.patch not in {found["name"] for found in ports}:
            return {}
        shown = json.loads(self.host.service.ask("explain", self.patch, "--json"))
        return {one["mac"]: one["uplink"] for one in shown.get("addresses", ())}

    def all_known(self) -> bool:
        """Whether each VM of the VLAN has an uplink."""
        return self.uplinks().keys() >= {vm.mac for vm in self.vlan.vms}


@pytest.fixture(scope="module")
def place(tor: Upstream) -> Iterator[Place]:
    """Attached as the documents do it, with VMs in the VLAN, and two of the tenant."""
    with Cloud(tor, hosts=1, bond=BALANCE_SLB) as cloud:
        (host,), nbctl = cloud.hosts, cloud.central.nbctl
        vlan = cloud.add_provider_network("vlan", PHYSICAL, VLAN)
        external = cloud.add_provider_network("ext", PHYSICAL)
        tenant = cloud.add_network("red")
        cloud.add_router("router", tenant, external)
        host.join(
            cloud.central,
            ovn_encap_ip=NO_ENDPOINT,
            ovn_bridge_mappings=f"{PHYSICAL}:{EXTERNAL}",
        )
        nbctl("lrp-set-gateway-chassis", "router-ext", host.name)
        for network in (*[vlan] * VMS, *[tenant] * 2):
            cloud.start_vm(host, network)
        with_ip, _ = tenant.vms
        nat = ("lr-nat-add", "router")
        nbctl(*nat, "snat", external.gateway, "10.3.0.0/16")
        floating = (FLOATING_IP, with_ip.ip, with_ip.name, FLOATING_MAC)
        nbctl(*nat, "dnat_and_snat", *floating)
        cloud.settle()
        host.start_service()
        (block,) = documents.labelled("provider")
        host.type(block, {})
        keys = {"window-s": WINDOW_S, "poll-interval-ms": 200, "failback-delay-s": 0}
        words = [f"external_ids:ovs-lbt-{key}={value}" for key, value in keys.items()]
        host.ovs.vsctl("set", "bridge", EXTERNAL, *words)
        host.limit_uplinks(UPLINK_MBPS)
        yield Place(cloud, vlan, external, tenant)


def on_both(place: Place) -> bool:
    """Whether the addresses of the VLAN are spread evenly."""
    used = [*place.uplinks().values()]
    return sorted(map(used.count, UPLINKS)) == [VMS // 2, VMS // 2]


@pytest.fixture
def known(place: Place) -> Place:
    """Everybody has spoken, and each address has an uplink."""
    with traffic(place.cloud, place.ways(), PPS):
        wait_until(place.all_known, "all addresses are known")
    return place


def test_addresses_are_spread_and_each_frame_comes_once(known: Place) -> None:
    assert on_both(known), known.uplinks()
    with each_once(known.cloud, known.ways(), PPS, FRAMES):
        pass


def test_the_router_and_the_floating_ip_reach_the_outside(place: Place) -> None:
    outside = place.external.outside
    assert outside
    for vm in place.tenant.vms:
        assert_reaches(vm, outside.ip)
    assert_reaches(outside, FLOATING_IP)


def assert_reaches(one: Vm, ip: str) -> None:
    """That a ping is answered, once the neighbours are known."""
    wait_until(functools.partial(is_answered, one, ip), f"{one} reaches {ip}")


def is_answered(one: Vm, ip: str) -> bool:
    sent = run("bash", "-c", f"ping -c 5 -i 0.1 -W 1 {ip} || true", netns=one.name)
    return " 0% packet loss" in sent


@pytest.mark.parametrize("policy", ["load-based", "adaptive"])
def test_load_moves_an_address_and_no_idle_one(known: Place, policy: str) -> None:
    host, before = known.host, known.uplinks()
    host.do("set", "bridge", EXTERNAL, f"policy={policy}")
    there = before[known.vlan.vms[0].mac]
    busy = [vm for vm in known.vlan.vms if before[vm.mac] == there]
    assert len(busy) == 2, before
    with traffic(known.cloud, [(vm, known.outside()) for vm in busy], BUSY_PPS, BUSY_FRAME_BYTES):
        wait_until(
            lambda: len({known.uplinks()[vm.mac] for vm in busy}) == 2, "each has its own uplink"
        )
    after = known.uplinks()
    moved = {mac for mac, uplink in before.items() if after[mac] != uplink}
    assert len(moved) == 1 and moved < {vm.mac for vm in busy}
    # As it was, for the next one.
    (mac,) = moved
    host.do("set", "bridge", EXTERNAL, "policy=originating-port")
    wait_until(
        lambda: host.service.show_json(EXTERNAL)["policy"] == "originating-port", "it is in force"
    )
    host.do("move", f"{known.patch}/{mac}%{VLAN}", there)
    wait_until(lambda: known.uplinks() == before, "all are where they were")


def test_units_outlive_the_patch_port(known: Place) -> None:
    """As when ovn-controller removes it with the network, and creates it again."""
    cloud, host = known.cloud, known.host
    host.remove_patch_ports_at_once()
    cloud.central.nbctl("lsp-del", f"ln-{known.vlan.name}")
    wait_until(lambda: known.patch not in host.ovs.vsctl("list-ports", EXTERNAL), "it is gone")
    cloud.add_localnet(known.vlan, PHYSICAL, VLAN)
    wait_until(lambda: known.patch in host.ovs.vsctl("list-ports", EXTERNAL), "it is back")
    cloud.settle()
    with traffic(cloud, known.ways(), PPS):
        wait_until(known.all_known, "each address is a unit again")
    with each_once(cloud, known.ways(), PPS, FRAMES):
        assert on_both(known), known.uplinks()


@judges_time
def test_an_uplink_fails_and_returns(known: Place) -> None:
    host, before = known.host, known.uplinks()
    uplink = host.uplinks[0]
    with traffic(known.cloud, known.ways(), PPS) as talk:
        talk.warm_up()
        host.set_link(uplink, "down")
        wait_until(lambda: {*known.uplinks().values()} == {UPLINKS[1]}, "all use the other one")
        talk.go_on(FRAMES)
        host.set_link(uplink, "up")
        wait_until(lambda: known.uplinks() == before, "all are where they were")
        talk.go_on(FRAMES)
    few_twice(talk.twice(), 0)
    few_lost(talk.lost(), LOST_IN_FAILOVER_MAX, PPS, "an uplink of two below a provider network")


def test_detach_gives_the_bond_back(known: Place) -> None:
    with traffic(known.cloud, known.ways(), PPS) as talk:
        talk.warm_up()
        known.host.do("detach", EXTERNAL)
        talk.go_on(FRAMES)
    few_twice(talk.twice(), 0, "detach below OVN")
    few_lost(talk.lost(), 0, PPS, "detach below OVN")
    (with_ip, without_ip), outside = known.tenant.vms, known.external.outside
    assert outside
    assert_reaches(with_ip, outside.ip)
    assert_reaches(without_ip, outside.ip)
