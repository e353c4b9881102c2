"""The parts of layouts: uplinks, cables, vNICs, clients.

Each method of a draft adds one kind of node or edge to a layout's graph. The Mininet network uses
these attributes:

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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from topologies.graph.layout import Layout, Role

STANDARD_MTU = 1500
# The overhead of a tunnel: an outer IPv6 header, UDP, Geneve with some options, and Ethernet.
ENCAPSULATION_BYTES = 100

# The hashes of an upstream switch's LAG (by source MAC, or by flow), and Open vSwitch's bond modes
# for them.
LAG_HASHES = {"mac": "balance-slb", "flow": "balance-tcp"}

# The ranges of the layouts' parameters. 0 means "none" where it is allowed.
RANGES = {
    **dict.fromkeys(("uplinks", "fast_uplinks", "slow_uplinks", "odd_uplink"), (1, 8)),
    **dict.fromkeys(("uplink_mbps", "slow_mbps", "trunk_mbps"), (1, 10_000)),
    **dict.fromkeys(
        ("vlan", "vm_vlan", "management_vlan", "migration_vlan", "odd_vlan"), (0, 4094)
    ),
    "clients": (1, 99),
    "endpoints": (1, 4),
    "mtu": (576, 9216),
    "odd_mtu": (0, 9216),
    "switches": (2, 8),
    "virtual_switches": (0, 2),
    "vms": (1, 200),
    "vnics_per_vm": (1, 9),
}
# The tunnels of overlays, by the type of their interfaces in Open vSwitch.
ENCAPSULATIONS = ("geneve", "vxlan")
CHOICES: dict[str, Collection[str]] = {"lag_hash": LAG_HASHES, "encapsulation": ENCAPSULATIONS}


def require_allowed(name: str, value: object) -> None:
    """Check the value of a layout's parameter.

    Raises:
        ValueError: it is not allowed.
    """
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(f"{name} is {value}; expected {' | '.join(CHOICES[name])}")
    if name in RANGES:
        low, high = RANGES[name]
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} is {value}; expected a whole number from {low} to {high}")


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A tunnel to the other host, and the endpoint on this one that it starts from.

    Attributes:
        host: the number of this host.
        number: the number of the endpoint, of its subnet, and of the virtual network in the tunnel.
        ofport: the endpoint's port number at the server's bridge.
    """

    host: int
    number: int
    ofport: int

    @property
    def endpoint(self) -> str:
        """The endpoint's interface, an internal port of the server's bridge."""
        return f"s{self.host}-ep{self.number}"

    @property
    def tunnel(self) -> str:
        """The tunnel's interface on the virtual switch."""
        return f"s{self.host}-tun{self.number}"

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


class Draft:
    """A layout that is being built. `mtu` and `vlan` are the defaults of its nodes."""

    def __init__(self, name: str, *, mtu: int = STANDARD_MTU, vlan: int = 0) -> None:
        self.name, self.mtu, self.vlan = name, mtu, vlan
        self.graph = nx.Graph()
        self._vms = 0

    def layout(self, published: Mapping[str, Any] | None = None, *ends: Sequence[str]) -> Layout:
        """The finished layout; `ends` are the senders and the receivers of its load."""
        return Layout(self.name, self.graph, published or {}, *map(tuple, ends))

    def switches(self, *names: str, role: Role = Role.UPSTREAM_SWITCH, **attributes: str) -> None:
        """Add switches."""
        self.graph.add_nodes_from(names, role=role, **attributes)

    def uplinks(
        self, server: str, switches: Sequence[str], speeds_mbps: Sequence[int], number: int = 0
    ) -> None:
        """Add a server's uplinks. The switches take turns.

        `number`: which one of several servers it is; the names of their uplinks have it.
        """
        for place, mbps in enumerate(speeds_mbps, start=1):
            uplink = self._uplink(server, number, place)
            self.graph.add_edge(server, uplink, capacity=mbps * 10**6)
            switch = switches[(place - 1) % len(switches)]
            self.graph.add_edge(uplink, switch, capacity=mbps * 10**6)

    def servers(
        self, switch: str, uplinks: int, mbps: int, *, far_mbps: int = 0
    ) -> tuple[str, str]:
        """Add two servers with their uplinks to one switch. Returns their names.

        They are identical, unless the second server's uplinks have the speed `far_mbps`.
        """
        for number, limit_mbps in ((1, mbps), (2, far_mbps or mbps)):
            self.switches(f"server{number}", role=Role.SERVER_BRIDGE)
            self.uplinks(f"server{number}", [switch], [limit_mbps] * uplinks, number)
        return "server1", "server2"

    def cables(self, servers: tuple[str, str], count: int, mbps: int) -> None:
        """Connect two servers back to back: each uplink to the other server's of the same number."""
        for place in range(1, count + 1):
            ends = []
            for number, server in enumerate(servers, start=1):
                ends.append(self._uplink(server, number, place))
                self.graph.add_edge(server, ends[-1], capacity=mbps * 10**6)
            self.graph.add_edge(*ends, capacity=mbps * 10**6)

    def _uplink(self, server: str, number: int, place: int) -> str:
        uplink, interface = f"uplink{place}", f"up{place}"
        if number:
            uplink, interface = f"{server}-{uplink}", f"s{number}-{interface}"
        self.graph.add_node(
            uplink, role=Role.UPLINK, interface=interface, ofport=place, mtu=self.mtu
        )
        return uplink

    def join(
        self,
        switch: str,
        other: str,
        interfaces: tuple[str, str],
        *,
        mbps: int = 0,
        ofport: int | None = None,
    ) -> None:
        """Connect two switches by a link that is not an uplink.

        `ofport` is the first switch's port number. Without `mbps` the link has no speed limit.
        """
        capacity = {"capacity": mbps * 10**6} if mbps else {}
        named = dict(zip((switch, other), interfaces, strict=True))
        ofports = {} if ofport is None else {switch: ofport}
        self.graph.add_edge(
            switch, other, interfaces=named, ofports=ofports, mtu=self.mtu, **capacity
        )

    def tunnels(
        self, server: str, switch: str, count: int, *, host: int, ofport: int, encapsulation: str
    ) -> None:
        """Let a virtual switch send through tunnels, whose frames enter a server's bridge at endpoints.

        There is no link between the two bridges. Each tunnel has an endpoint of its own, the first one with
        the port number `ofport`. `host`: which one of the two hosts it is.
        """
        made = tuple(Tunnel(host, number + 1, ofport + number) for number in range(count))
        self.graph.add_edge(server, switch, tunnels=made, encapsulation=encapsulation, mtu=self.mtu)

    def vnic(
        self,
        owner: str,
        switch: str,
        *,
        address: str,
        ofport: int,
        role: Role = Role.VM,
        index: int = 1,
        mtu: int = 0,
        vlan: int | None = None,
        loaded: bool = True,
        home: str = "",
    ) -> None:
        """Add a vNIC to a VM or a host's stack. The first vNIC also adds its owner."""
        vlan = self.vlan if vlan is None else vlan
        self.graph.add_node(owner, role=role)
        vnic = f"{owner}-vnic{index}"
        self.graph.add_node(
            vnic,
            role=Role.VNIC,
            interface=f"{owner}-{index}",
            address=address,
            mtu=mtu or self.mtu,
            loaded=loaded,
            ofport=ofport,
            **({"vlan": vlan} if vlan else {}),
            **({"home": home} if home else {}),
        )
        self.graph.add_edge(owner, vnic)
        self.graph.add_edge(vnic, switch)

    def vms(
        self,
        switch: str,
        count: int,
        *,
        network: str,
        first_ofport: int,
        vlan: int | None = None,
        loaded: bool = True,
        homes: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Add VMs with one vNIC each; addresses begin at `network`.1. Returns their names.

        `homes`: the uplink of each VM in manual placement; empty: placement by equal blocks.
        """
        names = tuple(f"vm{self._vms + number}" for number in range(1, count + 1))
        self._vms += count
        for index, name in enumerate(names):
            self.vnic(
                name,
                switch,
                address=f"{network}.{index + 1}/16",
                ofport=first_ofport + index,
                vlan=vlan,
                loaded=loaded,
                home=homes[index] if homes else "",
            )
        return names

    def clients(self, switch: str, count: int, *, network: str) -> None:
        """Add clients to an upstream switch, with links without a speed limit."""
        for number in range(1, count + 1):
            client, address = f"client{number}", f"{network}.{number}/16"
            self.graph.add_node(
                client,
                role=Role.CLIENT,
                interface=client,
                address=address,
                mtu=self.mtu,
                **({"vlan": self.vlan} if self.vlan else {}),
            )
            self.graph.add_edge(client, switch)


def one_server(
    draft: Draft, speeds_mbps: Sequence[int], vms: int, clients: int, homes: Sequence[str] = ()
) -> Layout:
    """A layout of one server with VMs, whose uplinks and clients are at one upstream switch.

    VMs are `vm1`, `vm2`, ..., clients `client1`, ..., and uplinks `uplink1`, .... Policies that
    place by port number put VMs on the uplinks in turn, `vm1` on `uplink1`. `homes`: the uplink of
    each VM in manual placement; empty: placement by equal blocks.
    """
    draft.switches("server", role=Role.SERVER_BRIDGE)
    draft.switches("upstream")
    draft.uplinks("server", ["upstream"], speeds_mbps)
    # A multiple of the number of uplinks, and above their own port numbers.
    first_ofport = 10 * len(speeds_mbps)
    draft.vms("server", vms, network="10.1.0", first_ofport=first_ofport, homes=homes)
    draft.clients("upstream", clients, network="10.1.1")
    return draft.layout()
