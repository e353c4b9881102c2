"""A host of OVN with VMs in a VLAN of the physical network, and a tenant's network behind a router."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests import documents
from tests.switch.bed import BALANCE_SLB, Upstream
from tests.switch.ovn.cloud import Cloud, Network
from tests.switch.ovn.host import EXTERNAL, INTEGRATION, Host, Vm

PHYSICAL, VLAN = "physnet1", 20
# Nothing is sent in tunnels here, but ovn-controller wants an endpoint.
NO_ENDPOINT = "127.0.0.1"
FLOATING_IP, FLOATING_MAC = "10.2.0.11", "02:0a:02:00:00:11"


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
        """The patch port of the VLAN."""
        return patch_port(self.vlan)

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

    def attach(self) -> str:
        """As the documents do it; what attach said."""
        (block,) = documents.labelled("provider")
        return self.host.type(block, {})

    def uplinks(self, network: Network | None = None) -> dict[str, str]:
        """The uplink of each address behind a network's patch port; empty while the port is away."""
        port = patch_port(network or self.vlan)
        ports = self.host.service.show_json(EXTERNAL)["ports"]
        if port not in {found["name"] for found in ports}:
            return {}
        shown = json.loads(self.host.service.ask("explain", port, "--json"))
        return {one["mac"]: one["uplink"] for one in shown.get("addresses", ())}

    def all_known(self) -> bool:
        """Whether each VM of the VLAN has an uplink."""
        return self.uplinks().keys() >= {vm.mac for vm in self.vlan.vms}


def patch_port(network: Network) -> str:
    """The patch port that ovn-controller makes for a network's localnet port."""
    return f"patch-ln-{network.name}-to-{INTEGRATION}"


@contextlib.contextmanager
def provider(tor: Upstream, vms: int) -> Iterator[Place]:
    """`vms` in the VLAN, and two of the tenant; the bridge is not attached yet."""
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
        for network in (*[vlan] * vms, *[tenant] * 2):
            cloud.start_vm(host, network)
        with_ip, _ = tenant.vms
        nat = ("lr-nat-add", "router")
        nbctl(*nat, "snat", external.gateway, "10.3.0.0/16")
        floating = (FLOATING_IP, with_ip.ip, with_ip.name, FLOATING_MAC)
        nbctl(*nat, "dnat_and_snat", *floating)
        cloud.settle()
        yield Place(cloud, vlan, external, tenant)
