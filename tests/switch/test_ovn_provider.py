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
from tests.switch.ovn.talk import Talk
from tests.switch.waiting import wait_until

PHYSICAL, VLAN, VMS = "physnet1", 20, 4
# Nothing is sent in tunnels here, but ovn-controller wants an endpoint.
NO_ENDPOINT = "127.0.0.1"
FLOATING_IP, FLOATING_MAC = "10.2.0.11", "02:0a:02:00:00:11"
PPS, FRAMES = 100, 100
# Two VMs that send so much fill one uplink, but not both.
BUSY_PPS, BUSY_FRAME_BYTES, UPLINK_MBPS = 700, 1250, 16
WINDOW_S = 2
# Upstream, what is for a VM is sent by the failed uplink until an announcement comes by another one.
LOST_IN_FAILOVER_MAX = 10


@dataclass(slots=True)
class Place:
    """A host with a VLAN of the physical network, and a tenant's network behind a router."""

    cloud: Cloud
    vlan: Network
    external: Network
    tenant: Network
    # What attach said, and what the refused attach of br-int did.
    said: str = ""
    refused: str = ""

    @property
    def host(self) -> Host:
        return self.cloud.hosts[0]

    @property
    def patch(self) -> str:
        """The patch port of the VLAN."""
        return f"patch-ln-{self.vlan.name}-to-{INTEGRATION}"

    def outside(self) -> Vm:
        assert self.vlan.outside
        return self.vlan.outside

    def ways(self) -> list[tuple[Vm, Vm]]:
        """Every VM of the VLAN and the host upstream, in both directions."""
        to = self.outside()
        return [*((vm, to) for vm in self.vlan.vms), *((to, vm) for vm in self.vlan.vms)]

    def uplinks(self) -> dict[str, str]:
        """The uplink of each address behind the VLAN's patch port; empty while the port is away."""
        ports = self.host.service.show_json(EXTERNAL)["ports"]
        if self.patch not in {port["name"] for port in ports}:
            return {}
        shown = json.loads(self.host.service.ask("explain", self.patch, "--json"))
        return {one["mac"]: one["uplink"] for one in shown.get("addresses", ())}

    def all_known(self) -> bool:
        return self.uplinks().keys() >= {vm.mac for vm in self.vlan.vms}

    def on_both(self) -> bool:
        """Whether the addresses are spread evenly."""
        used = [*self.uplinks().values()]
        return sorted(map(used.count, UPLINKS)) == [VMS // 2, VMS // 2]


@pytest.fixture(scope="module")
def place(tor: Upstream) -> Iterator[Place]:
    """Attached as the documents do it."""
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
        made = Place(cloud, vlan, external, tenant)
        with host.entered():
            made.refused = host.service.command("attach", INTEGRATION).stderr
        (block,) = documents.labelled("provider")
        made.said = host.type(block, {})
        keys = {"window-s": WINDOW_S, "poll-interval-ms": 200, "failback-delay-s": 0}
        words = [f"external_ids:ovs-lbt-{key}={value}" for key, value in keys.items()]
        host.ovs.vsctl("set", "bridge", EXTERNAL, *words)
        host.limit_uplinks(UPLINK_MBPS)
        yield made


@pytest.fixture
def known(place: Place) -> Place:
    """Everybody has spoken, and each address has an uplink."""
    with Talk(place.cloud, place.ways(), PPS):
        wait_until(place.all_known, "all addresses are known")
    return place


def test_attach_says_what_a_patch_port_is_and_whose_br_int_is(place: Place) -> None:
    assert f"{INTEGRATION}: ovn-controller owns it" in place.refused
    assert place.refused.rstrip().endswith(f"-> the bridge that has the uplinks: {EXTERNAL}")
    note = f"note: patch port {place.patch} to {INTEGRATION}: to load-based, all VMs behind it"
    assert note in place.said


def test_addresses_are_spread_and_each_frame_comes_once(known: Place) -> None:
    assert known.on_both(), known.uplinks()
    with Talk(known.cloud, known.ways(), PPS) as talk:
        talk.warm_up()
        talk.go_on(FRAMES)
    assert not talk.twice()
    few_lost(talk.lost(), 0, PPS)


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
    with Talk(known.cloud, [(vm, known.outside()) for vm in busy], BUSY_PPS, BUSY_FRAME_BYTES):
        wait_until(
            lambda: len({known.uplinks()[vm.mac] for vm in busy}) == 2, "each has its own uplink"
        )
    after = known.uplinks()
    moved = {mac for mac, uplink in before.items() if after[mac] != uplink}
    assert len(moved) == 1 and moved < {vm.mac for vm in busy}
    # As it was, for the next one.
    (mac,) = moved
    host.do("set", "bridge", EXTERNAL, "policy=originating-port")
    host.do("move", f"{known.patch}/{mac}%{VLAN}", there)
    assert known.uplinks() == before


def test_an_address_has_the_name_of_its_vm(known: Place) -> None:
    vm = known.vlan.vms[0]
    name, host = f"{known.patch}/{vm.mac}%{VLAN}", known.host
    before = known.uplinks()[vm.mac]
    (other,) = {*UPLINKS} - {before}
    for asked in (name, vm.name, name.partition("%")[0]):
        assert host.do("explain", asked).startswith(f"{name} ({vm.name}) on {EXTERNAL}, ")
    assert f"{vm.mac} ({vm.name}) in VLAN {VLAN} on {before}" in _on_one_line(
        host.do("explain", known.patch)
    )
    host.do("move", name, other)
    assert known.uplinks()[vm.mac] == other
    assert f"{name} [{vm.name}]: {before} -> {other}" in host.do("history", "--port", vm.name)
    host.do("move", name, before)


def test_a_pin_of_an_address_is_kept_for_its_vm(known: Place) -> None:
    vm, host = known.vlan.vms[0], known.host
    name, before = f"{known.patch}/{vm.mac}", known.uplinks()[vm.mac]
    (other,) = {*UPLINKS} - {before}
    host.do("pin", name, other)
    wait_until(lambda: known.uplinks()[vm.mac] == other, "it is where its pin says")
    assert host.service.command("move", name, before).returncode == 1
    with Talk(known.cloud, known.ways(), PPS) as talk:
        talk.warm_up()
        talk.go_on(FRAMES)
    assert not talk.twice()
    few_lost(talk.lost(), 0, PPS)
    host.do("unpin", name)
    host.do("move", name, before)
    assert known.on_both()


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def test_units_outlive_the_patch_port(known: Place) -> None:
    """As when ovn-controller removes it with the network, and creates it again."""
    cloud, host = known.cloud, known.host
    cloud.central.nbctl("lsp-del", f"ln-{known.vlan.name}")
    wait_until(lambda: known.patch not in host.ovs.vsctl("list-ports", EXTERNAL), "it is gone")
    cloud.add_localnet(known.vlan, PHYSICAL, VLAN)
    wait_until(lambda: known.patch in host.ovs.vsctl("list-ports", EXTERNAL), "it is back")
    cloud.settle()
    with Talk(cloud, known.ways(), PPS) as talk:
        wait_until(known.all_known, "each address is a unit again")
        talk.warm_up()
        talk.go_on(FRAMES)
    assert known.on_both(), known.uplinks()
    assert not talk.twice()
    few_lost(talk.lost(), 0, PPS)


def test_a_vm_that_returns_has_its_uplink(known: Place) -> None:
    host, before = known.host, known.uplinks()
    vm = known.vlan.vms[0]
    host.unplug(vm)
    known.cloud.central.nbctl(
        *("--timeout=30", "wait-until", "logical_switch_port", vm.name, "up=false")
    )
    host.plug_in(vm)
    known.cloud.settle()
    with Talk(known.cloud, known.ways(), PPS) as talk:
        talk.warm_up()
        talk.go_on(FRAMES)
    assert known.uplinks() == before
    assert not talk.twice()
    few_lost(talk.lost(), 0, PPS)


@judges_time
def test_an_uplink_fails_and_returns(known: Place) -> None:
    host, before = known.host, known.uplinks()
    uplink = host.uplinks[0]
    with Talk(known.cloud, known.ways(), PPS) as talk:
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
    with Talk(known.cloud, known.ways(), PPS) as talk:
        talk.warm_up()
        known.host.do("detach", EXTERNAL)
        talk.go_on(FRAMES)
    few_twice(talk.twice(), 0, "detach below OVN")
    few_lost(talk.lost(), 0, PPS, "detach below OVN")
    (with_ip, without_ip), outside = known.tenant.vms, known.external.outside
    assert outside
    assert_reaches(with_ip, outside.ip)
    assert_reaches(without_ip, outside.ip)
