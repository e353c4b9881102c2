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

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("shift")
