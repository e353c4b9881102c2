"""Moves a VM's port from one host's bridge to another's, and announces the VM there.

A hypervisor announces a VM that has arrived with broadcast RARP frames. Their source is the VM's
address and they enter at the VM's port, so the network learns the VM's new place.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

from topologies.network.private_network import process_network
from topologies.network.private_ovs import PrivateOvs

# The waits before each announcement, as in QEMU (announce-initial, announce-step, announce-rounds).
ANNOUNCEMENT_WAITS_S = (0.0, 0.05, 0.15, 0.25, 0.35)
ETH_RARP, REVERSE_REQUEST = 0x8035, 3
BROADCAST = b"\xff" * 6
MIN_FRAME_BYTES = 60


def announcement(mac: bytes) -> bytes:
    """The RARP frame. It is untagged, because the switch adds the port's access VLAN."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, REVERSE_REQUEST) + 2 * (mac + bytes(4))
    frame = BROADCAST + mac + struct.pack("!H", ETH_RARP) + body
    return frame.ljust(MIN_FRAME_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class Handover:
    """One port's handover: when it left a bridge and arrived at the other (monotonic clock)."""

    left_s: float
    arrived_s: float


class VmPort:
    """A VM's port on its current bridge, and the VM's interface behind it.

    Raises:
        OSError: the VM has no such interface.
        RuntimeError: the port is on no bridge.
    """

    def __init__(
        self, ovs: PrivateOvs, port: str, interface: str, pid: int, vlan: int | None = None
    ) -> None:
        self._ovs = ovs
        self._port = port
        self._vlan = vlan
        self._bridge = ovs.vsctl("port-to-br", port)
        with process_network(pid):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._socket.bind((interface, 0))
        self._announcement = announcement(self._socket.getsockname()[4])

    def move(self, counterparts: Mapping[str, str]) -> Handover:
        """Move the port to its bridge's counterpart on the other host.

        Raises:
            RuntimeError: Open vSwitch refused the change; the message has the reason.
        """
        access = [] if self._vlan is None else [f"tag={self._vlan}"]
        left_s = time.monotonic()
        self._ovs.vsctl(
            *("del-port", self._bridge, self._port),
            *("--", "add-port", counterparts[self._bridge], self._port, *access),
        )
        return Handover(left_s, time.monotonic())

    def announce(self) -> None:
        """Announce the VM once after each wait."""
        for wait_s in ANNOUNCEMENT_WAITS_S:
            time.sleep(wait_s)
            # As on a host, an announcement is lost if the link is not up yet.
            with contextlib.suppress(OSError):
                self._socket.send(self._announcement)

    def close(self) -> None:
        self._socket.close()
