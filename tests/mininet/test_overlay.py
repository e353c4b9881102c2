"""Tunnels between two hosts over our teams: what moves, failures and a dead service cost inside them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mininet.net import Mininet

from tests.switch.judging import at_most, judges_time
from tests.switch.waiting import wait_until
from topologies import layouts
from topologies.compare.run import PREFIX
from topologies.network.mininet_topo import LayoutTopo
from topologies.network.private_network import private_network, process_network
from topologies.network.private_ovs import PrivateOvs
from topologies.network.service import Service
from topologies.network.switches import TEAMS

pytestmark = pytest.mark.mininet

SERVERS = (f"{PREFIX}server1", f"{PREFIX}server2")
UPLINKS = {server: [f"{PREFIX}s{n}-up{u}" for u in (1, 2)] for n, server in enumerate(SERVERS, 1)}
PINGS, INTERVAL_S = 300, 0.01
# What a bond of Open vSwitch loses when an uplink fails, and what only an outage would cost.
AS_A_BOND, OUTAGE = 5, 150
COUNTS = re.compile(r"(\d+) packets transmitted, (\d+) received(?:, \+(\d+) duplicates)?")


class _Topo(LayoutTopo):
    """Two hosts with two endpoints each, on plain uplinks."""

    def build(self, encapsulation: str) -> None:
        graph = layouts.overlay(vms=2, uplink_mbps=10_000, encapsulation=encapsulation)
        self.build_from(graph, PREFIX, TEAMS["plain"], "userspace")


@dataclass(frozen=True, slots=True)
class Pings:
    """What became of pings between two VMs."""

    sent: int
    answered: int
    duplicates: int

    @property
    def lost(self) -> int:
        return self.sent - self.answered


class Bed:
    """Two hosts that the service teams."""

    def __init__(self, ovs: PrivateOvs, network: Any, service: Service) -> None:
        self.ovs, self.network, self.service = ovs, network, service

    @contextmanager
    def pinging(self, vm: str, address: str, count: int = PINGS) -> Iterator[SimpleNamespace]:
        """A VM pings another in the tunnel meanwhile; behind the block, what became of it."""
        words = ["ping", "-i", str(INTERVAL_S), "-c", str(count), "-W", "2", address]
        seen = SimpleNamespace(pings=None)
        process = self.network[vm].popen(words, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(50 * INTERVAL_S)  # some pings pass before whatever happens
            yield seen
            said = process.communicate(timeout=120)[0]
        finally:
            process.kill()
            process.wait()
        found = COUNTS.search(said)
        assert found, said[-500:]
        seen.pings = Pings(int(found[1]), int(found[2]), int(found[3] or 0))

    def reaches(self, vm: str, address: str) -> bool:
        return "1 received" in self.network[vm].cmd(f"ping -c 1 -W 1 {address}")

    def bindings(self, server: str) -> dict[str, str]:
        """The uplink of each endpoint of a server."""
        return {
            metric.labels["port"]: metric.labels["uplink"]
            for metric in self.service.metrics()
            if metric.name == "ovslbt_port_binding"
            and metric.labels["bridge"] == server
            and metric.value == 1
        }

    def neighbour(self, address: str) -> str:
        """The MAC address to which the second host sends the tunnels for an endpoint of the first."""
        shown = self.ovs.run("ovs-appctl", "tnl/neigh/show").splitlines()
        (found,) = (w[1] for line in shown if (w := line.split())[::2] == [address, SERVERS[1]])
        return found

    def cable(self, uplink: str, state: str) -> None:
        """Pull the cable of an uplink at its upstream end, or plug it in again."""
        far = uplink.replace(PREFIX, f"{PREFIX}sw-")
        subprocess.run(["ip", "link", "set", far, state], check=True)

    def forget(self, mac: str) -> None:
        """Have the switch upstream forget an address, as most do with those of a link that fails.

        Open vSwitch, which this one is, does not. It would learn the address again from the flows that it
        has cached, and deletes only what is static.
        """
        upstream = f"{PREFIX}upstream"
        self.ovs.run("ovs-appctl", "revalidator/purge")
        self.ovs.run("ovs-appctl", "fdb/add", upstream, upstream, "0", mac)
        self.ovs.run("ovs-appctl", "fdb/del", upstream, "0", mac)


@pytest.fixture(scope="module", params=["geneve", "vxlan"])
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with _bed(request.param, "load-based", tmp_path_factory.mktemp("overlay")) as made:
        yield made


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Endpoints whose connections use both uplinks at once."""
    with _bed("geneve", "dynamic", tmp_path_factory.mktemp("spread")) as made:
        for server in SERVERS:
            # Pings still pass when the service uses the uplink again.
            key = "external_ids:ovs-lbt-failback-delay-s=1"
            made.ovs.run("ovs-vsctl", "set", "bridge", server, key)
        peer = made.network["vm3"]
        for address in ADDRESSES:
            peer.cmd(f"ip address add {address}/16 dev {peer.defaultIntf()}")
        yield made


@contextmanager
def _bed(encapsulation: str, policy: str, directory: Path) -> Iterator[Bed]:
    log = directory / "service.log"
    with ExitStack() as resources:
        resources.enter_context(private_network())
        ovs = resources.enter_context(PrivateOvs())
        resources.enter_context(ovs.environment())
        Mininet.inited = True
        network = Mininet(_Topo(encapsulation), controller=None, build=False)
        resources.callback(network.stop)
        network.build()
        network.start()
        service = resources.enter_context(Service(ovs, log))
        for server in SERVERS:
            service.attach(server, UPLINKS[server], policy)
        found = Bed(ovs, network, service)
        wait_until(lambda: found.reaches("vm1", "10.1.2.1"), "vm1 reaches its peer")
        wait_until(lambda: found.reaches("vm2", "10.2.2.2"), "vm2 reaches its peer")
        yield found


def test_endpoints_are_units_on_both_uplinks(bed: Bed) -> None:
    for number, server in enumerate(SERVERS, start=1):
        bound = bed.bindings(server)
        used = {bound[f"{PREFIX}s{number}-ep{endpoint}"] for endpoint in (1, 2)}
        assert used == set(UPLINKS[server])


@judges_time
def test_a_failed_uplink_costs_no_more_than_under_a_bond(bed: Bed) -> None:
    home = bed.bindings(SERVERS[0])[f"{PREFIX}s1-ep1"]
    for state in ("down", "up"):
        with bed.pinging("vm1", "10.1.2.1") as seen:
            bed.cable(home, state)
        assert seen.pings.duplicates == 0
        at_most(f"{state}: lost in the tunnel", seen.pings.lost, AS_A_BOND, OUTAGE)
    wait_until(lambda: bed.bindings(SERVERS[0])[f"{PREFIX}s1-ep1"] == home, f"back on {home}")


@judges_time
def test_a_moved_endpoint_loses_nothing_and_is_heard_once(bed: Bed) -> None:
    endpoint = f"{PREFIX}s1-ep1"
    home = bed.bindings(SERVERS[0])[endpoint]
    (other,) = set(UPLINKS[SERVERS[0]]) - {home}
    for uplink in (other, home):
        with bed.pinging("vm1", "10.1.2.1") as seen:
            bed.ovs.run("ovs-appctl", "-t", "ovs-lbt", "lbt/move", endpoint, uplink)
        assert seen.pings.duplicates == 0
        at_most("lost in the tunnel", seen.pings.lost, 1, OUTAGE)
        assert bed.bindings(SERVERS[0])[endpoint] == uplink


@judges_time
def test_tunnels_and_failover_work_while_the_service_is_dead(bed: Bed) -> None:
    home = bed.bindings(SERVERS[0])[f"{PREFIX}s1-ep1"]
    with ExitStack() as sockets:
        with process_network(bed.network["vm3"].pid):
            server = sockets.enter_context(socket.create_server(("10.1.2.1", 7000)))
        with process_network(bed.network["vm1"].pid):
            client = sockets.enter_context(socket.create_connection(("10.1.2.1", 7000), 60))
        far = sockets.enter_context(server.accept()[0])
        far.settimeout(60)
        with bed.service.dead(SERVERS), bed.pinging("vm1", "10.1.2.1") as seen:
            bed.cable(home, "down")
            client.sendall(b"after the failure")
            assert far.recv(100) == b"after the failure", "the connection in the tunnel broke"
        bed.cable(home, "up")
    assert seen.pings.duplicates == 0
    at_most("lost in the tunnel", seen.pings.lost, AS_A_BOND, OUTAGE)
    wait_until(lambda: bed.reaches("vm1", "10.1.2.1"), "vm1 reaches its peer again")


# ---- spread over both uplinks --------------------------------------------------------------


OWN_ADDRESS, OWN_MAC = "192.168.1.1", "02:6f:76:00:01:01"
# Each has a connection of its own between the hosts, so that pings to some leave by each uplink.
ADDRESSES = [f"10.1.2.{number}" for number in range(101, 117)]


def answered_at(bed: Bed, address: str) -> str:
    """Where the second host sends tunnels after a ping of the first one's VM to an address.

    It takes the source of a frame for which its switch has no cached flow.
    """
    bed.ovs.run("ovs-appctl", "revalidator/purge")
    wait_until(lambda: bed.reaches("vm1", address), f"vm1 reaches {address}")
    return bed.neighbour(OWN_ADDRESS)


def off_home(bed: Bed) -> str:
    """An address of a VM to which pings leave off home: the second host answers to where they came from."""
    return _address(bed, lambda mac: mac != OWN_MAC)


def at_home(bed: Bed) -> str:
    """An address of a VM to which pings leave under the endpoint's own address."""
    return _address(bed, lambda mac: mac == OWN_MAC)


def _address(bed: Bed, suits: Callable[[str], bool]) -> str:
    """An address of a VM, by where the second host sends tunnels after a ping to it."""

    def found() -> str:
        return next((a for a in ADDRESSES if suits(answered_at(bed, a))), "")

    return wait_until(found, "pings leave by both uplinks")


def test_peers_answer_to_what_a_spread_endpoint_sends_from(spread: Bed) -> None:
    shown = json.loads(spread.ovs.run("ovs-appctl", "-t", "ovs-lbt", "lbt/show", "--json"))
    assert {one["connection_hash"]["used"] for one in shown["bridges"]} == {"dp_hash"}
    heard = {answered_at(spread, address) for address in ADDRESSES}
    assert OWN_MAC in heard
    assert len(heard) == 2, "its own address, and that of the other uplink"


@judges_time
@pytest.mark.parametrize("service", ["alive", "dead"])
@pytest.mark.parametrize("position", [0, 1], ids=["first", "second"])
def test_a_failed_uplink_of_a_spread_endpoint(spread: Bed, service: str, position: int) -> None:
    """No more is lost than under a bond, and nothing comes twice, at the failure and at the return.

    The second host sends to the address that it heard last, so something leaves under both.
    """
    failed = UPLINKS[SERVERS[0]][position]
    addresses = at_home(spread), off_home(spread)
    with ExitStack() as restored:
        if service == "dead":
            restored.enter_context(spread.service.dead(SERVERS))
        restored.callback(spread.cable, failed, "up")
        for state in ("down", "up"):
            with (
                spread.pinging("vm1", addresses[0]) as one,
                spread.pinging("vm1", addresses[1]) as two,
            ):
                spread.cable(failed, state)
            for where, pings in (("at home", one.pings), ("off home", two.pings)):
                assert pings.duplicates == 0
                what = f"{failed} {state}, service {service}: lost {where}"
                at_most(what, pings.lost, AS_A_BOND, OUTAGE)
    wait_until(lambda: spread.reaches("vm1", "10.1.2.1"), "vm1 reaches its peer again")


@judges_time
@pytest.mark.parametrize("service", ["alive", "dead"])
def test_an_address_that_nothing_leaves_under_is_reached_after_a_failure(
    spread: Bed, service: str
) -> None:
    """The service announces it. While that is dead, the switch upstream must forget where it was."""
    address = off_home(spread)
    home = spread.bindings(SERVERS[0])[f"{PREFIX}s1-ep1"]
    with ExitStack() as restored:
        if service == "dead":
            restored.enter_context(spread.service.dead(SERVERS))
        restored.callback(spread.cable, home, "up")
        with spread.pinging("vm1", address) as seen:
            spread.cable(home, "down")
            if service == "dead":
                spread.forget(OWN_MAC)
            spread.ovs.run("ovs-appctl", "tnl/neigh/set", SERVERS[1], OWN_ADDRESS, OWN_MAC)
        assert seen.pings.duplicates == 0
        at_most(f"service {service}: lost", seen.pings.lost, AS_A_BOND, OUTAGE)
    wait_until(lambda: spread.reaches("vm1", address), "vm1 reaches its peer again")


@judges_time
def test_nothing_is_lost_when_a_spread_ends_and_begins(spread: Bed) -> None:
    """Peers are told at its end; what they still send to an off-home address arrives as well."""
    for policy in ("load-based", "dynamic"):
        address = off_home(spread) if policy == "load-based" else ADDRESSES[0]
        with spread.pinging("vm1", address) as seen:
            for server in SERVERS:
                key = f"external_ids:ovs-lbt-policy={policy}"
                spread.ovs.run("ovs-vsctl", "set", "bridge", server, key)
        assert seen.pings.duplicates == 0
        at_most(f"{policy}: lost", seen.pings.lost, 1, OUTAGE)
        if policy == "load-based":
            wait_until(lambda: spread.neighbour(OWN_ADDRESS) == OWN_MAC, "the peer is told")


@judges_time
def test_a_service_that_starts_again_changes_nothing(spread: Bed) -> None:
    """Peers send to an off-home address before, while nobody is there, and after."""
    address = off_home(spread)
    with spread.pinging("vm1", address, 4 * PINGS) as seen, ExitStack() as killed:
        killed.enter_context(spread.service.dead(SERVERS))
        time.sleep(50 * INTERVAL_S)
        killed.close()
    assert seen.pings.duplicates == 0
    at_most("lost in the tunnel", seen.pings.lost, 1, OUTAGE)
