"""Hosts of a cloud whose VMs talk through tunnels, in each way that endpoints can be teamed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests import documents
from tests.switch.bed import Uplink, Upstream, run
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import EXTERNAL, UPLINKS, Host, Vm

# What the documents call the endpoints of a host, and a VM's port. Those of the second host end in 21.
ENDPOINTS, VM_PORT = ("198.51.100.11", "203.0.113.11"), "vnet3"
IPV6_ENDPOINT = "2001:db8::11"
VMS = 4


@dataclass(frozen=True, slots=True)
class Way:
    """How the hosts team their uplinks. `endpoints`: how many a host has, one or two."""

    policy: str
    endpoints: int = 1
    ipv6: bool = False

    @property
    def by_recipe(self) -> bool:
        """Whether the one endpoint is set up word for word as the documents do it."""
        return self.endpoints == 1 and self.policy == "adaptive"

    def __str__(self) -> str:
        count = "one endpoint" if self.endpoints == 1 else "two endpoints"
        return f"{self.policy}, {count}{', IPv6' * self.ipv6}"


def endpoint(host: Host, number: int) -> str:
    """The address of an endpoint: `number` 0 or 1."""
    return f"{ENDPOINTS[number].removesuffix('11')}{host.number}1"


def names(host: Host) -> dict[str, str]:
    """What the documents' addresses stand for on this host."""
    return {ENDPOINTS[number]: endpoint(host, number) for number in range(2)}


def name_endpoint(host: Host, vm: Vm, number: int) -> None:
    """As the documents do it: the endpoint that other hosts send to."""
    (block,) = documents.labelled("endpoints-vm")
    host.type(block, {VM_PORT: vm.port, ENDPOINTS[1]: endpoint(host, number)})


@contextlib.contextmanager
def overlay(tor: Upstream, way: Way) -> Iterator[Cloud]:
    """Two hosts that send by their endpoints, with four VMs each in one network."""
    with Cloud(tor) as cloud:
        network = cloud.add_network("red")
        for host in cloud.hosts:
            host.start_service()
            key = "external_ids:ovs-lbt-failback-delay-s=0"
            host.ovs.vsctl("set", "bridge", EXTERNAL, key)
            host.attach("--policy", way.policy)
            _add_endpoints(host, way)
            host.join(cloud.central, **_encap(host, way))
            for number in range(VMS):
                vm = cloud.start_vm(host, network)
                if way.endpoints > 1:
                    name_endpoint(host, vm, number % way.endpoints)
        cloud.settle()
        yield cloud


def ways(cloud: Cloud) -> list[tuple[Vm, Vm]]:
    """Each VM and the one of the other host with the same number, in both directions."""
    first, second = (host.vms for host in cloud.hosts)
    pairs = [*zip(first, second, strict=True)]
    return [*pairs, *((to, one) for one, to in pairs)]


def busiest(host: Host, before: dict[str, int]) -> Uplink:
    """The uplink that has carried most in both directions since `carried` was `before`."""
    now = carried(host)
    most = max(UPLINKS, key=lambda name: now[name] - before[name])
    return next(uplink for uplink in host.uplinks if uplink.name == most)


def carried(host: Host) -> dict[str, int]:
    """What each uplink has carried so far, in both directions."""
    sent, received = host.sent_bytes(), host.received_bytes()
    return {name: sent[name] + received[name] for name in UPLINKS}


def _add_endpoints(host: Host, way: Way) -> None:
    if way.endpoints > 1:
        for block in documents.labelled("endpoints"):
            host.type(block, names(host))
        return
    if way.by_recipe:
        for label in ("endpoint", "endpoint-ovn"):
            (block,) = documents.labelled(label)
            host.type(block, names(host))
        return
    if way.ipv6:
        for device in (EXTERNAL, "lo"):
            key = f"net.ipv6.conf.{device}.disable_ipv6=0"
            run("sysctl", "-qw", key, netns=host.name)
    address = f"{ipv6_endpoint(host)}/64" if way.ipv6 else f"{endpoint(host, 0)}/24"
    # Duplicates are not looked for: it must not wait.
    flags = ("nodad",) if way.ipv6 else ()
    run("ip", "-n", host.name, "addr", "add", address, "dev", EXTERNAL, *flags)


def ipv6_endpoint(host: Host) -> str:
    return f"{IPV6_ENDPOINT.removesuffix('11')}{host.number}1"


def _encap(host: Host, way: Way) -> dict[str, str]:
    """The recipes say it themselves."""
    if way.endpoints > 1 or way.by_recipe:
        return {}
    return {"ovn_encap_ip": ipv6_endpoint(host) if way.ipv6 else endpoint(host, 0)}
