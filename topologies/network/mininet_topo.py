"""Builds a Mininet topology from a layout's graph."""

from __future__ import annotations

from mininet.node import Host
from mininet.topo import Topo

from topologies.graph.layout import SWITCHES, Layout, Role
from topologies.graph.ports import (
    checked_interface_name,
    joining_interface,
    own_interface,
    ports_of,
    upstream_interface,
)
from topologies.layouts import LAYOUTS, STARTS
from topologies.network.integration_bridge import overlay_of
from topologies.network.switches import AUTO, TEAMS, LearningSwitch, ServerBridge, usable_datapath

# The datapath ID of the first switch of each role; the others count on from it.
FIRST_DPID = {Role.SERVER_BRIDGE: 0x1, Role.UPSTREAM_SWITCH: 0x101, Role.VIRTUAL_SWITCH: 0x201}

# An end of a link: the node, and the names and numbers that Mininet does not choose: its interface and its port.
End = tuple[str, str, int | None]


class EndSystem(Host):
    """A VM, a host's stack or a client: a namespace behind a switch."""

    def config(
        self,
        addresses: dict[str, str] | None = None,
        mtus: dict[str, int] | None = None,
        **params: object,
    ) -> object:
        """Set the interfaces' addresses (address/prefix) and MTUs, besides Mininet's settings."""
        result = super().config(**params)
        for interface, address in (addresses or {}).items():
            self.cmd(f"ip addr replace {address} dev {interface}")
        for interface, mtu in (mtus or {}).items():
            self.cmd(f"ip link set {interface} mtu {mtu}")
        for interface in self.intfNames():
            # The userspace datapath does not fill in checksums that are left to the hardware:
            # with offload, TCP would fail while ping works.
            self.cmd(f"ethtool -K {interface} tx off")
        # With two vNICs on one network, each must answer ARP for its own address only. Otherwise
        # the load for one vNIC could arrive at the other.
        self.cmd("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")
        return result


class LayoutTopo(Topo):
    """A Mininet topology of a layout."""

    def build_from(
        self,
        layout: Layout,
        prefix: str,
        server_class: type[ServerBridge],
        datapath: str = AUTO,
    ) -> None:
        """Add the layout's nodes and links.

        `prefix` goes before the names of bridges and of the switches' interfaces, because they
        share a namespace with the machine's interfaces.

        Raises:
            ValueError: a name is too long for an interface; the datapath is unknown; the uplinks
                of a team that needs a LAG end at several switches.
        """
        if server_class.lag:
            _require_one_peer(layout)
        usable = usable_datapath(datapath)
        for role in SWITCHES:
            switch_class = server_class if role == Role.SERVER_BRIDGE else LearningSwitch
            for dpid, switch in enumerate(layout.nodes(role), start=FIRST_DPID[role]):
                lag_hash = layout.attributes(switch).get("lag_hash")
                self.addSwitch(
                    # The bridges of a split server have a digit after its name.
                    checked_interface_name(prefix + switch, spare=1),
                    dpid=f"{dpid:x}",
                    layout_ports=ports_of(layout, prefix, switch, lags=server_class.lag),
                    datapath=usable,
                    **({"lag_hash": lag_hash} if lag_hash else {}),
                    **{"cls": switch_class, **overlay_of(layout, prefix, switch, server_class)},
                )
        self._add_links(layout, prefix)

    def _add_links(self, layout: Layout, prefix: str) -> None:
        """Add the links in an order that does not depend on the team, and the end systems."""

        def own(node: str, switch: str) -> End:
            number = layout.attributes(node).get("ofport")
            return prefix + switch, own_interface(layout, prefix, node), number

        def upstream(node: str, switch: str) -> End:
            return prefix + switch, upstream_interface(layout, prefix, node), None

        done = set()
        for uplink in layout.nodes(Role.UPLINK):
            far = layout.far_end(uplink)
            end = own(uplink, layout.neighbour(uplink, Role.SERVER_BRIDGE))
            if layout.attributes(far)["role"] == Role.UPSTREAM_SWITCH:
                self._link(end, upstream(uplink, far))
            elif far not in done:  # both ends of a back-to-back cable are uplinks
                self._link(end, own(far, layout.neighbour(far, Role.SERVER_BRIDGE)))
            done.add(uplink)
        for switch, other, edge in layout.graph.edges(data=True):
            if "interfaces" in edge:
                ends = [
                    (
                        prefix + one,
                        joining_interface(layout, prefix, one, two),
                        edge["ofports"].get(one),
                    )
                    for one, two in ((switch, other), (other, switch))
                ]
                self._link(*ends)
        for name in (*layout.nodes(Role.VM), *layout.nodes(Role.HOST)):
            vnics = layout.vnics_of(name)
            self._add_end_system(layout, name, vnics)
            for vnic in vnics:
                self._link(own(vnic, layout.switch_of(vnic)), (name, "", None))
        for client in layout.nodes(Role.CLIENT):
            self._add_end_system(layout, client, [client])
            switch = layout.neighbour(client, Role.UPSTREAM_SWITCH)
            self._link(upstream(client, switch), (client, "", None))

    def _link(self, one: End, other: End) -> None:
        (node, interface, port), (far_node, far_interface, far_port) = one, other
        names = {"intfName1": interface, "intfName2": far_interface}
        self.addLink(node, far_node, port, far_port, **{k: v for k, v in names.items() if v})

    def _add_end_system(self, layout: Layout, name: str, nics: list[str]) -> None:
        """Add a namespace with the interfaces `NAME-eth0`, `NAME-eth1`… for the nodes `nics`."""
        attributes = {f"{name}-eth{i}": layout.attributes(nic) for i, nic in enumerate(nics)}
        self.addHost(
            name,
            cls=EndSystem,
            ip=layout.attributes(nics[0])["address"],
            addresses={interface: of_nic["address"] for interface, of_nic in attributes.items()},
            mtus={interface: of_nic["mtu"] for interface, of_nic in attributes.items()},
        )


def topos_of(name: str) -> dict[str, type[LayoutTopo]]:
    """The topology for `mn --topo NAME` that `mn --custom` looks for in the file of a layout.

    `mn` executes that file without a package, without __file__ and without the repository on sys.path,
    and copies every global over its own globals. So the file names the repository itself, and its names
    must not collide.

    The topology raises:
        ValueError: as `LayoutTopo.build_from`; or a parameter or its value is not allowed.
    """
    start = STARTS[name]

    class NamedTopo(LayoutTopo):
        def build(
            self,
            prefix: str = start.prefix,
            team: str = start.team,
            datapath: str = AUTO,
            **parameters: int | str,
        ) -> None:
            if team not in TEAMS:
                raise ValueError(f"team {team} does not exist; expected {' | '.join(TEAMS)}")
            if start.userspace_only:
                if usable_datapath(datapath) == "kernel" and datapath != AUTO:
                    expected = "expected userspace, because both hosts share a namespace"
                    raise ValueError(f"datapath is {datapath}; {expected}")
                datapath = "userspace"
            self.build_from(LAYOUTS[name](**parameters), prefix, TEAMS[team], datapath)

    return {name: NamedTopo}


def _require_one_peer(layout: Layout) -> None:
    """Refuse a LAG across several switches, which ordinary switches do not support."""
    for server in layout.nodes(Role.SERVER_BRIDGE):
        ends = [layout.far_end(uplink) for uplink in layout.uplinks_of(server)]
        switches = sorted(end for end in set(ends) if layout.attributes(end)["role"] != Role.UPLINK)
        if len(switches) > 1:
            raise ValueError(
                f"the LAG of {server} ends at {', '.join(switches)}; expected one switch"
            )
