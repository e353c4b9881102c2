"""The layout `two_switches`: one server at two independent top-of-rack switches.

This is the small design of "I Can't Afford 10GBps For Hyper-V And Other Lies" (Working Hard In IT,
2013). It has two cheap, independent switches, so that no LAG can span them, and a core switch. For this
case, Open vSwitch documents only active-backup bonds. There are no published figures.

    mn --custom /path/to/topologies/two_switches.py --topo two_switches --test pingall

starts it from any directory, with an active-backup bond as the team. All parameters are optional:

    --topo two_switches,switches=2,uplinks=4,vms=4,clients=2,uplink_mbps=50,trunk_mbps=200

Uplinks are assigned to the switches in turn. `trunk_mbps` is the speed of each switch's link to the
core, `mtu` the MTU of all links, and `vlan` the access VLAN of VMs and clients. The other forms of the
team are `team=balance-slb`, `team=split`, and `team=plain`, which is for `ovs-lbt attach`. `team=lacp`
is refused.
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

NAME = "two_switches"


@layout_parts.with_checked_parameters
def layout(
    switches: int = 2,
    uplinks: int = 2,
    vms: int = 4,
    clients: int = 2,
    uplink_mbps: int = 100,
    trunk_mbps: int = 1000,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the VMs to the clients at the core."""
    graph = networkx.Graph()
    graph.add_node("server", role=LayoutRole.SERVER_BRIDGE)
    racks = [f"tor{number}" for number in range(1, switches + 1)]
    graph.add_nodes_from([*racks, "core"], role=LayoutRole.UPSTREAM_SWITCH)
    layout_parts.add_uplinks(graph, "server", racks, [uplink_mbps] * uplinks, mtu=mtu)
    for rack in racks:
        names = (f"{rack}-core", f"core-{rack}")
        layout_parts.join_switches(graph, rack, "core", names, mbps=trunk_mbps, mtu=mtu)
    layout_parts.add_vms(
        graph,
        "server",
        vms,
        network="10.1.0",
        first_ofport=10 * uplinks,
        mtu=mtu,
        vlan=vlan,
    )
    layout_parts.add_clients(graph, "core", clients, network="10.1.1", mtu=mtu, vlan=vlan)
    return LayoutGraph(NAME, graph)


class TwoSwitchesTopo(LayoutTopo):
    """The layout for `mn --topo two_switches`."""

    def build(
        self, prefix: str = "two-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: TwoSwitchesTopo}
