"""Which ports Open vSwitch sends tunnels by."""

from __future__ import annotations

import pytest

from controller.config.rows import BridgeRow, Endpoint, Ovn, PortRow
from tests.unit.rows import marked, port, tunnel

ADDRESSES = {
    "br-ex": ("192.0.2.1", "2001:db8::1"),
    "tep1": ("192.0.2.2",),
    "eth9": ("198.51.100.9",),
}


def integration(*ports: PortRow) -> BridgeRow:
    return BridgeRow("br-int", ports)


def peers(*tunnels: PortRow) -> dict[str, tuple[tuple[str, str], ...]]:
    """The other ends of these tunnels, by the port of br-ex that sends them."""
    rows = [integration(*tunnels), BridgeRow("br-ex", (port("br-ex", 65534), port("tep1", 9)))]
    found = marked(rows, None, ADDRESSES).rows["br-ex"].interfaces
    return {one.name: one.tunnel_peers for one in found if one.tunnel_peers}


def endpoint(*addresses: str, kinds: tuple[str, ...] = ("geneve",)) -> Endpoint:
    """An endpoint of tunnels of br-int."""
    return Endpoint(addresses, kinds, ("br-int",))


BR_EX = endpoint("192.0.2.1", "2001:db8::1")
BOTH = [tunnel("g1", local_ip="2001:DB8:0::1"), tunnel("v1", "vxlan", local_ip="192.0.2.1")]
PORT_OF: dict[str, tuple[list[PortRow], dict[str, Endpoint]]] = {
    "local_ip, whatever the route": (
        [tunnel("g1", local_ip="192.0.2.2", device="br-ex")],
        {"tep1": endpoint("192.0.2.2")},
    ),
    "no local_ip": ([tunnel("g1", device="br-ex")], {"br-ex": BR_EX}),
    "local_ip=flow": ([tunnel("g1", local_ip="flow", device="br-ex")], {"br-ex": BR_EX}),
    "several kinds, and notations of an address": (
        *(BOTH, {"br-ex": endpoint("192.0.2.1", "2001:db8::1", kinds=("geneve", "vxlan"))}),
    ),
    "address of another host": (
        [tunnel("g1", local_ip="203.0.113.1", device="br-other")],
        {"br-other": endpoint("203.0.113.1")},
    ),
    "device without addresses": ([tunnel("g1", device="ppp0")], {"ppp0": endpoint()}),
    "neither local_ip nor device": ([tunnel("g1")], {}),
    "no tunnel": ([port("vnet0", 3)], {}),
}


@pytest.mark.parametrize(("tunnels", "found"), PORT_OF.values(), ids=PORT_OF)
def test_port_that_sends_a_tunnel(tunnels: list[PortRow], found: dict[str, Endpoint]) -> None:
    assert marked([integration(*tunnels)], None, ADDRESSES).endpoints == found


def test_endpoints_of_ovn_are_known_before_it_has_tunnels() -> None:
    ovn = Ovn(("192.0.2.1", "192.0.2.2", "203.0.113.77"))
    assert marked([], ovn, ADDRESSES).endpoints == {
        "br-ex": endpoint("192.0.2.1"),
        "tep1": endpoint("192.0.2.2"),
    }


def test_tunnels_of_several_bridges_are_those_of_one_port() -> None:
    rows = [BridgeRow(f"br{n}", (tunnel(f"g{n}", local_ip="192.0.2.2"),)) for n in (2, 1)]
    found = marked(rows, None, ADDRESSES).endpoints
    assert found["tep1"].bridges == ("br1", "br2")
    assert str(found["tep1"]) == "geneve on br1, br2, from 192.0.2.2"


REMOTE = "2001:db8::2"
Sources = dict[str, tuple[tuple[str, str], ...]]
OF_BR_EX: Sources = {"br-ex": (("2001:db8::1", REMOTE),)}
PEERS: dict[str, tuple[dict[str, str], Sources]] = {
    "by its route, in any notation": ({"device": "br-ex", "remote_ip": "2001:DB8::2"}, OF_BR_EX),
    "local_ip, whatever the route": (
        {"local_ip": "2001:db8::1", "device": "tep1", "remote_ip": REMOTE},
        OF_BR_EX,
    ),
    "IPv4": ({"device": "br-ex", "remote_ip": "192.0.2.9"}, {}),
    "remote_ip=flow": ({"device": "br-ex", "remote_ip": "flow"}, {}),
    "no address of its own": ({"device": "tep1", "remote_ip": REMOTE}, {}),
    "neither local_ip nor device": ({"remote_ip": REMOTE}, {}),
}


@pytest.mark.parametrize(("columns", "found"), PEERS.values(), ids=PEERS)
def test_peers_of_ipv6_endpoints_are_the_other_ends_of_tunnels(
    columns: dict[str, str], found: dict[str, tuple[tuple[str, str], ...]]
) -> None:
    assert peers(tunnel("g1", **columns)) == found


def test_each_peer_of_an_endpoint_is_named_once() -> None:
    remotes = ("2001:db8::3", "2001:db8::2", "2001:db8::3")
    made = (tunnel(f"g{n}", device="br-ex", remote_ip=ip) for n, ip in enumerate(remotes))
    assert peers(*made) == {
        "br-ex": (("2001:db8::1", "2001:db8::2"), ("2001:db8::1", "2001:db8::3"))
    }
