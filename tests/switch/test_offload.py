"""Where Open vSwitch is asked to offload, tc can take what we cache.

No hardware: the userspace datapath ignores `hw-offload` for ports that are not DPDK's. But it caches
the flows that the kernel's datapath would give to tc.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service

VLAN = 10
CONNECTIONS = 16
pytestmark = on_beds(BedSpec(PLAIN, 2, (None, None, VLAN), (None, VLAN)))

# What tc has no action or key for (`parse_netdev_flow_actions`, `test_key_and_mask` of Open vSwitch).
NO_ACTION = re.compile(r"hash\(|sample\(|userspace\(|clone\(|trunc\(|lb_output\(")
NO_KEY = re.compile(r"dp_hash\((?!0/0)|skb_priority\((?!0/0)|recirc_id\((?!0\))")
# Of a tag, tc takes the whole number or none of it.
PART_OF_A_TAG = re.compile(r"vlan\([^)]*vid=\d+/(?!0xfff\b|0x0\b)")
MOST_ACTIONS = 16


@pytest.fixture(scope="module")
def asked(bed: Bed) -> Iterator[Bed]:
    """Open vSwitch is asked to offload. It forgets that when it restarts, for other files."""
    bed.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    yield bed
    bed.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "hw-offload")
    bed.restart_switch()


@pytest.mark.parametrize("policy", ["load-based", "dynamic", "source-mac"])
def test_tc_can_take_what_the_switch_caches(asked: Bed, service: Service, policy: str) -> None:
    bed = asked
    bed.set("bridge", bed.bridge, connection_hash="multipath")
    with service.attached(bed, "--policy", policy):
        bed.introduce()
        # What was cached meanwhile has not seen what is learned by now.
        bed.ovs.run("ovs-appctl", "revalidator/purge")
        talk(bed)
        flows = [flow for flow in cached(bed) if "eth_type(0x0800)" in flow]
    assert flows
    # Only what is hashed by connection is a flow for each.
    assert (len(flows) > 2 * CONNECTIONS) is (policy == "dynamic")
    for flow in flows:
        keys, _, actions = flow.partition(" actions:")
        assert not NO_KEY.search(keys) and not PART_OF_A_TAG.search(keys), flow
        assert not NO_ACTION.search(actions), flow
        assert len(re.split(r",(?![^(]*\))", actions)) <= MOST_ACTIONS, flow


def talk(bed: Bed) -> None:
    """Connections between VMs and the hosts upstream, both ways, tagged and untagged."""
    for vm, host, number in itertools.product(bed.vms, bed.hosts, range(CONNECTIONS)):
        vlan, ports = vm.vlan or host.vlan or 0, (30000 + number, 80)
        if vm.hears(vlan) and host.hears(vlan):
            for a, b in ((vm, host), (host, vm)):
                tag = a.sends(vlan)
                frame = frames.segment(
                    a.mac, b.mac, source_ip=a.ip, destination_ip=b.ip, ports=ports, vlan=tag
                )
                bed.send(a.point, frame)
    bed.fence()


def cached(bed: Bed) -> list[str]:
    """The flows of the bridge in the datapath, with all they match."""
    ports = {*(s.port for s in bed.stations), *(uplink.name for uplink in bed.uplinks)}
    found = bed.ovs.run("ovs-appctl", "dpctl/dump-flows", "-m", "--names").splitlines()
    return [line for line in found if any(f"in_port({port})" in line for port in ports)]
