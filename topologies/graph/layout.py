"""A layout as a graph: its nodes, the speed of each link, and the limit.

Nodes have a `role` and the attributes of that role. Edges have a `capacity` in bit/s. The layout
does not limit an edge without one, such as an access link inside a host. The Mininet network and
the limit of a layout both come from this graph, so they agree.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import networkx as nx


class Role(StrEnum):
    """The role of a node in a layout."""

    SERVER_BRIDGE = "server bridge"  # has the team
    VIRTUAL_SWITCH = "virtual switch"  # one more switch, between a server's team and its vNICs
    UPLINK = "uplink"
    UPSTREAM_SWITCH = "upstream switch"
    VM = "vm"
    HOST = "host"  # a server's own network stack, which has vNICs as a VM has
    VNIC = "vnic"
    CLIENT = "client"


SWITCHES = (Role.SERVER_BRIDGE, Role.VIRTUAL_SWITCH, Role.UPSTREAM_SWITCH)


@dataclass(frozen=True)
class Layout:
    """A named graph, with the measurements of the document that describes it.

    `published` has shares of link speed and ratios, never absolute rates, because the layout is
    scaled. The load, and so the limit, is from `senders` to `receivers`; without them it is from
    all VMs to all clients.
    """

    name: str
    graph: nx.Graph
    published: Mapping[str, Any] = field(default_factory=dict)
    senders: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()

    def nodes(self, role: Role) -> list[str]:
        """The names of all nodes with this role, in the order they were added."""
        return [node for node, of_node in self.graph.nodes(data="role") if of_node == role]

    def attributes(self, node: str) -> Mapping[str, Any]:
        """All attributes of a node."""
        attributes: Mapping[str, Any] = self.graph.nodes[node]
        return attributes

    def capacity_bps(self, uplink: str) -> int:
        """An uplink's speed in one direction."""
        return int(
            min(edge["capacity"] for edge in self.graph.adj[uplink].values() if "capacity" in edge)
        )

    @cached_property
    def capacities_bps(self) -> dict[str, int]:
        """Each uplink's speed in one direction."""
        return {uplink: self.capacity_bps(uplink) for uplink in self.nodes(Role.UPLINK)}

    def address(self, node: str) -> str:
        """A node's IP address, without its prefix length."""
        return str(self.attributes(node)["address"]).partition("/")[0]

    def addresses_of(self, owner: str) -> list[str]:
        """The addresses that receive load: a client's address, or those of loaded vNICs."""
        if "address" in self.attributes(owner):
            return [self.address(owner)]
        vnics = [vnic for vnic in self.vnics_of(owner) if self.attributes(vnic)["loaded"]]
        return [self.address(vnic) for vnic in vnics]

    def shares_network(self, owner: str, address: str) -> bool:
        """Whether a VM or a host's stack has a vNIC in the network of an address."""
        networks = (
            ipaddress.ip_interface(self.attributes(vnic)["address"]).network
            for vnic in self.vnics_of(owner)
        )
        return any(ipaddress.ip_address(address) in network for network in networks)

    def neighbour(self, node: str, role: Role) -> str:
        """The one neighbour of a node that has this role.

        Raises:
            ValueError: no neighbour has the role, or several have it.
        """
        found = [other for other in self.graph.adj[node] if self.graph.nodes[other]["role"] == role]
        if len(found) != 1:
            raise ValueError(f"{node} has {len(found)} neighbours of role {role}; expected one")
        return str(found[0])

    def uplinks_of(self, server: str) -> list[str]:
        """One server's uplinks, in failover order."""
        return [uplink for uplink in self.nodes(Role.UPLINK) if self.graph.has_edge(server, uplink)]

    def far_end(self, uplink: str) -> str:
        """The other end of an uplink's cable: an upstream switch, or another server's uplink."""
        server = self.neighbour(uplink, Role.SERVER_BRIDGE)
        (other,) = set(self.graph.adj[uplink]) - {server}
        return str(other)

    def vnics_of(self, owner: str) -> list[str]:
        """The vNICs of a VM or of a host's stack."""
        role_of = self.graph.nodes
        return [node for node in self.graph.adj[owner] if role_of[node]["role"] == Role.VNIC]

    def switch_of(self, vnic: str) -> str:
        """The switch that a vNIC is connected to."""
        role_of = self.graph.nodes
        (switch,) = (node for node in self.graph.adj[vnic] if role_of[node]["role"] in SWITCHES)
        return str(switch)

    def server_of(self, vnic: str) -> str:
        """The server whose bridge has a vNIC, directly or behind a virtual switch."""
        switch = self.switch_of(vnic)
        if self.attributes(switch)["role"] == Role.VIRTUAL_SWITCH:
            return self.neighbour(switch, Role.SERVER_BRIDGE)
        return switch

    def path_targets(self, server: str) -> list[str]:
        """A host beyond a server's uplinks in each of its VLANs, as `ADDRESS%VLAN`, or untagged `ADDRESS`."""
        here = [vnic for vnic in self.nodes(Role.VNIC) if self.server_of(vnic) == server]
        there = [vnic for vnic in self.nodes(Role.VNIC) if self.server_of(vnic) != server]
        beyond: dict[int, str] = {}
        for node in (*there, *self.nodes(Role.CLIENT)):
            beyond.setdefault(self._vlan(node), self.address(node))
        vlans = sorted({self._vlan(vnic) for vnic in here} & beyond.keys())
        return [f"{beyond[vlan]}%{vlan}" if vlan else beyond[vlan] for vlan in vlans]

    def _vlan(self, node: str) -> int:
        """A node's VLAN; 0 if it is untagged."""
        return int(self.attributes(node).get("vlan") or 0)

    def sending_uplinks(self) -> list[str]:
        """The uplinks of the servers that send the load."""
        senders = self.senders or self.nodes(Role.VM)
        servers = {self.server_of(vnic) for sender in senders for vnic in self.vnics_of(sender)}
        return [up for server in sorted(servers) for up in self.uplinks_of(server)]

    def loaded_vnics(self) -> list[str]:
        """The vNICs that carry the benchmark's load, one for each VM."""
        return [vnic for vnic in self.nodes(Role.VNIC) if self.attributes(vnic)["loaded"]]

    @cached_property
    def limit_bps(self) -> int:
        """The maximum flow from all senders to all receivers.

        It counts one direction, because links are full duplex.
        """
        senders = list(self.senders) or self.nodes(Role.VM)
        receivers = list(self.receivers) or self.nodes(Role.CLIENT)
        return maximum_flow_bps(self.graph, senders, receivers)


def maximum_flow_bps(graph: nx.Graph, sources: list[str], sinks: list[str]) -> int:
    """The maximum flow from all sources together to all sinks."""
    flow = nx.DiGraph(graph)
    # Objects, because strings could be names of nodes in the layout.
    source, sink = object(), object()
    flow.add_edges_from((source, node) for node in sources)
    flow.add_edges_from((node, sink) for node in sinks)
    return int(nx.maximum_flow_value(flow, source, sink))
