"""The layout `set_vs_lbfo`: two identical hosts, each with a team of two uplinks and a VM.

It reproduces "Hyper-V 2016 and the Small Business: Switch Embedded Teaming" (Altaro, 2016). Each host
has two 1 GbE uplinks, here scaled down to 100 Mbit/s, and one VM. NTttcp sends eight streams from one VM
to the other. Results are comparable as shares of the link speed.

    mn --custom /path/to/topologies/set_vs_lbfo.py --topo set_vs_lbfo --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo set_vs_lbfo,uplinks=4,vms=2,uplink_mbps=50,lag_hash=flow,mtu=9000,vlan=7

`vms` is the number of VMs of each host, and `vlan` their access VLAN. With `team=lacp`, the switch
between the hosts has a LAG to each host, and `lag_hash` selects its hash: `mac` or `flow`. The default
is `mac`, which we infer from the published totals: one uplink can carry them. The other forms of a team
are `team=balance-slb`, `team=split`, and `team=plain`, which is for `ovs-lbt attach`.
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

NAME = "set_vs_lbfo"

# NTttcp's totals as shares of one link of 1 Gbit/s, and the sample coefficient of variation of its
# eight threads. The document does not assign its outputs to modes; that is inferred from its text.
PUBLISHED = {
    "source": "Hyper-V 2016 and the Small Business: Switch Embedded Teaming, Altaro",
    "modes": [
        {"name": "LACP", "total_share": 0.914, "stream_cv": 0.0312, "cpu_ratio": 0.05986},
        {
            "name": "switch independent",
            "total_share": 0.938,
            "stream_cv": 0.0226,
            "cpu_ratio": 0.05257,
        },
        {"name": "SET", "total_share": 0.915, "stream_cv": 0.0738, "cpu_ratio": 0.0614},
    ],
    "retransmits": 0,
}


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 2,
    vms: int = 1,
    uplink_mbps: int = 100,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
    lag_hash: str = "mac",
) -> LayoutGraph:
    """The layout's graph; the load goes from the first host's VMs to the second's."""
    graph = networkx.Graph()
    graph.add_node("upstream", role=LayoutRole.UPSTREAM_SWITCH, lag_hash=lag_hash)
    servers = layout_parts.add_two_servers(graph, "upstream", uplinks, uplink_mbps, mtu=mtu)
    senders, receivers = (
        layout_parts.add_vms(
            graph,
            server,
            vms,
            first_number=1 + index * vms,
            network=f"10.1.{index}",
            first_ofport=10 * uplinks,
            mtu=mtu,
            vlan=vlan,
        )
        for index, server in enumerate(servers)
    )
    return LayoutGraph(NAME, graph, PUBLISHED, senders, receivers)


class SetVsLbfoTopo(LayoutTopo):
    """The layout for `mn --topo set_vs_lbfo`."""

    def build(
        self,
        prefix: str = "set-",
        team: str = "bond",
        datapath: str = "auto",
        lag_hash: str = "mac",
        **parameters: int,
    ) -> None:
        self.build_named(layout(lag_hash=lag_hash, **parameters), prefix, team, datapath)


topos = {NAME: SetVsLbfoTopo}
