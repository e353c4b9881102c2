"""OVN's tunnels between two endpoints of each host in one network, by the documents' recipe.

Since 24.03, OVN makes tunnels from each endpoint of a host to each of another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests import documents
from tests.switch import datapath
from tests.switch.bed import Upstream
from tests.switch.ovn.central import TUNNELS_OF_EACH_ENDPOINT, version
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import UPLINKS
from tests.switch.ovn.overlays import ENDPOINTS, VM_PORT
from tests.switch.ovn.talk import each_once
from tests.switch.test_endpoints_in_one_network import (
    addresses,
    endpoints,
    wait_until_endpoints_are_apart,
)
from tests.switch.test_ovn_plain_tunnels import shown

PPS, FRAME_BYTES, FRAMES = 100, 1000, 100

pytestmark = pytest.mark.skipif(
    datapath.NAME != "kernel" or version() < TUNNELS_OF_EACH_ENDPOINT,
    reason="for the kernel's datapath and OVN 24.03 or later",
)


@pytest.fixture(scope="module")
def cloud(tor: Upstream) -> Iterator[Cloud]:
    """Two hosts, set up as the documents say. Each has two VMs in one network, by an endpoint each."""
    with Cloud(tor) as made:
        network = made.add_network("red")
        for host in made.hosts:
            host.start_service()
            host.attach("--policy", "originating-port")
            (setup,), (of_vm,) = map(documents.labelled, ("endpoints-one-network", "endpoints-vm"))
            host.type(setup, addresses(host))
            host.join(made.central, ovn_encap_ip=",".join(endpoints(host)))
            for address in endpoints(host):
                vm = made.start_vm(host, network)
                host.type(of_vm, {VM_PORT: vm.port, ENDPOINTS[1]: address})
        made.settle()
        yield made


def test_each_vm_of_ovn_sends_and_receives_by_its_endpoint(cloud: Cloud) -> None:
    """Also if it talks to a VM whose endpoint is the other one."""
    wait_until_endpoints_are_apart(cloud)
    first, second = cloud.hosts
    for one, to in itertools.product(first.vms, second.vms):
        with each_once(cloud, [(one, to), (to, one)], PPS, FRAMES, FRAME_BYTES):
            before = [(host.sent_bytes(), host.received_bytes()) for host in cloud.hosts]
        after = [(host.sent_bytes(), host.received_bytes()) for host in cloud.hosts]
        for host, vm, counts in zip(
            cloud.hosts, (one, to), zip(before, after, strict=True), strict=True
        ):
            used = shown(host)[endpoints(host)[host.vms.index(vm)]]
            for was, now in zip(*counts, strict=True):
                carried = {name: now[name] - was[name] for name in UPLINKS}
                assert carried[used] > 0.9 * sum(carried.values()), (host, vm, carried)
