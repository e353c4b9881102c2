"""The layout `converged`: two hosts, each with one team for its own traffic and its VMs.

It reproduces "Hyper-V Virtual Machine Converged Networking Performance" (Nutanix, 2014). Each host
has an LBFO team of two 10 GbE uplinks, and an external virtual switch with the vNICs of the host and
of its VMs. IOmeter runs between the vNICs of two VMs. The layout is not scaled down: uplinks of
10 000 Mbit/s are not shaped, so the CPU is the limit, as in the document. Only the ratio of jumbo
frames to standard frames is comparable.

    mn --custom /path/to/topologies/converged.py --topo converged

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo converged,uplinks=2,vms=2,uplink_mbps=100,mtu=9000
    --topo converged,management_vlan=10,migration_vlan=20,vm_vlan=30
    --topo converged,mtu=9000,odd_mtu=1500
    --topo converged,odd_vlan=99,odd_uplink=2

Drivers call an MTU of 9000 "9014". `vms` is the number of VMs of each host. Each host's own stack has
a vNIC for management and one for live migration. A VLAN of 0 leaves that network untagged, so only
addresses separate the networks. `odd_mtu` and `odd_vlan` are the faults that the live migration
articles describe: the switch port of one of the second host's uplinks has a different MTU or VLAN
than the others.
"""

from __future__ import annotations

import os
import sys

import networkx

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.graph import parts as layout_parts  # noqa: E402
from topologies.graph.layout import Layout as LayoutGraph  # noqa: E402
from topologies.graph.layout import Role as LayoutRole  # noqa: E402
from topologies.network.mininet_topo import LayoutTopo  # noqa: E402

NAME = "converged"

# The throughput between two vNICs in one direction, as a share of a 10 GbE link.
PUBLISHED = {
    "source": "Hyper-V Virtual Machine Converged Networking Performance, Nutanix",
    "standard_share": 0.48,
    "jumbo_share": 0.90,
    "jumbo_ratio": 1.9,
}


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 2,
    vms: int = 1,
    uplink_mbps: int = 10_000,
    mtu: int = layout_parts.STANDARD_MTU,
    management_vlan: int = 10,
    migration_vlan: int = 20,
    vm_vlan: int = 30,
    odd_uplink: int = 1,
    odd_mtu: int = 0,
    odd_vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the first host's VMs to the second's."""
    graph = networkx.Graph()
    graph.add_node("upstream", role=LayoutRole.UPSTREAM_SWITCH)
    servers = layout_parts.add_two_servers(graph, "upstream", uplinks, uplink_mbps, mtu=mtu)
    odd = {"upstream_mtu": odd_mtu, "upstream_vlan": odd_vlan}
    if odd_uplink > uplinks:
        raise ValueError(f"odd_uplink: {odd_uplink} -> one of {uplinks} uplinks")
    member = graph.nodes[f"server2-uplink{odd_uplink}"]
    member.update({name: value for name, value in odd.items() if value})
    own: list[tuple[str, ...]] = []
    for number, server in enumerate(servers, start=1):
        for index, vlan in enumerate((management_vlan, migration_vlan), start=1):
            layout_parts.add_vnic(
                graph,
                f"host{number}",
                server,
                role=LayoutRole.HOST,
                index=index,
                address=f"10.{index}.0.{number}/16",
                ofport=10 * uplinks + index - 1,
                mtu=mtu,
                vlan=vlan,
                loaded=False,
            )
        own.append(
            layout_parts.add_vms(
                graph,
                server,
                vms,
                first_number=1 + (number - 1) * vms,
                network=f"10.3.{number}",
                first_ofport=10 * uplinks + 2,
                mtu=mtu,
                vlan=vm_vlan,
            )
        )
    return LayoutGraph(NAME, graph, PUBLISHED, senders=own[0], receivers=own[1])


class ConvergedTopo(LayoutTopo):
    """The layout for `mn --topo converged`."""

    def build(
        self, prefix: str = "conv-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: ConvergedTopo}
