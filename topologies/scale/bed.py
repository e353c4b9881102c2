"""Builds many cheap bridges on one Open vSwitch.

    VM ports: patch ports without a peer, and LOCAL ── bridge ── two uplinks: patch ports, too

Patch ports cost Open vSwitch almost nothing, so the figures are the cost of the service. Some
bridges have veth devices as uplinks, which can lose their carrier.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from topologies.network.private_ovs import PrivateOvs

# The first bridge and every tenth one have devices as uplinks.
CABLED = 10
# Bridges created by one ovs-vsctl command, which reads the whole database each time.
BATCH = 10
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
_IFREQ = struct.Struct("16sH14x")


class Bed:
    """Bridges `s0`, `s1`, ... with `ports` patch ports each.

    It changes network settings, so it needs a private network namespace.
    """

    def __init__(self, ovs: PrivateOvs, ports: int) -> None:
        self.ovs = ovs
        self.ports = ports
        self.bridges: list[str] = []
        self.attached: set[str] = set()
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        subprocess.run(["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"], check=True)

    def grow(self, bridges: int) -> Iterator[int]:
        """Create bridges up to this number, and yield the number after each batch."""
        while (first := len(self.bridges)) < bridges:
            names = [f"s{number}" for number in range(first, min(first + BATCH, bridges))]
            links = [
                f"link add {uplink} type veth peer name {_peer(uplink)}\n"
                f"link set {uplink} up\nlink set {_peer(uplink)} up\n"
                for name in names
                if self.is_cabled(name)
                for uplink in self.uplinks(name)
            ]
            _ip(links)
            words = [word for name in names for word in self._create_command(name)]
            self.ovs.run("ovs-vsctl", *words[1:], timeout_s=120)
            _ip([f"link set {name} up\n" for name in names])
            self.bridges += names
            yield len(self.bridges)

    def attach(self, bridges: Sequence[str], settings: Mapping[str, str]) -> None:
        """Attach bridges in the database, for a service that starts later."""
        words: list[str] = []
        for name in bridges:
            keys = {"policy": "load-based", "uplinks": ",".join(self.uplinks(name)), **settings}
            words += ["--", "set", "bridge", name]
            words += [f'external_ids:ovs-lbt-{key}="{value}"' for key, value in keys.items()]
        if words:
            self.ovs.run("ovs-vsctl", *words[1:], timeout_s=120)
        self.attached |= {*bridges}

    def is_cabled(self, bridge: str) -> bool:
        """Whether the uplinks of a bridge are devices."""
        number = int(bridge[1:])
        return number == 0 or number % CABLED == CABLED - 1

    def uplinks(self, bridge: str) -> list[str]:
        return [f"{bridge}u0", f"{bridge}u1"]

    def management_socket(self, bridge: str) -> Path:
        return self.ovs.rundir / f"{bridge}.mgmt"

    def set_cable(self, uplink: str, plugged: bool) -> None:
        """Set whether an uplink has a carrier."""
        name = _peer(uplink).encode()
        _, flags = _IFREQ.unpack(fcntl.ioctl(self._control, SIOCGIFFLAGS, _IFREQ.pack(name, 0)))
        flags = flags | IFF_UP if plugged else flags & ~IFF_UP
        fcntl.ioctl(self._control, SIOCSIFFLAGS, _IFREQ.pack(name, flags))

    def _create_command(self, name: str) -> list[str]:
        """The ovs-vsctl commands for a bridge. `add-port` would be slow, as it reads all ports."""
        patches = [f"{name}p{number}" for number in range(self.ports)]
        devices = [name]
        if self.is_cabled(name):
            devices += self.uplinks(name)
        else:
            patches += self.uplinks(name)
        types = dict.fromkeys(devices, "system") | {name: "internal"}
        types |= {patch: f"patch options:peer={patch}x" for patch in patches}
        words = []
        for port, kind in types.items():
            words += ["--", f"--id=@i{port}", "create", "interface", f"name={port}"]
            words += f"type={kind}".split()
            if port in self.uplinks(name):
                # Otherwise the service takes a patch port for a VM port.
                words += ["external_ids:ovs-lbt-role=active"]
            words += ["--", f"--id=@p{port}", "create", "port", f"name={port}"]
            words += [f"interfaces=@i{port}"]
        ports = ",".join(f"@p{port}" for port in types)
        # Without fail_mode=secure, the uplinks would form a loop until the bridge is attached.
        words += ["--", f"--id=@b{name}", "create", "bridge", f"name={name}"]
        words += ["datapath_type=netdev", "fail_mode=secure", f"ports=[{ports}]"]
        return [*words, "--", "add", "Open_vSwitch", ".", "bridges", f"@b{name}"]


def _peer(uplink: str) -> str:
    return f"{uplink}x"


def _ip(lines: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="".join(lines), text=True, check=True)
