"""The layout `vmware_lbt`: one server with two uplinks and four VMs, and web clients.

It reproduces VMware's "Load-Based Teaming (LBT) Performance" (VROOM! blog, 2010). The server has two
10 GbE uplinks, here scaled down to 100 Mbit/s, and four VMs with two vNICs each. One vNIC of each VM
carries the load. Results are comparable as shares of the link speed.

    mn --custom /path/to/topologies/vmware_lbt.py --topo vmware_lbt --test pingall

starts it from any directory, with an active-backup bond as the team. `ovs-lbt bench vmware_lbt` runs
its benchmark. All parameters are optional:

    --topo vmware_lbt,uplinks=3,vms=6,vnics_per_vm=1,clients=4,uplink_mbps=50,prefix=other-

`mtu` is the MTU of all links, and `vlan` the access VLAN of VMs and clients. `datapath` is `userspace`
or `kernel`. The default is the kernel datapath if its module is loaded.

With `team=plain`, the uplinks are ordinary ports, and the bridge forwards nothing before
`ovs-lbt attach lbt-server --uplink lbt-up1 --uplink lbt-up2`. With `team=split`, each uplink has a
separate bridge. `team=balance-slb` and `team=lacp` are the other bonds of Open vSwitch; `team=lacp` has
a LAG upstream.
"""

from __future__ import annotations

import os
import sys

import networkx

# `mn --custom` executes this file without a package, without __file__ and without the repository on
# sys.path, but the code object has the path of the file. `mn` also copies every global of this file
# over its own globals, so names must not collide.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.graph import parts as layout_parts  # noqa: E402
from topologies.graph.layout import Layout as LayoutGraph  # noqa: E402
from topologies.graph.layout import Role as LayoutRole  # noqa: E402
from topologies.network.mininet_topo import LayoutTopo  # noqa: E402

NAME = "vmware_lbt"

# The document's measurements, as shares of the link speed. The phases follow from its text: LBT moves a
# port when an uplink exceeds 75 %, first at a total of 0.75, then at 1.00, when three of four VMs share
# an uplink at 75 %. The steady load is "a little over 13 Gbps" of 2 x 10 Gbit/s.
PUBLISHED = {
    "source": "VMware Load-Based Teaming (LBT) Performance, VROOM! blog",
    "total_share": 0.65,
    "uplink_share": 0.65,
    "qos_ratio": 0.9999,
    "moves": 2,
    "phases": [
        {"name": "phase 1", "what": "one uplink carries all, below 75 %", "shares": [0.75, 0.0]},
        {"name": "phase 2", "what": "one port moved, both below 75 %", "shares": [0.75, 0.25]},
        {"name": "phase 3", "what": "total above 100 %, a second moved", "shares": [0.5, 0.5]},
        {"name": "phase 4", "what": "steady, both alike", "shares": [0.65, 0.65]},
    ],
}


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 2,
    vms: int = 4,
    vnics_per_vm: int = 2,
    uplink_mbps: int = 100,
    clients: int = 2,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph.

    As in the document, the OpenFlow port numbers make every VM's loaded vNIC hash to the same uplink
    (the port number modulo the number of uplinks).
    """
    graph = networkx.Graph()
    graph.add_node("server", role=LayoutRole.SERVER_BRIDGE)
    graph.add_node("upstream", role=LayoutRole.UPSTREAM_SWITCH)
    layout_parts.add_uplinks(graph, "server", ["upstream"], [uplink_mbps] * uplinks, mtu=mtu)
    stride = uplinks * max(1, -(-vnics_per_vm // uplinks))
    for number in range(1, vms + 1):
        for index in range(1, vnics_per_vm + 1):
            layout_parts.add_vnic(
                graph,
                f"vm{number}",
                "server",
                index=index,
                address=f"10.{index}.0.{number}/16",
                ofport=10 * uplinks + stride * (number - 1) + index - 1,
                mtu=mtu,
                vlan=vlan,
                loaded=index == 1,
            )
    layout_parts.add_clients(graph, "upstream", clients, network="10.1.1", mtu=mtu, vlan=vlan)
    return LayoutGraph(NAME, graph, PUBLISHED)


class VmwareLbtTopo(LayoutTopo):
    """The layout for `mn --topo vmware_lbt`."""

    def build(
        self, prefix: str = "lbt-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: VmwareLbtTopo}
