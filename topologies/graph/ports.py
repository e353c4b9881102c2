"""What a layout says about the ports of one of its switches, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass

from topologies.graph.layout import Layout, Role

# The kernel's limit (IFNAMSIZ without its terminator).
LONGEST_INTERFACE_NAME = 15
# The team of a server's uplinks; a LAG has the name of the server at its other end.
TEAM = "team"


@dataclass(frozen=True, slots=True)
class Port:
    """What a layout says about one port of a switch.

    Attributes:
        team: ports with the same word are one team's; empty for a port of its own.
        rate_bps: what leaves by it is limited to this; None limits nothing.
        vlan: its access VLAN; None carries untagged frames and all VLANs.
        home: the team's port that placement by hand gives it; empty: dealt out.
    """

    mtu: int
    team: str = ""
    rate_bps: int | None = None
    vlan: int | None = None
    home: str = ""


def fitting(name: str, spare: int = 0) -> str:
    """The name, if an interface can have it with `spare` characters more.

    Raises:
        ValueError: it is too long.
    """
    longest = LONGEST_INTERFACE_NAME - spare
    if len(name) > longest:
        raise ValueError(f"{name}: {len(name)} characters -> {longest}")
    return name


def own_interface(layout: Layout, prefix: str, node: str) -> str:
    """An uplink's or a vNIC's interface at its server."""
    return fitting(f"{prefix}{layout.attributes(node)['interface']}")


def upstream_interface(layout: Layout, prefix: str, node: str) -> str:
    """The interface of an upstream switch towards an uplink or a client."""
    return fitting(f"{prefix}sw-{layout.attributes(node)['interface']}")


def joining_interface(layout: Layout, prefix: str, switch: str, other: str) -> str:
    """The interface of a switch towards another switch."""
    return fitting(f"{prefix}{layout.graph.edges[switch, other]['interfaces'][switch]}")


def ports_of(layout: Layout, prefix: str, switch: str, lags: bool) -> dict[str, Port]:
    """Every port of a switch by its interface; with `lags`, each server has a LAG upstream.

    A switch's port that was given a VLAN of its own is no part of a LAG, as no switch
    would let it be.
    """
    found = {}
    for node, edge in layout.graph.adj[switch].items():
        about = layout.attributes(node)
        if about["role"] == Role.UPLINK and layout.attributes(switch)["role"] == Role.SERVER_BRIDGE:
            interface = own_interface(layout, prefix, node)
            port = Port(about["mtu"], TEAM, layout.capacity_bps(node))
        elif about["role"] == Role.UPLINK:
            interface = upstream_interface(layout, prefix, node)
            server = layout.neighbour(node, Role.SERVER_BRIDGE)
            port = Port(
                mtu=about.get("upstream_mtu", about["mtu"]),
                team=server if lags and "upstream_vlan" not in about else "",
                rate_bps=layout.capacity_bps(node),
                vlan=about.get("upstream_vlan"),
            )
        elif about["role"] == Role.VNIC:
            interface = own_interface(layout, prefix, node)
            home = own_interface(layout, prefix, about["home"]) if "home" in about else ""
            port = Port(about["mtu"], vlan=about.get("vlan"), home=home)
        elif about["role"] == Role.CLIENT:
            interface = upstream_interface(layout, prefix, node)
            port = Port(about["mtu"], vlan=about.get("vlan"))
        else:
            interface = joining_interface(layout, prefix, switch, node)
            port = Port(edge["mtu"], rate_bps=edge.get("capacity"))
        found[interface] = port
    return found
