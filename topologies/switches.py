"""The Mininet switches of a layout: the server's bridge in several forms, and upstream.

They talk to whichever Open vSwitch the environment points to (OVS_RUNDIR): the host's
under plain `mn`, a private one in a bench. A bridge that is already there is never
replaced.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from mininet.moduledeps import pathCheck
from mininet.node import Switch

from topologies.shaping import shape

# On the userspace datapath, which needs no kernel module.
DATAPATH_TYPE = "netdev"


def vsctl(*arguments: str) -> None:
    """Run one `ovs-vsctl` transaction.

    Raises:
        RuntimeError: it was refused; the message says why.
    """
    done = subprocess.run(["ovs-vsctl", "--timeout=20", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ovs-vsctl {' '.join(arguments)}: {done.stderr.strip()}")


class LayoutSwitch(Switch):
    """An OVS bridge whose uplinks are shaped to their capacity.

    Shaping comes after the ports are added, since OVS removes a port's qdisc then.
    """

    def __init__(
        self, name: str, uplink_rates_bps: Mapping[str, int] | None = None, **params: object
    ) -> None:
        self.uplink_rates_bps = dict(uplink_rates_bps or {})
        super().__init__(name, **params)

    @classmethod
    def setup(cls) -> None:
        pathCheck("ovs-vsctl", "tc", moduleName="Open vSwitch and iproute2")

    @property
    def bridges(self) -> list[str]:
        """The names of the OVS bridges this switch is made of."""
        return [str(self.name)]

    @property
    def other_interfaces(self) -> list[str]:
        """Every interface that is not an uplink: VM ports, clients' ports."""
        names = [str(i) for i in self.intfNames() if str(i) != "lo"]
        return [name for name in names if name not in self.uplink_rates_bps]

    def start(self, _controllers: Sequence[object]) -> None:
        for interface in (*self.uplink_rates_bps, *self.other_interfaces):
            subprocess.run(["ip", "link", "set", interface, "up"], check=True)
        vsctl(*self.transaction())
        for interface, rate_bps in self.uplink_rates_bps.items():
            shape(interface, rate_bps)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 (Mininet's name)
        for bridge in self.bridges:
            vsctl("--if-exists", "del-br", bridge)
        super().stop(deleteIntfs)

    def transaction(self) -> list[str]:
        """The arguments of the one `ovs-vsctl` call that makes the bridges."""
        raise NotImplementedError

    def _bridge(self, bridge: str, fail_mode: str) -> list[str]:
        return [
            *("--", "add-br", bridge),
            *("--", "set", "bridge", bridge),
            *(f"datapath_type={DATAPATH_TYPE}", f"fail_mode={fail_mode}"),
        ]

    def _port(self, bridge: str, interface: str) -> list[str]:
        return ["--", "add-port", bridge, interface, *self._number(interface)]

    def _number(self, interface: str) -> list[str]:
        number = self.ports[self.nameToIntf[interface]]
        return ["--", "set", "interface", interface, f"ofport_request={number}"]


class UpstreamSwitch(LayoutSwitch):
    """The network's switch: learns addresses, knows nothing of a team."""

    def transaction(self) -> list[str]:
        arguments = self._bridge(self.name, "standalone")
        for interface in (*self.uplink_rates_bps, *self.other_interfaces):
            arguments += self._port(self.name, interface)
        return arguments


class ServerBridge(LayoutSwitch):
    """The server's bridge; how its uplinks are teamed is what subclasses differ in."""


class BondedServer(ServerBridge):
    """The team as an OVS active-backup bond: works without anybody's help, cannot loop."""

    def transaction(self) -> list[str]:
        arguments = self._bridge(self.name, "standalone")
        arguments += ["--", "add-bond", self.name, f"{self.name}-team", *self.uplink_rates_bps]
        arguments += ["bond_mode=active-backup"]
        for interface in self.uplink_rates_bps:
            arguments += self._number(interface)
        for interface in self.other_interfaces:
            arguments += self._port(self.name, interface)
        return arguments


class PlainUplinksServer(ServerBridge):
    """Uplinks as plain ports, for a controller to team: forwards nothing until then.

    `secure` because the switch's own learning would loop frames over plain uplinks.
    """

    def transaction(self) -> list[str]:
        arguments = self._bridge(self.name, "secure")
        for interface in (*self.uplink_rates_bps, *self.other_interfaces):
            arguments += self._port(self.name, interface)
        return arguments


class SplitServer(ServerBridge):
    """One ordinary bridge for each uplink, the VMs' ports dealt out in equal blocks.

    This is placement by hand: each VM fixed to one uplink, as a port group with a
    single uplink does it.
    """

    @property
    def bridges(self) -> list[str]:
        return [f"{self.name}{index}" for index in range(1, len(self.uplink_rates_bps) + 1)]

    def placement(self) -> dict[str, str]:
        """Which uplink each VM port is fixed to."""
        uplinks = list(self.uplink_rates_bps)
        ports = self.other_interfaces
        return {port: uplinks[i * len(uplinks) // len(ports)] for i, port in enumerate(ports)}

    def transaction(self) -> list[str]:
        arguments: list[str] = []
        bridge_of = dict(zip(self.uplink_rates_bps, self.bridges, strict=True))
        for uplink, bridge in bridge_of.items():
            arguments += [*self._bridge(bridge, "standalone"), *self._port(bridge, uplink)]
        for port, uplink in self.placement().items():
            arguments += self._port(bridge_of[uplink], port)
        return arguments


# The forms a team can have, by the names that layouts' parameters use.
TEAMS: dict[str, type[ServerBridge]] = {
    "bond": BondedServer,
    "plain": PlainUplinksServer,
    "split": SplitServer,
}
