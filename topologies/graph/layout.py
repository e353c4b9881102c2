"""A layout as a graph: its nodes, the speed of each link, and the limit.

Nodes have a `role` and what that role needs. Edges have a `capacity` in bit/s. An edge without one
is not limited by the layout, such as the access links inside a host. Both the Mininet network and
the limit of a layout are made from this graph, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import networkx as nx


class Role(StrEnum):
    """The role of a node in a layout."""

    SERVER_BRIDGE = "server bridge"  # has the team
    VIRTUAL_SWITCH = "virtual switch"  # one more switch, between a server's team and its vNICs
    UPLINK = "uplink"
    UPSTREAM_SWITCH = "upstream switch"
    VM = "vm"
    HOST = "host"  # a server's own network stack, on vNICs as a VM is
    VNIC = "vnic"
    CLIENT = "client"


SWITCHES = (Role.SERVER_BRIDGE, Role.VIRTUAL_SWITCH, Role.UPSTREAM_SWITCH)


@dataclass(frozen=True, slots=True)
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

    def address(self, node: str) -> str:
        """A node's IP address, without its prefix length."""
        return str(self.attributes(node)["address"]).partition("/")[0]

    def addresses_of(self, owner: str) -> list[str]:
        """The addresses that receive load: a client's, or those of loaded vNICs."""
        if "address" in self.attributes(owner):
            return [self.address(owner)]
        vnics = [vnic for vnic in self.vnics_of(owner) if self.attributes(vnic)["loaded"]]
        return [self.address(vnic) for vnic in vnics]

    def neighbour(self, node: str, role: Role) -> str:
        """The one neighbour of a node that has this role.

        Raises:
            ValueError: there is none, or more than one.
        """
        found = [other for other in self.graph.adj[node] if self.graph.nodes[other]["role"] == role]
        if len(found) != 1:
            raise ValueError(f"{node}: {len(found)} neighbours that are {role} -> exactly one")
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
        """The vNICs of a VM or of a host's own stack."""
        role_of = self.graph.nodes
        return [node for node in self.graph.adj[owner] if role_of[node]["role"] == Role.VNIC]

    def switch_of(self, vnic: str) -> str:
        """The switch whose port a vNIC is."""
        role_of = self.graph.nodes
        (switch,) = (node for node in self.graph.adj[vnic] if role_of[node]["role"] in SWITCHES)
        return str(switch)

    def server_of(self, vnic: str) -> str:
        """The server whose bridge a vNIC is at, directly or behind a virtual switch."""
        switch = self.switch_of(vnic)
        if self.attributes(switch)["role"] == Role.VIRTUAL_SWITCH:
            return self.neighbour(switch, Role.SERVER_BRIDGE)
        return switch

    def sending_uplinks(self) -> list[str]:
        """The uplinks of those servers that the load comes from; all, if they only receive."""
        senders = self.senders or self.nodes(Role.VM)
        servers = {self.server_of(vnic) for sender in senders for vnic in self.vnics_of(sender)}
        return [up for server in sorted(servers) for up in self.uplinks_of(server)]

    def loaded_vnics(self) -> list[str]:
        """The vNICs that carry the benchmark's load, one for each VM."""
        return [vnic for vnic in self.nodes(Role.VNIC) if self.attributes(vnic)["loaded"]]

    @property
    def limit_bps(self) -> int:
        """The most that all senders together can send to all receivers: the maximum flow.

        In one direction: links are full duplex.
        """
        senders = list(self.senders) or self.nodes(Role.VM)
        receivers = list(self.receivers) or self.nodes(Role.CLIENT)
        return maximum_flow_bps(self.graph, senders, receivers)


def maximum_flow_bps(graph: nx.Graph, sources: list[str], sinks: list[str]) -> int:
    """The most that can flow at once from all the sources to all the sinks."""
    flow = nx.DiGraph(graph)
    # Objects, because strings could be names of nodes in the layout.
    source, sink = object(), object()
    flow.add_edges_from((source, node) for node in sources)
    flow.add_edges_from((node, sink) for node in sinks)
    return int(nx.maximum_flow_value(flow, source, sink))
