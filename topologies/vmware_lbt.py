"""The layout `vmware_lbt`: one server with two uplinks and four VMs, and web clients.

It reproduces VMware's "Load-Based Teaming (LBT) Performance" (VROOM! blog, 2010). The server has two
10 GbE uplinks, here scaled down to 100 Mbit/s, and four VMs with two vNICs each. One vNIC of each VM
carries the load. Results are comparable as shares of the link speed.

    mn --custom /path/to/topologies/vmware_lbt.py --topo vmware_lbt --test pingall

starts it from any directory, with an active-backup bond as the team. `ovs-lbt bench vmware_lbt` runs
its benchmark. All parameters are optional:

    --topo vmware_lbt,uplinks=3,vms=6,vnics_per_vm=1,clients=4,uplink_mbps=50,prefix=other-

`mtu` is the MTU of all links, and `vlan` the access VLAN of VMs and clients. `datapath` is `userspace`
or `kernel`. The default is the kernel datapath if its module is loaded.

With `team=plain`, the uplinks are ordinary ports, and the bridge forwards nothing before
`ovs-lbt attach lbt-server --uplink lbt-up1 --uplink lbt-up2`. With `team=split`, each uplink has a
separate bridge. `team=balance-slb` and `team=lacp` are the other bonds of Open vSwitch; `team=lacp` has
a LAG upstream.
"""

import os
import sys

# `mn --custom` executes this file without a package, without __file__ and without the repository on
# sys.path, but the code object has the path of the file. `mn` also copies every global of this file
# over its own globals, so names must not collide.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("vmware_lbt")
