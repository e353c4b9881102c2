"""The layout `spine_leaf`: two racks with two independent leaf switches each, and a spine.

This is the medium design of "I Can't Afford 10GBps For Hyper-V And Other Lies" (Working Hard In IT,
2013). Every server has an uplink to each of two switches of its rack, which no LAG spans, and a
switch-independent team. Traffic between racks crosses the spine. There are no published figures.

    mn --custom /path/to/topologies/spine_leaf.py --topo spine_leaf --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo spine_leaf,switches=2,uplinks=4,vms=2,clients=1,uplink_mbps=100,trunk_mbps=200

`switches` is the number of leaf switches of a rack, to which the uplinks are assigned in turn. `vms` is
the number of VMs of each server, and `trunk_mbps` the speed of a leaf switch's link to the spine. The
document's spine is two switches that act as one (VLT), which one switch stands for here. Clients are at
the spine. The other forms of the teams are those of `two_switches`.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("spine_leaf")
