"""Plain tunnels of Open vSwitch by the documents' recipes, without OVN: one endpoint a host, and two."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from tests import documents
from tests.switch import datapath
from tests.switch.bed import Upstream
from tests.switch.ovn.cloud import Cloud, Network
from tests.switch.ovn.host import EXTERNAL, INTEGRATION, UPLINKS, Host
from tests.switch.ovn.overlays import ENDPOINTS, endpoint
from tests.switch.ovn.talk import each_once
from tests.switch.waiting import wait_until

# The VLANs of the recipe for two endpoints, each of which has a tunnel of its own.
VLANS = (10, 20)
PPS, FRAMES = 100, 200
ONE, TWO = ("endpoint", "endpoint-plain"), ("endpoints", "endpoints-plain")

pytestmark = pytest.mark.skipif(datapath.NAME != "userspace", reason="several switches")


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest, tor: Upstream) -> Iterator[Cloud]:
    """Two hosts whose endpoints and tunnels are typed as the documents say. OVN runs on neither."""
    setup, tunnels = request.param
    with Cloud(tor) as made:
        made.networks = [Network(f"vlan{vlan}", number) for number, vlan in enumerate(VLANS, 1)]
        for host in made.hosts:
            host.ovs.vsctl(
                *("add-br", INTEGRATION, "--", "set", "bridge", INTEGRATION, datapath.SETTING)
            )
            host.start_service()
            host.attach("--policy", "originating-port")
            for label in (setup, tunnels):
                # The other block with the label of the setup is OVN's.
                block, *_ = documents.labelled(label)
                host.type(block, addresses(host))
            for network, vlan in zip(made.networks, VLANS, strict=True):
                start_vm(host, network, vlan)
        yield made


def addresses(host: Host) -> dict[str, str]:
    """What the documents' addresses stand for on this host: its own, and those of the other one."""
    own = {ENDPOINTS[n]: endpoint(host, n) for n in range(2)}
    other = 3 - host.number
    others = {f"{ip.removesuffix('11')}21": f"{ip.removesuffix('11')}{other}1" for ip in ENDPOINTS}
    return {**own, **others}


def start_vm(host: Host, network: Network, vlan: int) -> None:
    name = f"{network.name}-{host.number}"
    mac = f"02:0b:00:00:{network.number:02x}:{host.number:02x}"
    ip = f"10.{network.number}.{host.number}.1"
    vm = host.start_vm(name, mac, f"{ip}/16", network.gateway)
    network.vms.append(vm)
    host.ovs.vsctl("set", "port", vm.port, f"tag={vlan}")


@pytest.mark.parametrize(
    ("cloud", "count"), [(ONE, 1), (TWO, 2)], ids=["one", "two"], indirect=["cloud"]
)
def test_tunnels_by_the_recipe_carry_everything_once(cloud: Cloud, count: int) -> None:
    for host in cloud.hosts:
        own = {endpoint(host, number) for number in range(count)}
        story = f"{host} shows {own} on {count} uplinks"
        wait_until(functools.partial(shows, host, own, count), story)
    sent = sent_while_everything_arrives_once(cloud)
    if count == len(UPLINKS):
        assert min(sent.values()) > 0.4 * sum(sent.values()), sent


def sent_while_everything_arrives_once(cloud: Cloud) -> dict[str, int]:
    """What the first host sends by each uplink, in bytes, while both VMs of each network talk."""
    pairs = [(one, to) for one, to in (network.vms for network in cloud.networks)]
    ways = [*pairs, *((to, one) for one, to in pairs)]
    first = cloud.hosts[0]
    with each_once(cloud, ways, PPS, FRAMES):
        before = first.sent_bytes()
    return {name: now - before[name] for name, now in first.sent_bytes().items()}


def shows(host: Host, addresses: set[str], uplinks: int) -> bool:
    """Whether these are its endpoints, and no others, and are on so many uplinks."""
    found = shown(host)
    used = {*found.values()}
    return found.keys() == addresses and all(used) and len(used) == uplinks


def shown(host: Host) -> dict[str, str]:
    """The uplink of each endpoint, by address."""
    with host.entered():
        ports = host.service.show_json(EXTERNAL)["ports"]
    return {
        address: port["uplink"]
        for port in ports
        for address in port.get("endpoint", {}).get("addresses", ())
    }
