"""The integration bridge of a host: its VMs' frames leave in tunnels of Open vSwitch's userspace datapath.

Open vSwitch routes a tunnel's frames itself: it looks up the remote address, and the frame enters the
bridge of the route's port, at that port. Two hosts in one Open vSwitch need separate routes, which the
tunnel's packet mark selects.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from topologies.graph.layout import Layout, Role
from topologies.graph.parts import Tunnel
from topologies.graph.ports import checked_interface_name, own_interface, upstream_interface
from topologies.network import processes
from topologies.network.switches import LearningSwitch, ServerBridge, vsctl

# More than ovs-vswitchd needs to take up an address, on a busy machine.
KNOWN_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Overlay:
    """The tunnels of an integration bridge.

    Attributes:
        bridges: the server's bridges, on which the endpoints take turns. It is one with the team, or
            one for each uplink.
        prefix: the prefix of the interfaces' names.
        encapsulation: `geneve` or `vxlan`.
        mtu: the MTU of the endpoints.
        cables: both ends of the server's uplinks.
    """

    bridges: Sequence[str]
    prefix: str
    encapsulation: str
    tunnels: Sequence[Tunnel]
    mtu: int
    cables: Sequence[str]

    def endpoint(self, tunnel: Tunnel) -> str:
        return checked_interface_name(self.prefix + tunnel.endpoint)

    def bridge_of(self, tunnel: Tunnel) -> str:
        """The bridge that has a tunnel's endpoint."""
        return self.bridges[(tunnel.number - 1) % len(self.bridges)]

    def transaction(self, bridge: str) -> list[str]:
        """The arguments of the `ovs-vsctl` call that adds the endpoints and the tunnels."""
        arguments: list[str] = []
        for one in self.tunnels:
            endpoint = self.endpoint(one)
            tunnel = checked_interface_name(self.prefix + one.tunnel)
            mac = one.mac(one.host).replace(":", r"\:")
            arguments += [
                *("--", "add-port", self.bridge_of(one), endpoint),
                *("--", "set", "interface", endpoint, "type=internal", f"mac={mac}"),
                *(f"ofport_request={one.ofport}", f"mtu_request={self.mtu}"),
                *("--", "add-port", bridge, tunnel, f"tag={one.number}"),
                *("--", "set", "interface", tunnel, f"type={self.encapsulation}"),
                f"options:remote_ip={one.address(one.far_host)}",
                # A tunnel with a local address must have it in a route of the same mark.
                *(f"options:key={one.number}", f"options:egress_pkt_mark={one.host}"),
            ]
        return arguments

    def settings(self) -> list[list[str]]:
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
            endpoint, far = self.endpoint(one), one.far_host
            commands += [
                ["ip", "address", "replace", f"{one.address(one.host)}/24", "dev", endpoint],
                ["ip", "link", "set", endpoint, "up"],
                ["ovs-appctl", "ovs/route/add", one.subnet, endpoint, f"pkt_mark={one.host}"],
                [
                    *("ovs-appctl", "tnl/neigh/set", self.bridge_of(one)),
                    *(one.address(far), one.mac(far)),
                ],
            ]
        return commands

    def removals(self) -> list[list[str]]:
        """The commands that remove the routes."""
        return [
            ["ovs-appctl", "ovs/route/del", one.subnet, f"pkt_mark={one.host}"]
            for one in self.tunnels
        ]


def overlay_of(
    layout: Layout, prefix: str, switch: str, server_class: type[ServerBridge]
) -> Overlay | None:
    """The tunnels of a switch; None without any."""
    if layout.attributes(switch)["role"] != Role.VIRTUAL_SWITCH:
        return None
    server = layout.neighbour(switch, Role.SERVER_BRIDGE)
    edge = layout.graph.edges[switch, server]
    if "tunnels" not in edge:
        return None
    return Overlay(
        bridges=server_class.bridges_of(prefix + server, len(layout.uplinks_of(server))),
        prefix=prefix,
        encapsulation=edge["encapsulation"],
        tunnels=edge["tunnels"],
        mtu=edge["mtu"],
        cables=[
            end(layout, prefix, uplink)
            for uplink in layout.uplinks_of(server)
            for end in (own_interface, upstream_interface)
        ],
    )


class IntegrationBridge(LearningSwitch):
    """A virtual switch whose tunnels end at internal ports of the server's bridge.

    Each tunnel is in an access VLAN of its own, so that several tunnels between two hosts do not form
    a loop. The server's bridges must exist.
    """

    def __init__(self, name: str, overlay: Overlay, **params: Any) -> None:
        self.overlay = overlay
        super().__init__(name, **params)

    def start(self, controllers: Sequence[object]) -> None:
        super().start(controllers)
        vsctl(*self.overlay.transaction(str(self.name)))
        for command in self.overlay.settings():
            _run_at_last(*command)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        for command in self.overlay.removals():
            with contextlib.suppress(RuntimeError):
                processes.run(*command)
        super().stop(deleteIntfs)


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
