"""Two tunnel endpoints of a host in one network, by the documents' recipe.

The kernel's datapath routes what leaves an endpoint by its source address. The userspace datapath chooses
the endpoint by the destination alone, so there each has a network of its own
(`test_ovn_plain_tunnels.py`). With OVN: `test_ovn_one_network.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from tests import documents
from tests.switch import datapath
from tests.switch.bed import BALANCE_SLB, Upstream
from tests.switch.ovn.cloud import Cloud, Network
from tests.switch.ovn.host import INTEGRATION, UPLINKS, Host
from tests.switch.test_ovn_plain_tunnels import (
    VLANS,
    sent_while_everything_arrives_once,
    shows,
    start_vm,
)
from tests.switch.waiting import wait_until

# Of the network in the documents. Those of the second host end in 21 and 22.
NETWORK = "198.51.100."

pytestmark = pytest.mark.skipif(datapath.NAME != "kernel", reason="routes by source address")


@pytest.fixture(scope="module", params=[None, BALANCE_SLB], ids=["plain", BALANCE_SLB])
def cloud(request: pytest.FixtureRequest, tor: Upstream) -> Iterator[Cloud]:
    """Two hosts, set up as the documents say. OVN runs on neither."""
    with Cloud(tor, bond=request.param) as made:
        made.networks = [Network(f"vlan{vlan}", number) for number, vlan in enumerate(VLANS, 1)]
        for host in made.hosts:
            host.ovs.vsctl(
                *("add-br", INTEGRATION, "--", "set", "bridge", INTEGRATION, datapath.SETTING)
            )
            host.start_service()
            host.attach("--policy", "originating-port")
            for label in ("endpoints-one-network", "endpoints-one-network-plain"):
                (block,) = documents.labelled(label)
                host.type(block, addresses(host))
            for network, vlan in zip(made.networks, VLANS, strict=True):
                start_vm(host, network, vlan)
        yield made


def addresses(host: Host) -> dict[str, str]:
    """What the documents' addresses stand for on this host: its own, and those of the other one."""
    of = {"1": host.number, "2": 3 - host.number}
    ends = [(first, last) for first in of for last in "12"]
    return {f"{NETWORK}{first}{last}": f"{NETWORK}{of[first]}{last}" for first, last in ends}


def test_each_endpoint_sends_by_its_own_uplink(cloud: Cloud) -> None:
    wait_until_endpoints_are_apart(cloud)
    sent = sent_while_everything_arrives_once(cloud)
    assert min(sent.values()) > 0.4 * sum(sent.values()), sent


def wait_until_endpoints_are_apart(cloud: Cloud) -> None:
    for host in cloud.hosts:
        own = set(endpoints(host))
        story = f"{host} shows {own}, each on an uplink of its own"
        wait_until(functools.partial(shows, host, own, len(UPLINKS)), story)


def endpoints(host: Host) -> list[str]:
    return [f"{NETWORK}{host.number}{last}" for last in "12"]
