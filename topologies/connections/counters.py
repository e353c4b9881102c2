"""Open vSwitch's and the kernel's counters of flows and arrivals."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from topologies.network.private_network import process_network

_LOOKUPS = re.compile(r"lookups: hit:\d+ missed:(\d+) lost:\d+")
_FLOWS = re.compile(r"^ *flows: (\d+)$", re.MULTILINE)


def flows_and_upcalls(shown: str) -> tuple[int, int]:
    """A datapath's cached flows, and the frames that matched none since its start, from `dpctl/show`.

    Raises:
        ValueError: the output has another format.
    """
    lookups, flows = _LOOKUPS.search(shown), _FLOWS.search(shown)
    if lookups is None or flows is None:
        raise ValueError(f"dpctl/show printed no look-ups or flows: {shown[:200]!r}")
    return int(flows[1]), int(lookups[1])


def udp_drops(table: str) -> dict[int, int]:
    """The number of datagrams that sockets dropped, by local port, from /proc/net/udp."""
    found: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        found[port] = found.get(port, 0) + int(fields[-1])
    return found


class Arrivals:
    """Sockets for some UDP ports of an end system. Their small buffers are full immediately.

    The kernel counts the datagrams that it drops there, which costs the machine less than a program
    that receives every datagram. The sockets also keep the end system from answering with ICMP.
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
        """The number of datagrams that have arrived, by port; exact while none arrive."""
        for port, one in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.recv(1)
                    self._read[port] += 1
        drops = udp_drops(self._table.read_text())
        return {port: read + drops.get(port, 0) for port, read in self._read.items()}

    def close(self) -> None:
        self._resources.close()
