"""The layout `live_migration`: two hosts with two fast uplinks each, and VMs that migrate.

As in "High performance live migration done right means using SMB Direct" and its fellow
articles (Working Hard In IT, 2013): two 10 GbE uplinks for each host, here scaled to
100 Mbit/s, and VMs whose memory is copied from the first host to the second. Results
compare as shares of the speed of both links.

    mn --custom /path/to/topologies/live_migration.py --topo live_migration --test pingall

runs it from any directory, with each team as an active-backup bond. Parameters of the
topology, all optional:

    --topo live_migration,uplinks=2,vms=4,uplink_mbps=50,clients=1,mtu=9000,vlan=7

The hosts' own stacks, `host1` and `host2`, carry the migration; they have a vNIC for
each uplink, each on a network of its own. Over a team (`team=lacp`, `team=bond`,
`team=plain`) one of them does. `team=split` is no team but separate NICs, each with its
vNIC, as SMB Multichannel uses them. All VMs start on the first host; one has migrated
when its port is at the second:

    ovs-vsctl del-port mig-server1 mig-vm1-1 -- add-port mig-server2 mig-vm1-1

and it has said so, as a hypervisor does for it (`vm1 ping -c 1 10.100.1.1` will do).
With `team=split` the bridges are mig-server11, mig-server12, mig-server21…

The client, upstream, is who notices. VMs and clients are in the access VLAN `vlan`.
"""

from __future__ import annotations

import os
import sys

import networkx

# As in vmware_lbt.py, which says why.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.graph import parts as layout_parts  # noqa: E402
from topologies.graph.layout import Layout as LayoutGraph  # noqa: E402
from topologies.graph.layout import Role as LayoutRole  # noqa: E402
from topologies.network.mininet_topo import LayoutTopo  # noqa: E402

NAME = "live_migration"

# Gbit/s of 2 x 10, as shares of both links. SMB is several connections, TCP is one for
# each VM, bound by one core.
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
