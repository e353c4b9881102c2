"""From a layout's graph to a Mininet topology."""

from __future__ import annotations

from mininet.node import Host
from mininet.topo import Topo

from topologies.graph import Layout, Role
from topologies.switches import ServerBridge, UpstreamSwitch

# The kernel's limit (IFNAMSIZ without its terminator).
LONGEST_INTERFACE_NAME = 15


class EndSystem(Host):
    """A VM or a client: a namespace whose interfaces work through a userspace switch."""

    def config(self, addresses: dict[str, str] | None = None, **params: object) -> object:
        """Set the addresses (interface -> address/prefix) beside Mininet's own settings."""
        result = super().config(**params)
        for interface, address in (addresses or {}).items():
            self.cmd(f"ip addr replace {address} dev {interface}")
        for interface in self.intfNames():
            # The userspace datapath passes frames on as they are: a checksum left to
            # the "hardware" would never be filled in, and TCP would fail where ping works.
            self.cmd(f"ethtool -K {interface} tx off")
        # Two vNICs on one network: each answers ARP for its own address only, or load
        # meant for one vNIC would arrive at the other.
        self.cmd("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")
        return result


class LayoutTopo(Topo):
    """A Mininet topology made from a layout; a layout file derives its own from it."""

    def build_from(self, layout: Layout, prefix: str, server_class: type[ServerBridge]) -> None:
        """Add the layout's nodes and links.

        Bridges and the switches' interfaces live in one namespace with everything else
        of that machine, so `prefix` goes before all their names.

        Raises:
            ValueError: a name would be longer than an interface's name can be.
        """
        graph = layout.graph
        uplinks = layout.nodes(Role.UPLINK)
        rates_bps = {uplink: layout.capacity_bps(uplink) for uplink in uplinks}

        def interface(node: str, infix: str = "") -> str:
            name = f"{prefix}{infix}{graph.nodes[node]['interface']}"
            if len(name) > LONGEST_INTERFACE_NAME:
                raise ValueError(f"{name}: {len(name)} characters -> {LONGEST_INTERFACE_NAME}")
            return name

        for number, server in enumerate(layout.nodes(Role.SERVER_BRIDGE), start=1):
            own = [uplink for uplink in uplinks if graph.has_edge(server, uplink)]
            self.addSwitch(
                f"{prefix}{server}",
                cls=server_class,
                dpid=f"{number:x}",
                uplink_rates_bps={interface(uplink): rates_bps[uplink] for uplink in own},
            )
        for number, switch in enumerate(layout.nodes(Role.UPSTREAM_SWITCH), start=1):
            own = [uplink for uplink in uplinks if graph.has_edge(switch, uplink)]
            self.addSwitch(
                f"{prefix}{switch}",
                cls=UpstreamSwitch,
                dpid=f"{0x100 + number:x}",
                uplink_rates_bps={interface(uplink, "sw-"): rates_bps[uplink] for uplink in own},
            )
        for uplink in uplinks:
            self.addLink(
                prefix + layout.neighbour(uplink, Role.SERVER_BRIDGE),
                prefix + layout.neighbour(uplink, Role.UPSTREAM_SWITCH),
                port1=graph.nodes[uplink]["ofport"],
                intfName1=interface(uplink),
                intfName2=interface(uplink, "sw-"),
            )
        for vm in layout.nodes(Role.VM):
            vnics = [node for node in graph.adj[vm] if graph.nodes[node]["role"] == Role.VNIC]
            addresses = {f"{vm}-eth{i}": graph.nodes[v]["address"] for i, v in enumerate(vnics)}
            self.addHost(
                vm, cls=EndSystem, ip=graph.nodes[vnics[0]]["address"], addresses=addresses
            )
            for vnic in vnics:
                self.addLink(
                    prefix + layout.neighbour(vnic, Role.SERVER_BRIDGE),
                    vm,
                    port1=graph.nodes[vnic]["ofport"],
                    intfName1=interface(vnic),
                )
        for client in layout.nodes(Role.CLIENT):
            self.addHost(client, cls=EndSystem, ip=graph.nodes[client]["address"])
            self.addLink(
                prefix + layout.neighbour(client, Role.UPSTREAM_SWITCH),
                client,
                intfName1=interface(client, "sw-"),
            )
