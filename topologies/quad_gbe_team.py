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

Back to back, only teams whose ends agree on a cable work: `team=lacp`, the default and the document's
team; `team=bond`, an active-backup bond on the same cable; and `team=split`.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("quad_gbe_team")
