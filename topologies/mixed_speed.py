"""The layout `mixed_speed`: one server with a fast uplink and an uplink a tenth as fast.

The team has a 10 GbE and a 1 GbE uplink, here scaled down to 100 and 10 Mbit/s. A bond's hash ignores
the difference. Policies that balance utilization take it into account. Manual placement takes the speeds
into account, but not the loads: it puts ten times as many VMs on the fast uplink. There are no published
figures.

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

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("mixed_speed")
