"""Counts the datagrams that arrive at an end system, exactly, and without a program that reads them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from topologies.connections.counters import udp_drops
from topologies.network.private_network import process_network


class Arrivals:
    """Sockets for some UDP ports of an end system. Their small buffers are full at once.

    The kernel counts what it drops there, which costs the machine less than a program that receives
    every datagram. The sockets also keep the end system from answering with ICMP.
    """

    def __init__(self, pid: int, ports: Sequence[int]) -> None:
        self._table = Path(f"/proc/{pid}/net/udp")
        self._resources = contextlib.ExitStack()
        self._sockets: dict[int, socket.socket] = {}
        self._read = dict.fromkeys(ports, 0)
        with process_network(pid):
            for port in ports:
                one = self._resources.enter_context(
                    socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                )
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that there is
                one.setblocking(False)
                one.bind(("", port))
                self._sockets[port] = one

    def count(self) -> dict[int, int]:
        """How many datagrams have arrived, by port; exact while none arrive."""
        for port, one in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.recv(1)
                    self._read[port] += 1
        drops = udp_drops(self._table.read_text())
        return {port: read + drops.get(port, 0) for port, read in self._read.items()}

    def close(self) -> None:
        self._resources.close()
