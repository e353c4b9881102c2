"""The layout `live_migration`: two hosts with two fast uplinks each, and VMs that migrate.

It reproduces "High performance live migration done right means using SMB Direct" and related
articles (Working Hard In IT, 2013). Each host has two 10 GbE uplinks, here scaled down to 100 Mbit/s.
The memory of VMs is copied from the first host to the second. Results are comparable as shares of the
speed of both links.

    mn --custom /path/to/topologies/live_migration.py --topo live_migration --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo live_migration,uplinks=2,vms=4,uplink_mbps=50,clients=1,mtu=9000,vlan=7

Migrations run between the hosts' own stacks, `host1` and `host2`. A stack has a vNIC for each uplink,
each in a separate network. Over a team (`team=lacp`, `team=bond`, `team=plain`), one of them has the
traffic. `team=split` means separate NICs with one vNIC each, as SMB Multichannel uses them. All VMs
start on the first host. To migrate a VM, move its port to the second host:

    ovs-vsctl del-port mig-server1 mig-vm1-1 -- add-port mig-server2 mig-vm1-1

and let it announce itself, as a hypervisor does (`vm1 ping -c 1 10.100.1.1` is enough). With
`team=split`, the bridges are mig-server11, mig-server12, mig-server21…

The upstream client observes the interruption. VMs and clients are in the access VLAN `vlan`.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("live_migration")
