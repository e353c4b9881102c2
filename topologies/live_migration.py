"""The layout `live_migration`: two hosts with two fast uplinks each, and VMs that migrate.

It reproduces "High performance live migration done right means using SMB Direct" and related
articles (Working Hard In IT, 2013). Each host has two 10 GbE uplinks, here scaled down to 100 Mbit/s.
The memory of VMs is copied from the first host to the second. Results are comparable as shares of the
speed of both links.

    mn --custom /path/to/topologies/live_migration.py --topo live_migration --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo live_migration,uplinks=2,vms=4,uplink_mbps=50,clients=1,mtu=9000,vlan=7

Migrations run between the hosts' own stacks, `host1` and `host2`. A stack has a vNIC for each uplink,
each in a separate network. Over a team (`team=lacp`, `team=bond`, `team=plain`), one of them has the
traffic. `team=split` means separate NICs with one vNIC each, as SMB Multichannel uses them. All VMs
start on the first host. To migrate a VM, move its port to the second host:

    ovs-vsctl del-port mig-server1 mig-vm1-1 -- add-port mig-server2 mig-vm1-1

and let it announce itself, as a hypervisor does (`vm1 ping -c 1 10.100.1.1` is enough). With
`team=split`, the bridges are mig-server11, mig-server12, mig-server21…

The upstream client observes the interruption. VMs and clients are in the access VLAN `vlan`.
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

NAME = "live_migration"

# Shares of both links of 10 Gbit/s. SMB uses several connections. TCP uses one for each VM, which
# one core limits.
PUBLISHED = {
    "source": "High performance live migration done right means using SMB Direct, "
    "Working Hard In IT",
    "modes": [
        {"name": "LACP, TCP", "total_share": 0.85},
        {"name": "LACP, TCP, two VMs", "total_share": 0.45},
        {"name": "LACP, SMB", "total_share": 0.95},
        {"name": "LACP, SMB, one large VM", "total_share": 0.95},
        {"name": "switch independent", "total_share": 0.5},
        {"name": "no team, SMB Multichannel", "total_share": 1.0},
        {"name": "no team, SMB Direct", "total_share": 1.0},
    ],
    "one_vm_tcp_share": [0.225, 0.25],
    "jumbo_gain_ratio": [0.15, 0.20],
    "first_simultaneous": 4,
}


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 2,
    vms: int = 8,
    clients: int = 1,
    uplink_mbps: int = 100,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the first host's stack to the second's."""
    graph = networkx.Graph()
    graph.add_node("upstream", role=LayoutRole.UPSTREAM_SWITCH)
    servers = layout_parts.add_two_servers(graph, "upstream", uplinks, uplink_mbps, mtu=mtu)
    for number, server in enumerate(servers, start=1):
        for index in range(1, uplinks + 1):
            layout_parts.add_vnic(
                graph,
                f"host{number}",
                server,
                role=LayoutRole.HOST,
                index=index,
                address=f"10.{index}.0.{number}/16",
                ofport=10 * uplinks + index - 1,
                mtu=mtu,
                home=f"{server}-uplink{index}",
            )
    layout_parts.add_vms(
        graph,
        servers[0],
        vms,
        network="10.100.0",
        first_ofport=11 * uplinks,
        mtu=mtu,
        vlan=vlan,
        loaded=False,
    )
    layout_parts.add_clients(graph, "upstream", clients, network="10.100.1", mtu=mtu, vlan=vlan)
    return LayoutGraph(NAME, graph, PUBLISHED, senders=("host1",), receivers=("host2",))


class LiveMigrationTopo(LayoutTopo):
    """The layout for `mn --topo live_migration`."""

    def build(
        self, prefix: str = "mig-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: LiveMigrationTopo}
