"""The integration bridge of a host: its VMs' frames leave in tunnels of Open vSwitch's userspace datapath.

Open vSwitch routes a tunnel's frames itself: it looks up the remote address, and the frame enters the
bridge of the route's port, at that port. Two hosts in one Open vSwitch need separate routes, which the
tunnel's packet mark selects.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from topologies.graph.layout import Layout, Role
from topologies.graph.parts import Tunnel
from topologies.graph.ports import checked_interface_name, own_interface, upstream_interface
from topologies.network import processes
from topologies.network.switches import LearningSwitch, ServerBridge, vsctl

# More than ovs-vswitchd needs to take up an address, on a busy machine.
KNOWN_WITHIN_S = 10.0


def overlay_of(
    layout: Layout, prefix: str, switch: str, server_class: type[ServerBridge]
) -> dict[str, Any]:
    """The parameters of the integration bridge that a switch is; none if it has no tunnels."""
    if layout.attributes(switch)["role"] != Role.VIRTUAL_SWITCH:
        return {}
    server = layout.neighbour(switch, Role.SERVER_BRIDGE)
    edge = layout.graph.edges[switch, server]
    if "tunnels" not in edge:
        return {}
    uplinks = layout.uplinks_of(server)
    return {
        "cls": IntegrationBridge,
        "bridges": server_class.bridges_of(prefix + server, len(uplinks)),
        "prefix": prefix,
        **{name: edge[name] for name in ("encapsulation", "tunnels", "mtu")},
        "cables": [
            end(layout, prefix, uplink)
            for uplink in uplinks
            for end in (own_interface, upstream_interface)
        ],
    }


class IntegrationBridge(LearningSwitch):
    """A virtual switch whose tunnels end at internal ports of the server's bridge.

    Each tunnel is in an access VLAN of its own, so that several tunnels between two hosts do not form
    a loop. The server's bridges must exist.

    Attributes:
        server_bridges: the server's bridges, on which the endpoints take turns. It is one with the team,
            or one for each uplink.
        prefix: the prefix of the interfaces' names.
        encapsulation: `geneve` or `vxlan`.
        mtu: the MTU of the endpoints.
        cables: both ends of the server's uplinks.
    """

    def __init__(
        self,
        name: str,
        bridges: Sequence[str],
        prefix: str,
        encapsulation: str,
        tunnels: Sequence[Tunnel],
        mtu: int,
        cables: Sequence[str],
        **params: Any,
    ) -> None:
        self.server_bridges, self.prefix, self.tunnels = bridges, prefix, tunnels
        self.encapsulation, self.mtu, self.cables = encapsulation, mtu, cables
        super().__init__(name, **params)

    def start(self, controllers: Sequence[object]) -> None:
        super().start(controllers)
        vsctl(*self._additions())
        for command in self._settings():
            _run_at_last(*command)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        for one in self.tunnels:
            with contextlib.suppress(RuntimeError):
                processes.run("ovs-appctl", "ovs/route/del", one.subnet, f"pkt_mark={one.host}")
        super().stop(deleteIntfs)

    def _endpoint(self, tunnel: Tunnel) -> str:
        return checked_interface_name(self.prefix + tunnel.endpoint)

    def _bridge_of(self, tunnel: Tunnel) -> str:
        """The bridge that has a tunnel's endpoint."""
        return self.server_bridges[(tunnel.number - 1) % len(self.server_bridges)]

    def _additions(self) -> list[str]:
        """The arguments of the `ovs-vsctl` call that adds the endpoints and the tunnels."""
        arguments: list[str] = []
        for one in self.tunnels:
            endpoint = self._endpoint(one)
            tunnel = checked_interface_name(self.prefix + one.tunnel)
            mac = one.mac(one.host).replace(":", r"\:")
            arguments += [
                *("--", "add-port", self._bridge_of(one), endpoint),
                *("--", "set", "interface", endpoint, "type=internal", f"mac={mac}"),
                *(f"ofport_request={one.ofport}", f"mtu_request={self.mtu}"),
                *("--", "add-port", self.name, tunnel, f"tag={one.number}"),
                *("--", "set", "interface", tunnel, f"type={self.encapsulation}"),
                f"options:remote_ip={one.address(one.far_host)}",
                # A tunnel with a local address must have it in a route of the same mark.
                *(f"options:key={one.number}", f"options:egress_pkt_mark={one.host}"),
            ]
        return arguments

    def _settings(self) -> list[list[str]]:
        """The commands that give the endpoints their addresses, routes and neighbours.

        Neighbours are set, because a kernel that has both ends' addresses answers no ARP request
        from one for the other. Cables must have no address at all, IPv6's of the link included:
        Open vSwitch ends a tunnel at any port with an address, if the frame is for any endpoint
        that it has, and it has those of both hosts.
        """
        commands = [
            ["sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1"]
            for interface in self.cables
        ]
        for one in self.tunnels:
            endpoint, far = self._endpoint(one), one.far_host
            route = ["ovs-appctl", "ovs/route/add", one.subnet, endpoint, f"pkt_mark={one.host}"]
            neighbour = ["ovs-appctl", "tnl/neigh/set", self._bridge_of(one)]
            commands += [
                ["ip", "address", "replace", f"{one.address(one.host)}/24", "dev", endpoint],
                ["ip", "link", "set", endpoint, "up"],
                route,
                [*neighbour, one.address(far), one.mac(far)],
            ]
        return commands


def _run_at_last(*command: str) -> None:
    """Run a command, and repeat it if it fails: ovs-vswitchd learns an address some time after the kernel.

    Raises:
        RuntimeError: it failed for 10 s; the message has the reason.
    """
    deadline_s = time.monotonic() + KNOWN_WITHIN_S
    while True:
        try:
            processes.run(*command)
            return
        except RuntimeError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
