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


@pytest.mark.parametrize(
    ("tunnels", "found"),
    [
        pytest.param(
            [tunnel("g1", local_ip="192.0.2.2", device="br-ex")],
            {"tep1": Endpoint(("192.0.2.2",), ("geneve",), ("br-int",))},
            id="by its own address, wherever the route leads",
        ),
        pytest.param(
            [tunnel("g1", device="br-ex")],
            {"br-ex": Endpoint(("192.0.2.1", "2001:db8::1"), ("geneve",), ("br-int",))},
            id="without one, by its route",
        ),
        pytest.param(
            [tunnel("g1", local_ip="flow", device="br-ex")],
            {"br-ex": Endpoint(("192.0.2.1", "2001:db8::1"), ("geneve",), ("br-int",))},
            id="flows set the address",
        ),
        pytest.param(
            [tunnel("g1", local_ip="2001:DB8:0::1"), tunnel("v1", "vxlan", local_ip="192.0.2.1")],
            {"br-ex": Endpoint(("192.0.2.1", "2001:db8::1"), ("geneve", "vxlan"), ("br-int",))},
            id="several by one port, however an address is written",
        ),
        pytest.param(
            [tunnel("g1", local_ip="203.0.113.1", device="br-other")],
            {"br-other": Endpoint(("203.0.113.1",), ("geneve",), ("br-int",))},
            id="the addresses of another host are not known",
        ),
        pytest.param(
            [tunnel("g1", device="ppp0")],
            {"ppp0": Endpoint((), ("geneve",), ("br-int",))},
            id="a device without addresses",
        ),
        pytest.param([tunnel("g1")], {}, id="nothing says from where"),
        pytest.param([port("vnet0", 3)], {}, id="no tunnel"),
    ],
)
def test_a_tunnel_leaves_by_a_port(tunnels: list[PortRow], found: dict[str, Endpoint]) -> None:
    assert marked([integration(*tunnels)], None, ADDRESSES).endpoints == found


def test_endpoints_of_ovn_are_known_before_it_has_tunnels() -> None:
    ovn = Ovn(("192.0.2.1", "192.0.2.2", "203.0.113.77"))
    assert marked([], ovn, ADDRESSES).endpoints == {
        "br-ex": Endpoint(("192.0.2.1",), ("geneve",), ("br-int",)),
        "tep1": Endpoint(("192.0.2.2",), ("geneve",), ("br-int",)),
    }


def test_tunnels_of_several_bridges_are_those_of_one_port() -> None:
    rows = [BridgeRow(f"br{n}", (tunnel(f"g{n}", local_ip="192.0.2.2"),)) for n in (2, 1)]
    found = marked(rows, None, ADDRESSES).endpoints
    assert found["tep1"].bridges == ("br1", "br2")
    assert str(found["tep1"]) == "geneve on br1, br2, from 192.0.2.2"


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        pytest.param(
            {"device": "br-ex", "remote_ip": "2001:DB8::2"},
            {"br-ex": (("2001:db8::1", "2001:db8::2"),)},
            id="by its route, however the address is written",
        ),
        pytest.param(
            {"local_ip": "2001:db8::1", "device": "tep1", "remote_ip": "2001:db8::2"},
            {"br-ex": (("2001:db8::1", "2001:db8::2"),)},
            id="by its own address, wherever the route leads",
        ),
        pytest.param({"device": "br-ex", "remote_ip": "192.0.2.9"}, {}, id="IPv4"),
        pytest.param({"device": "br-ex", "remote_ip": "flow"}, {}, id="flows set the other end"),
        pytest.param(
            {"device": "tep1", "remote_ip": "2001:db8::2"}, {}, id="no address of its own"
        ),
        pytest.param({"remote_ip": "2001:db8::2"}, {}, id="nothing says from where"),
    ],
)
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
