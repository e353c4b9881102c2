"""The datapath of the tests' switches: OVS_LBT_DATAPATH=userspace (the default) or kernel.

All Open vSwitches of a network namespace share one kernel datapath, and each removes the others'
ports from it. So a switch needs a network of its own there, or a test file a process of its own.
"""

from __future__ import annotations

import os

from tests.switch.waiting import SLOWNESS_RATIO
from topologies.network.private_ovs import DATAPATHS

NAME = os.environ.get("OVS_LBT_DATAPATH", "userspace")
# For `ovs-vsctl set bridge`.
SETTING = f"datapath_type={DATAPATHS[NAME]}"
USERSPACE_SETTING = f"datapath_type={DATAPATHS['userspace']}"
# Whether nobody else uses this kernel's module.
MODULE_IS_OURS = "OVS_LBT_GUEST" in os.environ
# When no frame has come for so long, those that were sent have arrived. In the userspace datapath one
# thread forwards and answers: a fence tells when it is done. The kernel hands the first frame of a flow
# to other threads, which no fence waits for.
QUIET_S = 0.02 if NAME == "userspace" else 0.1 * SLOWNESS_RATIO
