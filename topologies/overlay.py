"""The layout `overlay`: two hosts whose VMs talk through tunnels over both uplinks.

It has the shape of hosts under OVN, OpenStack or Kubernetes. The VMs of a host are on an integration bridge
of their own. Their traffic to the other host leaves in Geneve or VXLAN tunnels, from an internal port of the
bridge with the team: the tunnel endpoint. The team thus sees one address for each endpoint, regardless of the
number of VMs.

    mn --custom /path/to/topologies/overlay.py --topo overlay --test pingall

starts it from any directory, with active-backup bonds as teams. All parameters are optional:

    --topo overlay,uplinks=2,vms=8,endpoints=2,uplink_mbps=50,mtu=1500,encapsulation=vxlan

With several endpoints, each has a subnet of its own, because Open vSwitch's userspace datapath selects the
endpoint by the destination of the tunnel. The VMs of both hosts take turns: each endpoint carries a virtual
network of its own. `mtu` is the MTU of the uplinks; the VMs' MTU is 100 bytes smaller. `far_mbps` is the speed
of the second host's uplinks, if it differs from `uplink_mbps`.

Both hosts are in one Open vSwitch, whose routes distinguish them by the packet mark (`egress_pkt_mark`).
The kernel's datapath would deliver such tunnels locally, so this layout needs the userspace datapath.
"""

import os
import sys

# vmware_lbt.py explains this.
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath((lambda: 0).__code__.co_filename)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("overlay")
