"""The layout `mixed_speed`: one server with a fast uplink and an uplink a tenth as fast.

The team has a 10 GbE and a 1 GbE uplink, here scaled down to 100 and 10 Mbit/s. A bond's hash ignores
the difference. Policies that balance utilization take it into account. Placement by hand is that of a
person who knows the speeds, but not the loads: ten times as many VMs on the fast uplink. There are no
published figures.

    mn --custom /path/to/topologies/mixed_speed.py --topo mixed_speed --test pingall

starts it from any directory, with an active-backup bond on the fast uplink as the team. All
parameters are optional:

    --topo mixed_speed,fast_uplinks=1,slow_uplinks=1,uplink_mbps=50,slow_mbps=5,vms=4

By default there are eleven VMs. With equal loads, ten VMs on the fast uplink and one on the slow
uplink give both the same utilization. Other parameters are `clients`, `mtu`, and `vlan`, the access
VLAN of VMs and clients. The other forms of the team are `team=balance-slb`, `team=lacp`, `team=split`,
and `team=plain`, which is for `ovs-lbt attach`. With `team=plain`, set `capacity-mbps` on the uplinks,
because virtual links do not report their speed.
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

NAME = "mixed_speed"


@layout_parts.with_checked_parameters
def layout(
    fast_uplinks: int = 1,
    slow_uplinks: int = 1,
    vms: int = 11,
    clients: int = 2,
    uplink_mbps: int = 100,
    slow_mbps: int = 10,
    mtu: int = layout_parts.STANDARD_MTU,
    vlan: int = 0,
) -> LayoutGraph:
    """The layout's graph; the load goes from the VMs to the clients."""
    speeds_mbps = [uplink_mbps] * fast_uplinks + [slow_mbps] * slow_uplinks
    homes = _homes(speeds_mbps, vms)
    return layout_parts.one_server(NAME, speeds_mbps, vms, clients, mtu=mtu, vlan=vlan, homes=homes)


def _homes(speeds_mbps: list[int], vms: int) -> list[str]:
    """The uplink of each VM, if their numbers are to be in proportion to the uplinks' speeds."""
    counts = [0] * len(speeds_mbps)
    homes = []
    for _ in range(vms):
        # The uplink that then has the fewest VMs for its speed; the first of several.
        place = min(range(len(counts)), key=lambda n: (counts[n] + 1) / speeds_mbps[n])
        counts[place] += 1
        homes.append(f"uplink{place + 1}")
    return homes


class MixedSpeedTopo(LayoutTopo):
    """The layout for `mn --topo mixed_speed`."""

    def build(
        self, prefix: str = "mix-", team: str = "bond", datapath: str = "auto", **parameters: int
    ) -> None:
        self.build_named(layout(**parameters), prefix, team, datapath)


topos = {NAME: MixedSpeedTopo}
