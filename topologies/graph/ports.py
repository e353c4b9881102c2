"""The ports of a layout's switches and the names of their interfaces."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.graph.layout import Layout, Role

# The kernel's limit (IFNAMSIZ without its terminator).
LONGEST_INTERFACE_NAME = 15
# The name of the team of a server's uplinks. A LAG upstream has the name of the server.
TEAM = "team"


@dataclass(frozen=True, slots=True)
class Port:
    """The properties of a switch port.

    Attributes:
        team: the name of the port's team; empty for a port outside of teams.
        rate_bps: the limit of the outgoing rate; None sets no limit.
        vlan: the access VLAN; a port with None carries untagged frames and all VLANs.
        home: the uplink's port in manual placement; empty selects placement by equal blocks.
    """

    mtu: int
    team: str = ""
    rate_bps: int | None = None
    vlan: int | None = None
    home: str = ""


def checked_interface_name(name: str, spare: int = 0) -> str:
    """Return the name if it leaves `spare` characters of an interface's name.

    Raises:
        ValueError: the name is too long.
    """
    longest = LONGEST_INTERFACE_NAME - spare
    if len(name) > longest:
        raise ValueError(f"the name {name} has {len(name)} characters; expected at most {longest}")
    return name


def own_interface(layout: Layout, prefix: str, node: str) -> str:
    """The server's interface of an uplink or a vNIC."""
    return checked_interface_name(f"{prefix}{layout.attributes(node)['interface']}")


def upstream_interface(layout: Layout, prefix: str, node: str) -> str:
    """The upstream switch's interface to an uplink or a client."""
    return checked_interface_name(f"{prefix}sw-{layout.attributes(node)['interface']}")


def joining_interface(layout: Layout, prefix: str, switch: str, other: str) -> str:
    """The interface of a switch to another switch."""
    interface = layout.graph.edges[switch, other]["interfaces"][switch]
    return checked_interface_name(f"{prefix}{interface}")


def ports_of(layout: Layout, prefix: str, switch: str, lags: bool) -> dict[str, Port]:
    """The ports of a switch by interface. With `lags`, each server has a LAG upstream.

    A port with its own VLAN is outside of the LAG, because switches require equal VLANs in a LAG.
    """
    found = {}
    is_server = layout.attributes(switch)["role"] == Role.SERVER_BRIDGE
    for node, edge in layout.graph.adj[switch].items():
        attributes = layout.attributes(node)
        role = attributes["role"]
        if role == Role.UPLINK and is_server:
            interface = own_interface(layout, prefix, node)
            port = Port(attributes["mtu"], TEAM, layout.capacity_bps(node))
        elif role == Role.UPLINK:
            interface = upstream_interface(layout, prefix, node)
            server = layout.neighbour(node, Role.SERVER_BRIDGE)
            port = Port(
                mtu=attributes.get("upstream_mtu", attributes["mtu"]),
                team=server if lags and "upstream_vlan" not in attributes else "",
                rate_bps=layout.capacity_bps(node),
                vlan=attributes.get("upstream_vlan"),
            )
        elif role == Role.VNIC:
            interface = own_interface(layout, prefix, node)
            home = own_interface(layout, prefix, attributes["home"]) if "home" in attributes else ""
            port = Port(attributes["mtu"], vlan=attributes.get("vlan"), home=home)
        elif role == Role.CLIENT:
            interface = upstream_interface(layout, prefix, node)
            port = Port(attributes["mtu"], vlan=attributes.get("vlan"))
        elif "tunnels" in edge:
            continue
        else:
            interface = joining_interface(layout, prefix, switch, node)
            port = Port(edge["mtu"], rate_bps=edge.get("capacity"))
        found[interface] = port
    return found
