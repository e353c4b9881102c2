"""The layout `converged`: two hosts, each with one team for its own traffic and its VMs.

It reproduces "Hyper-V Virtual Machine Converged Networking Performance" (Nutanix, 2014). Each host
has an LBFO team of two 10 GbE uplinks, and an external virtual switch with the vNICs of the host and
of its VMs. IOmeter runs between the vNICs of two VMs. The layout is not scaled down: uplinks of
10 000 Mbit/s are not shaped, so the CPU is the limit, as in the document. Only the ratio of jumbo
frames to standard frames is comparable.

    mn --custom /path/to/topologies/converged.py --topo converged

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo converged,uplinks=2,vms=2,uplink_mbps=100,mtu=9000
    --topo converged,management_vlan=10,migration_vlan=20,vm_vlan=30
    --topo converged,mtu=9000,odd_mtu=1500
    --topo converged,odd_vlan=99,odd_uplink=2

Drivers call an MTU of 9000 "9014". `vms` is the number of VMs of each host. Each host's own stack has
a vNIC for management and one for live migration. A VLAN of 0 leaves that network untagged, so only
addresses separate the networks. `odd_mtu` and `odd_vlan` are the faults that the live migration
articles describe: the switch port of one of the second host's uplinks has a different MTU or VLAN
than the others.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("converged")
