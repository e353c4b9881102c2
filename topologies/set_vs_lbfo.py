"""The layout `set_vs_lbfo`: two identical hosts, each with a team of two uplinks and a VM.

It reproduces "Hyper-V 2016 and the Small Business: Switch Embedded Teaming" (Altaro, 2016). Each host
has two 1 GbE uplinks, here scaled down to 100 Mbit/s, and one VM. NTttcp sends eight streams from one VM
to the other. Results are comparable as shares of the link speed.

    mn --custom /path/to/topologies/set_vs_lbfo.py --topo set_vs_lbfo --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo set_vs_lbfo,uplinks=4,vms=2,uplink_mbps=50,lag_hash=flow,mtu=9000,vlan=7

`vms` is the number of VMs of each host, and `vlan` their access VLAN. With `team=lacp`, the switch
between the hosts has a LAG to each host, and `lag_hash` selects its hash: `mac` or `flow`. The default
is `mac`, which we infer from the published totals: one uplink can carry them. The other forms of a team
are `team=balance-slb`, `team=split`, and `team=plain`, which is for `ovs-lbt attach`.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("set_vs_lbfo")
