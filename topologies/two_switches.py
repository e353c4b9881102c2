"""The layout `two_switches`: one server at two independent top-of-rack switches.

This is the small design of "I Can't Afford 10GBps For Hyper-V And Other Lies" (Working Hard In IT,
2013). It has two cheap, independent switches, so that no LAG can span them, and a core switch. For this
case, Open vSwitch documents only active-backup bonds. There are no published figures.

    mn --custom /path/to/topologies/two_switches.py --topo two_switches --test pingall

starts it from any directory, with an active-backup bond as the team. All parameters are optional:

    --topo two_switches,switches=2,uplinks=4,vms=4,clients=2,uplink_mbps=50,trunk_mbps=200

Uplinks are assigned to the switches in turn. `trunk_mbps` is the speed of each switch's link to the
core, `mtu` the MTU of all links, and `vlan` the access VLAN of VMs and clients. The other forms of the
team are `team=balance-slb`, `team=split`, and `team=plain`, which is for `ovs-lbt attach`. `team=lacp`
is refused.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("two_switches")
