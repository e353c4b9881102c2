"""A layout as a graph: who is there, how fast each link is, and what the limit is.

Nodes carry a `role` and what that role needs; edges carry `capacity` in bit/s, and an
edge without one is not limited by the layout (the access links inside a host). A
layout's Mininet network and its limit both come from this graph, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import networkx as nx


class Role(StrEnum):
    """What a node of a layout is."""

    SERVER_BRIDGE = "server bridge"
    UPLINK = "uplink"
    UPSTREAM_SWITCH = "upstream switch"
    VM = "vm"
    VNIC = "vnic"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Layout:
    """A named graph, with what the document that describes it has measured.

    `published` holds shares of link speed (and ratios), never absolute rates: the
    layout is scaled.
    """

    name: str
    graph: nx.Graph
    published: Mapping[str, Any] = field(default_factory=dict)

    def nodes(self, role: Role) -> list[str]:
        """The names of all nodes with this role, in the order they were added."""
        return [node for node, of_node in self.graph.nodes(data="role") if of_node == role]

    def attributes(self, node: str) -> Mapping[str, Any]:
        """Everything the graph says about a node."""
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

    def neighbour(self, node: str, role: Role) -> str:
        """The one neighbour of a node that has this role.

        Raises:
            ValueError: there is none, or more than one.
        """
        found = [other for other in self.graph.adj[node] if self.graph.nodes[other]["role"] == role]
        if len(found) != 1:
            raise ValueError(f"{node}: {len(found)} neighbours that are {role} -> exactly one")
        return str(found[0])

    def loaded_vnics(self) -> list[str]:
        """The vNICs that carry the benchmark's load, one for each VM."""
        return [vnic for vnic in self.nodes(Role.VNIC) if self.attributes(vnic)["loaded"]]

    @property
    def limit_bps(self) -> int:
        """The most that all VMs together can send to all clients: the maximum flow."""
        return maximum_flow_bps(self.graph, self.nodes(Role.VM), self.nodes(Role.CLIENT))


def maximum_flow_bps(graph: nx.Graph, sources: list[str], sinks: list[str]) -> int:
    """The most that can flow at once from all the sources to all the sinks."""
    flow = nx.DiGraph(graph)
    # Objects, so that they cannot have the name of a node of the layout.
    source, sink = object(), object()
    flow.add_edges_from((source, node) for node in sources)
    flow.add_edges_from((node, sink) for node in sinks)
    return int(nx.maximum_flow_value(flow, source, sink))
