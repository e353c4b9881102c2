"""Many bridges on one Open vSwitch, as cheap as real ones can be.

    VM ports: patch ports without a peer, and LOCAL ── bridge ── two uplinks: patch ports, too

Patch ports cost Open vSwitch nothing, so that what is measured is the service. The uplinks of
some bridges are devices, whose carrier can be taken and which count.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from topologies.network.private_ovs import PrivateOvs

# The first bridge and one in so many has devices for uplinks.
CABLED = 10
# So many bridges are made by one command: it reads the whole database first.
AT_ONCE = 10
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
_IFREQ = struct.Struct("16sH14x")
ETHERTYPE_EXPERIMENTAL = 0x88B5
FRAME_BYTES = 1000


class Bed:
    """Bridges `s0`, `s1`, ... with as many patch ports each; nothing attached.

    Use it in a network namespace of its own.
    """

    def __init__(self, ovs: PrivateOvs, ports: int) -> None:
        self.ovs = ovs
        self.ports = ports
        self.bridges: list[str] = []
        self.attached: set[str] = set()
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._wires: dict[str, socket.socket] = {}
        subprocess.run(["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"], check=True)

    def grow(self, bridges: int) -> Iterator[int]:
        """Have so many bridges; yields how many there are while they are made."""
        while (first := len(self.bridges)) < bridges:
            names = [f"s{number}" for number in range(first, min(first + AT_ONCE, bridges))]
            links = [
                f"link add {uplink} type veth peer name {_peer(uplink)}\n"
                f"link set {uplink} up\nlink set {_peer(uplink)} up\n"
                for name in names
                if self.is_cabled(name)
                for uplink in self.uplinks(name)
            ]
            _ip(links)
            words = [word for name in names for word in self._made(name)]
            self.ovs.run("ovs-vsctl", *words[1:], timeout_s=120)
            _ip([f"link set {name} up\n" for name in names])
            self.bridges += names
            yield len(self.bridges)

    def attach(self, bridges: Sequence[str], settings: Mapping[str, str]) -> None:
        """In the database, for a service that starts."""
        words: list[str] = []
        for name in bridges:
            keys = {"policy": "load-based", "uplinks": ",".join(self.uplinks(name)), **settings}
            words += ["--", "set", "bridge", name]
            words += [f'external_ids:ovs-lbt-{key}="{value}"' for key, value in keys.items()]
        if words:
            self.ovs.run("ovs-vsctl", *words[1:], timeout_s=120)
        self.attached |= {*bridges}

    def is_cabled(self, bridge: str) -> bool:
        """Whether its uplinks are devices."""
        number = int(bridge[1:])
        return number == 0 or number % CABLED == CABLED - 1

    def uplinks(self, bridge: str) -> list[str]:
        return [f"{bridge}u0", f"{bridge}u1"]

    def management_socket(self, bridge: str) -> Path:
        return self.ovs.rundir / f"{bridge}.mgmt"

    def set_cable(self, uplink: str, plugged: bool) -> None:
        """Take or give an uplink's carrier."""
        name = _peer(uplink).encode()
        _, flags = _IFREQ.unpack(fcntl.ioctl(self._control, SIOCGIFFLAGS, _IFREQ.pack(name, 0)))
        flags = flags | IFF_UP if plugged else flags & ~IFF_UP
        fcntl.ioctl(self._control, SIOCSIFFLAGS, _IFREQ.pack(name, flags))

    def speak(self, bridge: str) -> None:
        """Have LOCAL send a frame, which leaves by its uplink."""
        if bridge not in self._wires:
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            wire.bind((bridge, 0))
            self._wires[bridge] = wire
        wire = self._wires[bridge]
        source = wire.getsockname()[4]
        destination = b"\x02\x1b\xff\xff\xff\xff"
        header = destination + source + struct.pack("!H", ETHERTYPE_EXPERIMENTAL)
        wire.send(header.ljust(FRAME_BYTES, b"\0"))

    def speak_for(self, bridges: list[str], duration_s: float, interval_s: float) -> None:
        """Have LOCAL of each send at this interval."""
        end_s = time.monotonic() + duration_s
        while (begin_s := time.monotonic()) < end_s:
            for bridge in bridges:
                self.speak(bridge)
            time.sleep(max(0.0, begin_s + interval_s - time.monotonic()))

    def _made(self, name: str) -> list[str]:
        """The words that make a bridge, record by record: `add-port` looks at all ports again."""
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
                # A patch port would be taken for a VM's.
                words += ["external_ids:ovs-lbt-role=active"]
            words += ["--", f"--id=@p{port}", "create", "port", f"name={port}"]
            words += [f"interfaces=@i{port}"]
        ports = ",".join(f"@p{port}" for port in types)
        # In fail mode secure from the beginning, as uplinks of their own would be a loop otherwise.
        words += ["--", f"--id=@b{name}", "create", "bridge", f"name={name}"]
        words += ["datapath_type=netdev", "fail_mode=secure", f"ports=[{ports}]"]
        return [*words, "--", "add", "Open_vSwitch", ".", "bridges", f"@b{name}"]


def _peer(uplink: str) -> str:
    return f"{uplink}x"


def _ip(lines: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="".join(lines), text=True, check=True)
