"""The Mininet switches of a layout: the upstream switch, and the server's bridge by team.

They use the Open vSwitch that the environment names (OVS_RUNDIR): the host's instance under `mn`, a
private one in a bench. They never replace an existing bridge.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mininet.moduledeps import pathCheck
from mininet.node import Switch

from topologies.graph.parts import LAG_HASHES
from topologies.graph.ports import Port
from topologies.network import processes
from topologies.network.private_ovs import DATAPATHS
from topologies.network.shaping import is_shaped, queue_bytes, shape

AUTO = "auto"
KERNEL_MODULE = Path("/sys/module/openvswitch")


def usable_datapath(wanted: str = AUTO) -> str:
    """The datapath to use. `auto` selects the kernel's if its module is loaded.

    Raises:
        ValueError: the datapath is unknown.
    """
    if wanted == AUTO:
        return "kernel" if KERNEL_MODULE.exists() else "userspace"
    if wanted not in DATAPATHS:
        raise ValueError(f"datapath is {wanted}; expected {' | '.join((AUTO, *DATAPATHS))}")
    return wanted


def vsctl(*arguments: str) -> None:
    """Run one `ovs-vsctl` transaction.

    Raises:
        RuntimeError: the transaction failed; the message has the reason.
    """
    processes.run("ovs-vsctl", "--timeout=20", *arguments)


class LayoutSwitch(Switch):
    """An OVS bridge whose links have the layout's speed and MTU.

    `start` sets the MTUs before it adds the ports, because OVS derives the MTU of the local port
    from them. It shapes the links afterwards, because OVS removes a port's qdisc.

    Attributes:
        fail_mode: what the bridge does without a controller.
    """

    fail_mode = "standalone"

    def __init__(
        self,
        name: str,
        layout_ports: Mapping[str, Port] | None = None,
        datapath: str = "userspace",
        **params: object,
    ) -> None:
        self.layout_ports = dict(layout_ports or {})
        self.datapath_type = DATAPATHS[datapath]
        super().__init__(name, **params)

    @classmethod
    def setup(cls) -> None:
        pathCheck("ovs-vsctl", "tc", moduleName="Open vSwitch and iproute2")

    @property
    def bridges(self) -> list[str]:
        """The names of the OVS bridges of this switch."""
        return [str(self.name)]

    @property
    def teams(self) -> dict[str, list[str]]:
        """Each team's interfaces, in failover order."""
        found: dict[str, list[str]] = {}
        for interface, port in self.layout_ports.items():
            if port.team:
                found.setdefault(port.team, []).append(interface)
        return found

    @property
    def other_interfaces(self) -> list[str]:
        """The interfaces outside of teams, to VMs, clients and other switches."""
        return [interface for interface, port in self.layout_ports.items() if not port.team]

    def start(self, _controllers: Sequence[object]) -> None:
        for interface, port in self.layout_ports.items():
            subprocess.run(["ip", "link", "set", interface, "mtu", str(port.mtu), "up"], check=True)
        vsctl(*self.transaction())
        rates_bps = {name: port.rate_bps for name, port in self.layout_ports.items()}
        shaped = {name: rate for name, rate in rates_bps.items() if rate and is_shaped(rate)}
        for interface, rate_bps in shaped.items():
            shape(interface, rate_bps, queue_bytes(len(shaped)))

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        for bridge in self.bridges:
            vsctl("--if-exists", "del-br", bridge)
        super().stop(deleteIntfs)

    def bond(self) -> Sequence[str]:
        """The settings of the bond of each team, for `ovs-vsctl add-bond`; empty: the team has ordinary ports."""
        return ()

    def transaction(self) -> list[str]:
        """The arguments of the `ovs-vsctl` call that adds the bridges."""
        arguments = self._bridge(self.name)
        bonds = self.teams if self.bond() else {}
        for team, interfaces in bonds.items():
            arguments += self._bond(f"{self.name}-{team}", interfaces, self.bond())
        for interface, port in self.layout_ports.items():
            if port.team not in bonds:
                arguments += self._port(self.name, interface)
        return arguments

    def _bridge(self, bridge: str) -> list[str]:
        return [
            *("--", "add-br", bridge),
            *("--", "set", "bridge", bridge),
            *(f"datapath_type={self.datapath_type}", f"fail_mode={self.fail_mode}"),
        ]

    def _port(self, bridge: str, interface: str) -> list[str]:
        vlan = self.layout_ports[interface].vlan
        access = [] if vlan is None else [f"tag={vlan}"]
        return ["--", "add-port", bridge, interface, *access, *self._number(interface)]

    def _bond(self, bond: str, interfaces: Sequence[str], settings: Sequence[str]) -> list[str]:
        """A bond, or a port with the bond's settings: `add-bond` refuses a single interface."""
        if len(interfaces) == 1:
            (only,) = interfaces
            return [*self._port(self.name, only), "--", "set", "port", only, *settings]
        arguments = ["--", "add-bond", self.name, bond, *interfaces, *settings]
        for interface in interfaces:
            arguments += self._number(interface)
        return arguments

    def _number(self, interface: str) -> list[str]:
        number = self.ports[self.nameToIntf[interface]]
        return ["--", "set", "interface", interface, f"ofport_request={number}"]


# With fast LACP, a LAG comes up within two seconds instead of a minute.
LACP = ("lacp=active", "other_config:lacp-time=fast")


class LearningSwitch(LayoutSwitch):
    """A learning switch. The cables of one team form a LAG."""

    def __init__(self, name: str, lag_hash: str = "flow", **params: Any) -> None:
        self.bond_mode = LAG_HASHES[lag_hash]
        super().__init__(name, **params)

    def bond(self) -> Sequence[str]:
        # Physical switches hash and do not rebalance.
        return [f"bond_mode={self.bond_mode}", "other_config:bond-rebalance-interval=0", *LACP]


class ServerBridge(LayoutSwitch):
    """The server's bridge. Its subclasses team the uplinks in different ways.

    Attributes:
        lag: whether the other ends of the uplinks must be a LAG.
    """

    lag = False

    @property
    def uplinks(self) -> list[str]:
        """The uplinks' interfaces, in failover order."""
        return [uplink for interfaces in self.teams.values() for uplink in interfaces]

    @staticmethod
    def bridges_of(name: str, uplinks: int) -> list[str]:
        """The names of the OVS bridges of a server with this name and number of uplinks."""
        return [name]


class BondedServer(ServerBridge):
    """The team as an OVS active-backup bond, which works by itself and cannot loop."""

    def bond(self) -> Sequence[str]:
        # Servers that are cabled back to back must use the same cable.
        return ["bond_mode=active-backup", f"other_config:bond-primary={self.uplinks[0]}"]


class BalanceSlbServer(ServerBridge):
    """The team as an OVS balance-slb bond, which balances source MACs and VLANs by load."""

    def bond(self) -> Sequence[str]:
        return ["bond_mode=balance-slb"]


class LacpServer(ServerBridge):
    """The team as an OVS balance-tcp bond, which balances flows by load and needs a LAG."""

    lag = True

    def bond(self) -> Sequence[str]:
        return ["bond_mode=balance-tcp", *LACP]


class PlainUplinksServer(ServerBridge):
    """Uplinks as plain ports, for a controller to team.

    The fail mode is `secure`, because NORMAL would loop frames over plain uplinks. The bridge thus
    forwards nothing before a controller connects.
    """

    fail_mode = "secure"


class SplitServer(ServerBridge):
    """One ordinary bridge for each uplink, with the VMs' ports divided in equal blocks.

    This is manual placement: each VM has one fixed uplink, as in a port group with a single uplink.
    A port with a home is on that uplink.
    """

    @property
    def bridges(self) -> list[str]:
        return self.bridges_of(self.name, len(self.uplinks))

    @staticmethod
    def bridges_of(name: str, uplinks: int) -> list[str]:
        return [f"{name}{index}" for index in range(1, uplinks + 1)]

    def placement(self) -> dict[str, str]:
        """The uplink of each VM port."""
        uplinks, homes = self.uplinks, {p: self.layout_ports[p].home for p in self.other_interfaces}
        ports = [port for port, home in homes.items() if not home]
        divided = {port: uplinks[i * len(uplinks) // len(ports)] for i, port in enumerate(ports)}
        return {port: home or divided[port] for port, home in homes.items()}

    def transaction(self) -> list[str]:
        arguments: list[str] = []
        bridge_of = dict(zip(self.uplinks, self.bridges, strict=True))
        for uplink, bridge in bridge_of.items():
            arguments += [*self._bridge(bridge), *self._port(bridge, uplink)]
        for port, uplink in self.placement().items():
            arguments += self._port(bridge_of[uplink], port)
        return arguments


# The values of the layouts' parameter `team`.
TEAMS: dict[str, type[ServerBridge]] = {
    "bond": BondedServer,
    "balance-slb": BalanceSlbServer,
    "lacp": LacpServer,
    "plain": PlainUplinksServer,
    "split": SplitServer,
}
