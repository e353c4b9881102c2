"""A VM's port leaves one host's bridge and appears at another's, and the VM is announced there.

The announcement is what a hypervisor sends for a VM that has arrived, at once and a few
times more: a broadcast RARP with the VM's address as its source, in at the VM's port, so
that the network learns where it is now.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topologies.network.private_network import network_of
from topologies.network.private_ovs import PrivateOvs

# As QEMU does it (announce-initial, announce-step, announce-rounds): the waits before each.
ANNOUNCED_AFTER_S = (0.0, 0.05, 0.15, 0.25, 0.35)
ETH_RARP, REVERSE_REQUEST = 0x8035, 3
BROADCAST = b"\xff" * 6
LEAST_FRAME_BYTES = 60


def announcement(mac: bytes) -> bytes:
    """The frame, untagged: a port's access VLAN is its switch's business."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, REVERSE_REQUEST) + 2 * (mac + bytes(4))
    frame = BROADCAST + mac + struct.pack("!H", ETH_RARP) + body
    return frame.ljust(LEAST_FRAME_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class Moved:
    """One handover: from when the port left to when it was there, on the monotonic clock."""

    left_s: float
    arrived_s: float


class Guest:
    """A VM's port, at the bridge where it is now, and its interface behind it.

    Raises:
        OSError: the VM has no such interface.
        RuntimeError: the port is at no bridge.
    """

    def __init__(
        self, ovs: PrivateOvs, port: str, interface: str, pid: int, vlan: int | None = None
    ) -> None:
        self._ovs = ovs
        self._port = port
        self._vlan = vlan
        self._here = ovs.vsctl("port-to-br", port)
        with network_of(pid):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._socket.bind((interface, 0))
        self._announcement = announcement(self._socket.getsockname()[4])

    def move(self, there: Mapping[str, str]) -> Moved:
        """Move the port to the bridge that stands there for the one it is at.

        Raises:
            RuntimeError: Open vSwitch refused; the message says why.
        """
        access = [] if self._vlan is None else [f"tag={self._vlan}"]
        left_s = time.monotonic()
        self._ovs.vsctl(
            *("del-port", self._here, self._port),
            *("--", "add-port", there[self._here], self._port, *access),
        )
        return Moved(left_s, time.monotonic())

    def announce(self, waits_s: Sequence[float] = ANNOUNCED_AFTER_S) -> None:
        """Announce the VM, each time after one of the waits."""
        for wait_s in waits_s:
            time.sleep(wait_s)
            # A link that is not up yet loses one, as on a host.
            with contextlib.suppress(OSError):
                self._socket.send(self._announcement)

    def close(self) -> None:
        self._socket.close()


def counterparts(bridges: Mapping[str, Sequence[str]], here: str, there: str) -> dict[str, str]:
    """For each of one server's bridges the other server's in the same place."""
    return dict(zip(bridges[here], bridges[there], strict=True))
