"""The layout `overlay`: two hosts whose VMs talk through tunnels over both uplinks.

It has the shape of hosts under OVN, OpenStack or Kubernetes. The VMs of a host are on an integration bridge
of their own. What they send to the other host leaves in Geneve or VXLAN, from an internal port of the bridge
with the team: the tunnel endpoint. So the team sees one address for each endpoint, whatever the number of
VMs.

    mn --custom /path/to/topologies/overlay.py --topo overlay --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo overlay,uplinks=2,vms=8,endpoints=2,uplink_mbps=50,mtu=1500,encapsulation=vxlan

With several endpoints, each has a subnet of its own, because Open vSwitch's userspace datapath selects the
endpoint by the destination of the tunnel. The VMs of both hosts take turns: each endpoint carries a virtual
network of its own. `mtu` is the one of the uplinks; the VMs' is 100 bytes smaller. `far_mbps` is what each
uplink of the second host carries, if that is not `uplink_mbps`.

Both hosts are in one Open vSwitch, whose routes tell them apart by the packet mark (`egress_pkt_mark`).
The kernel's datapath would deliver such tunnels on the spot, so this layout needs the userspace datapath.
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
from topologies.network import switches as layout_switches  # noqa: E402
from topologies.network.mininet_topo import LayoutTopo  # noqa: E402

NAME = "overlay"


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 2,
    vms: int = 8,
    endpoints: int = 2,
    uplink_mbps: int = 50,
    mtu: int = layout_parts.STANDARD_MTU,
    encapsulation: str = "geneve",
    far_mbps: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the first host's VMs to the second's, and back."""
    graph = networkx.Graph()
    graph.add_node("upstream", role=LayoutRole.UPSTREAM_SWITCH)
    servers = layout_parts.add_two_servers(
        graph, "upstream", uplinks, uplink_mbps, far_mbps=far_mbps, mtu=mtu
    )
    owners: list[tuple[str, ...]] = []
    for number, server in enumerate(servers, start=1):
        bridge = f"vswitch{number}"
        graph.add_node(bridge, role=LayoutRole.VIRTUAL_SWITCH)
        layout_parts.join_by_tunnels(
            graph,
            server,
            bridge,
            layout_parts.tunnels(number, endpoints, first_ofport=10 * uplinks),
            encapsulation=encapsulation,
            mtu=mtu,
        )
        names = tuple(f"vm{(number - 1) * vms + index}" for index in range(1, vms + 1))
        for index, name in enumerate(names):
            network = index % endpoints + 1
            layout_parts.add_vnic(
                graph,
                name,
                bridge,
                address=f"10.{network}.{number}.{index + 1}/16",
                ofport=10 * endpoints + index,
                mtu=mtu - layout_parts.ENCAPSULATION_BYTES,
                vlan=network,
            )
        owners.append(names)
    return LayoutGraph(NAME, graph, senders=owners[0], receivers=owners[1])


class OverlayTopo(LayoutTopo):
    """The layout for `mn --topo overlay`."""

    def build(
        self,
        prefix: str = "ovl-",
        team: str = "bond",
        datapath: str = "auto",
        encapsulation: str = "geneve",
        **parameters: int,
    ) -> None:
        """Add the layout's nodes and links.

        Raises:
            ValueError: as `build_named`; or the datapath is the kernel's.
        """
        if layout_switches.usable_datapath(datapath) == "kernel" and datapath != "auto":
            raise ValueError(f"datapath: {datapath} -> userspace, as both hosts share a namespace")
        graph = layout(encapsulation=encapsulation, **parameters)
        self.build_named(graph, prefix, team, "userspace")


topos = {NAME: OverlayTopo}
