"""The layout `quad_gbe_team`: two servers with quad-port NICs, cabled back to back.

It reproduces "NIC Teaming, Hyper-V switch, QoS and actual performance, part 3" (hyper-v.nu, 2013). Each
server has a team of four 1 GbE ports, here scaled down to 100 Mbit/s, with LACP and Address Hash. iperf
runs from one server to the other, with streams added one by one up to ten. Results are comparable as
shares of the link speed.

    mn --custom /path/to/topologies/quad_gbe_team.py --topo quad_gbe_team --test pingall

starts it from any directory. All parameters are optional:

    --topo quad_gbe_team,virtual_switches=1,uplinks=2,uplink_mbps=50,mtu=9000,vlan=7,vms=2

`virtual_switches` is the number of servers with a virtual switch between the team and the vNICs: 0, 1
(the sender) or 2. A link connects the switch to the team's bridge. A patch port would save the second
forwarding of every frame that such a server has. `vms` is the number of VMs of each server. Without a
virtual switch, one of them stands for the server's own stack.

Back to back, only teams work whose ends agree on a cable: `team=lacp`, which is the default and the
document's; `team=bond`, an active-backup bond on the same cable; and `team=split`.
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

NAME = "quad_gbe_team"

# One stream has 113 MB/s, as a share of a link. Ten streams have about 410 MB/s, as a share of four
# times one stream. The document has the MBytes of iperf, which are 2^20 bytes.
PUBLISHED = {
    "source": "NIC Teaming, Hyper-V switch, QoS and actual performance, part 3, hyper-v.nu",
    "one_stream_share": 0.948,
    "ten_streams_share": 0.907,
    "ten_streams_members": 4,
    "virtual_switches": [
        {"sides": 1, "what": "exactly the same"},
        {"sides": 2, "what": "less: the receiver is bound by one core"},
    ],
}


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 4,
    vms: int = 1,
    virtual_switches: int = 0,
    uplink_mbps: int = 100,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the first server to the second."""
    graph = networkx.Graph()
    servers = ("server1", "server2")
    graph.add_nodes_from(servers, role=LayoutRole.SERVER_BRIDGE)
    layout_parts.add_cables(graph, servers, uplinks, uplink_mbps, mtu=mtu)
    own: list[tuple[str, ...]] = []
    for index, server in enumerate(servers):
        switch, first_ofport = server, 10 * uplinks
        if index < virtual_switches:
            switch, names = f"vswitch{index + 1}", (f"s{index + 1}-vsw", f"vsw{index + 1}")
            graph.add_node(switch, role=LayoutRole.VIRTUAL_SWITCH)
            layout_parts.join_switches(graph, server, switch, names, ofport=first_ofport, mtu=mtu)
        own.append(
            layout_parts.add_vms(
                graph,
                switch,
                vms,
                first_number=1 + index * vms,
                network=f"10.1.{index}",
                first_ofport=first_ofport,
                mtu=mtu,
                vlan=vlan,
            )
        )
    return LayoutGraph(NAME, graph, PUBLISHED, senders=own[0], receivers=own[1])


class QuadGbeTeamTopo(LayoutTopo):
    """The layout for `mn --topo quad_gbe_team`."""

    def build(
        self, prefix: str = "quad-", team: str = "lacp", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: QuadGbeTeamTopo}
