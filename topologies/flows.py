"""The layout `flows`: one server with two uplinks, and eight VMs of unequal popularity.

No document describes it. Clients request data from the VMs, in sizes that were published for web search
(Alizadeh et al., DCTCP, 2010) and for data mining (Greenberg et al., VL2, 2009). Sizes are a tenth of
those, and links a twentieth of gigabit links, so that every time is twice that of a gigabit network.
Teams differ in how long each request takes.

    mn --custom /path/to/topologies/flows.py --topo flows --test pingall

starts it from any directory, with an active-backup bond as the team. All parameters are optional:

    --topo flows,uplinks=2,vms=4,clients=1,uplink_mbps=100,mtu=9000,vlan=7

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

topos = topos_of("flows")
