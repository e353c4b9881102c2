"""The layout `shift`: one server with two uplinks, and eight VMs whose loads change at the same time.

No document describes it. At first, all VMs offer the same load. Then the VMs of one uplink together
offer more than its capacity, and the VMs of the other offer almost nothing. Teams differ in how long
the overload lasts.

    mn --custom /path/to/topologies/shift.py --topo shift --test pingall

starts it from any directory, with an active-backup bond as the team. All parameters are optional:

    --topo shift,uplinks=2,vms=4,clients=1,uplink_mbps=50,mtu=9000,vlan=7

`vlan` is the access VLAN of VMs and clients. The other forms of the team are `team=balance-slb`,
`team=lacp`, `team=split`, and `team=plain`, which is for `ovs-lbt attach`. With `team=plain`, set
`capacity-mbps` on the uplinks, because virtual links do not report their speed.
"""

from __future__ import annotations

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.graph import parts as layout_parts  # noqa: E402
from topologies.graph.layout import Layout as LayoutGraph  # noqa: E402
from topologies.network.mininet_topo import LayoutTopo  # noqa: E402

NAME = "shift"


@layout_parts.with_checked_parameters
def layout(
    uplinks: int = 2,
    vms: int = 8,
    clients: int = 2,
    uplink_mbps: int = 100,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the VMs to the clients."""
    return layout_parts.one_server(NAME, [uplink_mbps] * uplinks, vms, clients, mtu=mtu, vlan=vlan)


class ShiftTopo(LayoutTopo):
    """The layout for `mn --topo shift`."""

    def build(
        self, prefix: str = "shf-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: ShiftTopo}
