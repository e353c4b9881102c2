"""The parts of layouts: uplinks, cables, vNICs, clients.

Each function adds one kind of node or edge to a layout's graph. The Mininet network uses these
attributes:

    interface   the interface's name, without the prefix of the topology
    ofport      the OpenFlow port number at the server's bridge
    address     the IP address and prefix length
    mtu         the MTU at both ends of the link
    vlan        the access VLAN of the switch's port; without it, untagged or all VLANs
    loaded      whether the vNIC carries the benchmark's load
    home        the uplink of a vNIC in manual placement; without it, placement by equal blocks

`upstream_mtu` and `upstream_vlan` of an uplink are for a switch port that is configured differently
from the others.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ParamSpec

import networkx as nx

from topologies.graph.layout import Layout, Role

STANDARD_MTU = 1500
# What a tunnel takes of the MTU: an outer IPv6 header, UDP, Geneve with some options, and Ethernet.
ENCAPSULATION_BYTES = 100

# The hashes of an upstream switch's LAG (by source MAC, or by flow), and Open vSwitch's bond modes
# for them.
LAG_HASHES = {"mac": "balance-slb", "flow": "balance-tcp"}

# The ranges of the layouts' parameters. 0 means "none" where it is allowed.
RANGES = {
    "clients": (1, 99),
    "endpoints": (1, 4),
    "fast_uplinks": (1, 8),
    "management_vlan": (0, 4094),
    "migration_vlan": (0, 4094),
    "mtu": (576, 9216),
    "odd_mtu": (0, 9216),
    "odd_uplink": (1, 8),
    "odd_vlan": (0, 4094),
    "slow_mbps": (1, 10_000),
    "slow_uplinks": (1, 8),
    "switches": (2, 8),
    "trunk_mbps": (1, 10_000),
    "uplink_mbps": (1, 10_000),
    "uplinks": (1, 8),
    "virtual_switches": (0, 2),
    "vlan": (0, 4094),
    "vm_vlan": (0, 4094),
    "vms": (1, 200),
    "vnics_per_vm": (1, 9),
}
# The tunnels of overlays, by the type of their interfaces in Open vSwitch.
ENCAPSULATIONS = ("geneve", "vxlan")
CHOICES: dict[str, Collection[str]] = {"lag_hash": LAG_HASHES, "encapsulation": ENCAPSULATIONS}

P = ParamSpec("P")


def with_checked_parameters(build: Callable[P, Layout]) -> Callable[P, Layout]:
    """Decorate a layout function to check its arguments.

    The decorated function raises:
        ValueError: a parameter is unknown, or its value is not allowed.
    """
    names = list(inspect.signature(build).parameters)

    @functools.wraps(build)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Layout:
        for name, value in (dict(zip(names, args, strict=False)) | kwargs).items():
            if name not in names:
                raise ValueError(f"parameter: {name} -> {' | '.join(names)}")
            _require_allowed(name, value)
        return build(*args, **kwargs)

    return checked


def _require_allowed(name: str, value: object) -> None:
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(f"{name}: {value} -> {' | '.join(CHOICES[name])}")
    if name in RANGES:
        low, high = RANGES[name]
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name}: {value} -> a whole number from {low} to {high}")


def add_uplinks(
    graph: nx.Graph,
    server: str,
    switches: Sequence[str],
    capacities_mbps: Sequence[int],
    *,
    name: str = "uplink",
    interface: str = "up",
    mtu: int = STANDARD_MTU,
) -> None:
    """Add a server's uplinks. The switches take turns."""
    for number, mbps in enumerate(capacities_mbps, start=1):
        uplink, switch = f"{name}{number}", switches[(number - 1) % len(switches)]
        graph.add_node(
            uplink, role=Role.UPLINK, interface=f"{interface}{number}", ofport=number, mtu=mtu
        )
        graph.add_edge(server, uplink, capacity=mbps * 10**6)
        graph.add_edge(uplink, switch, capacity=mbps * 10**6)


def add_two_servers(
    graph: nx.Graph,
    switch: str,
    uplinks: int,
    mbps: int,
    *,
    far_mbps: int = 0,
    mtu: int = STANDARD_MTU,
) -> tuple[str, str]:
    """Add two servers with their uplinks to one switch. Returns their names.

    They are identical, unless the second one's uplinks carry `far_mbps`.
    """
    for number, limit_mbps in ((1, mbps), (2, far_mbps or mbps)):
        server = f"server{number}"
        graph.add_node(server, role=Role.SERVER_BRIDGE)
        add_uplinks(
            graph,
            server,
            [switch],
            [limit_mbps] * uplinks,
            name=f"{server}-uplink",
            interface=f"s{number}-up",
            mtu=mtu,
        )
    return "server1", "server2"


def add_cables(
    graph: nx.Graph, servers: tuple[str, str], count: int, mbps: int, *, mtu: int = STANDARD_MTU
) -> None:
    """Connect two servers back to back: each uplink to the other server's of the same number."""
    for number in range(1, count + 1):
        ends = []
        for index, server in enumerate(servers, start=1):
            end, interface = f"{server}-uplink{number}", f"s{index}-up{number}"
            graph.add_node(end, role=Role.UPLINK, interface=interface, ofport=number, mtu=mtu)
            graph.add_edge(server, end, capacity=mbps * 10**6)
            ends.append(end)
        graph.add_edge(*ends, capacity=mbps * 10**6)


def join_switches(
    graph: nx.Graph,
    switch: str,
    other: str,
    interfaces: tuple[str, str],
    *,
    mbps: int = 0,
    ofport: int | None = None,
    mtu: int = STANDARD_MTU,
) -> None:
    """Connect two switches by a link that is no uplink.

    `ofport` is the first switch's port number. Without `mbps` the link has no speed limit.
    """
    capacity = {"capacity": mbps * 10**6} if mbps else {}
    named = dict(zip((switch, other), interfaces, strict=True))
    ofports = {} if ofport is None else {switch: ofport}
    graph.add_edge(switch, other, interfaces=named, ofports=ofports, mtu=mtu, **capacity)


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A tunnel to the other host, and the endpoint on this one that it starts from.

    Attributes:
        host: the number of this host.
        number: the number of the endpoint, of its subnet, and of the virtual network in the tunnel.
        endpoint: the endpoint's interface, an internal port of the server's bridge.
        tunnel: the tunnel's interface on the virtual switch.
        ofport: the endpoint's port number at the server's bridge.
    """

    host: int
    number: int
    endpoint: str
    tunnel: str
    ofport: int

    def address(self, host: int) -> str:
        """A host's endpoint in this subnet."""
        return f"192.168.{self.number}.{host}"

    def mac(self, host: int) -> str:
        """The MAC address of a host's endpoint in this subnet."""
        return f"02:6f:76:00:{host:02x}:{self.number:02x}"

    @property
    def subnet(self) -> str:
        return f"192.168.{self.number}.0/24"

    @property
    def far_host(self) -> int:
        """The number of the host at the other end."""
        return 3 - self.host


def tunnels(host: int, count: int, *, first_ofport: int) -> tuple[Tunnel, ...]:
    """The tunnels of one of two hosts, each from an endpoint of its own."""
    return tuple(
        Tunnel(
            host=host,
            number=number,
            endpoint=f"s{host}-ep{number}",
            tunnel=f"s{host}-tun{number}",
            ofport=first_ofport + number - 1,
        )
        for number in range(1, count + 1)
    )


def join_by_tunnels(
    graph: nx.Graph,
    server: str,
    switch: str,
    tunnels: Sequence[Tunnel],
    *,
    encapsulation: str,
    mtu: int = STANDARD_MTU,
) -> None:
    """Let a virtual switch send through tunnels, whose frames enter a server's bridge at endpoints.

    There is no link between the two bridges.
    """
    graph.add_edge(server, switch, tunnels=tuple(tunnels), encapsulation=encapsulation, mtu=mtu)


def add_vnic(
    graph: nx.Graph,
    owner: str,
    switch: str,
    *,
    address: str,
    role: Role = Role.VM,
    index: int = 1,
    ofport: int | None = None,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
    loaded: bool = True,
    home: str = "",
) -> None:
    """Add a vNIC to a VM or a host's stack. The first vNIC also adds its owner."""
    graph.add_node(owner, role=role)
    vnic = f"{owner}-vnic{index}"
    optional = {"ofport": ofport, "vlan": vlan or None, "home": home or None}
    graph.add_node(
        vnic,
        role=Role.VNIC,
        interface=f"{owner}-{index}",
        address=address,
        mtu=mtu,
        loaded=loaded,
        **{name: value for name, value in optional.items() if value is not None},
    )
    graph.add_edge(owner, vnic)
    graph.add_edge(vnic, switch)


def add_vms(
    graph: nx.Graph,
    switch: str,
    count: int,
    *,
    network: str,
    first_ofport: int,
    first_number: int = 1,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
    loaded: bool = True,
    homes: Sequence[str] = (),
) -> tuple[str, ...]:
    """Add VMs with one vNIC each; addresses begin at `network`.1. Returns their names.

    `homes`: the uplink of each VM in manual placement; empty: placement by equal blocks.
    """
    names = tuple(f"vm{first_number + index}" for index in range(count))
    for index, name in enumerate(names):
        add_vnic(
            graph,
            name,
            switch,
            address=f"{network}.{index + 1}/16",
            ofport=first_ofport + index,
            mtu=mtu,
            vlan=vlan,
            loaded=loaded,
            home=homes[index] if homes else "",
        )
    return names


def add_clients(
    graph: nx.Graph,
    switch: str,
    count: int,
    *,
    network: str,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
) -> None:
    """Add clients to an upstream switch, with links without a speed limit."""
    for number in range(1, count + 1):
        client, address = f"client{number}", f"{network}.{number}/16"
        tagged = {"vlan": vlan} if vlan else {}
        graph.add_node(
            client, role=Role.CLIENT, interface=client, address=address, mtu=mtu, **tagged
        )
        graph.add_edge(client, switch)


def one_server(
    name: str,
    speeds_mbps: Sequence[int],
    vms: int,
    clients: int,
    *,
    mtu: int = STANDARD_MTU,
    vlan: int = 0,
    homes: Sequence[str] = (),
) -> Layout:
    """A layout of one server with VMs, whose uplinks and clients are at one upstream switch.

    `homes`: the uplink of each VM in manual placement; empty: placement by equal blocks.
    """
    graph = nx.Graph()
    graph.add_node("server", role=Role.SERVER_BRIDGE)
    graph.add_node("upstream", role=Role.UPSTREAM_SWITCH)
    add_uplinks(graph, "server", ["upstream"], speeds_mbps, mtu=mtu)
    add_vms(
        graph,
        "server",
        vms,
        network="10.1.0",
        first_ofport=10 * len(speeds_mbps),
        mtu=mtu,
        vlan=vlan,
        homes=homes,
    )
    add_clients(graph, "upstream", clients, network="10.1.1", mtu=mtu, vlan=vlan)
    return Layout(name, graph)
