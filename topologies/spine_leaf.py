"""The layout `spine_leaf`: two racks with two independent leaf switches each, and a spine.

This is the medium design of "I Can't Afford 10GBps For Hyper-V And Other Lies" (Working Hard In IT,
2013). Every server has an uplink to each of two switches of its rack, which no LAG spans, and a
switch-independent team. Traffic between racks crosses the spine. There are no published figures.

    mn --custom /path/to/topologies/spine_leaf.py --topo spine_leaf --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo spine_leaf,switches=2,uplinks=4,vms=2,clients=1,uplink_mbps=100,trunk_mbps=200

`switches` is the number of leaf switches of a rack, to which the uplinks are assigned in turn. `vms` is
the number of VMs of each server, and `trunk_mbps` the speed of a leaf switch's link to the spine. The
document's spine is two switches that act as one (VLT), which one switch stands for here. Clients are at
the spine. The other forms of the teams are those of `two_switches`.
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

NAME = "spine_leaf"
RACKS = (1, 2)


@layout_parts.with_checked_parameters
def layout(
    switches: int = 2,
    uplinks: int = 2,
    vms: int = 4,
    clients: int = 1,
    uplink_mbps: int = 50,
    trunk_mbps: int = 1000,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the VMs of the first rack to those of the second."""
    graph = networkx.Graph()
    graph.add_nodes_from((f"server{rack}" for rack in RACKS), role=LayoutRole.SERVER_BRIDGE)
    graph.add_node("spine", role=LayoutRole.UPSTREAM_SWITCH)
    owners: list[tuple[str, ...]] = []
    for rack in RACKS:
        server = f"server{rack}"
        leaves = [f"leaf{rack}{number}" for number in range(1, switches + 1)]
        graph.add_nodes_from(leaves, role=LayoutRole.UPSTREAM_SWITCH)
        layout_parts.add_uplinks(
            graph,
            server,
            leaves,
            [uplink_mbps] * uplinks,
            name=f"{server}-uplink",
            interface=f"s{rack}-up",
            mtu=mtu,
        )
        for leaf in leaves:
            names = (f"{leaf}-sp", f"sp-{leaf}")
            layout_parts.join_switches(graph, leaf, "spine", names, mbps=trunk_mbps, mtu=mtu)
        owners.append(
            layout_parts.add_vms(
                graph,
                server,
                vms,
                first_number=1 + (rack - 1) * vms,
                network=f"10.1.{rack}",
                first_ofport=10 * uplinks,
                mtu=mtu,
                vlan=vlan,
            )
        )
    layout_parts.add_clients(graph, "spine", clients, network="10.1.3", mtu=mtu, vlan=vlan)
    return LayoutGraph(NAME, graph, senders=owners[0], receivers=owners[1])


class SpineLeafTopo(LayoutTopo):
    """The layout for `mn --topo spine_leaf`."""

    def build(
        self, prefix: str = "spl-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: SpineLeafTopo}
