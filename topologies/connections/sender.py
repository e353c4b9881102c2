"""Sends the datagrams of many connections from one end system, at given rates.

A connection is a pair of UDP ports. The sender *keeps* the first connections: it sends their datagrams in
turn, at a constant rate, so that switches keep them cached. And it *opens* others: it sends the datagrams
of connections that no switch has seen yet, each once.

Datagrams that are more than `MAX_DELAY_S` late are not sent, because a burst would make the network lose
some: the rate is lower instead.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from topologies.loads.traffic import HEADERS_BYTES, NUMBER, TICK_S, Sending
from topologies.network.private_network import process_network

# Destination ports count up from the first one, each with this number of source ports.
FIRST_SOURCE_PORT, SOURCE_PORTS = 1024, 60_000
FIRST_PORT = 7100
_UDP = struct.Struct("!HHHH")
# What a datagram counts towards the rate of its `Sending`, which numbers it.
DATAGRAM_BITS = (NUMBER.size + HEADERS_BYTES) * 8


def ports(connection: int) -> tuple[int, int]:
    """The source and destination port of a connection, by its number from 0 on."""
    return (
        FIRST_SOURCE_PORT + connection % SOURCE_PORTS,
        FIRST_PORT + connection // SOURCE_PORTS,
    )


def first_of_next_port(connections: int) -> int:
    """The first connection of a destination port that this many connections do not use."""
    return -(-connections // SOURCE_PORTS) * SOURCE_PORTS


def datagram(connection: int, frame_bytes: int) -> bytes:
    """A connection's datagram, for a frame of this length.

    It has no checksum, which IPv4 permits: it would differ for each connection.
    """
    udp_bytes = frame_bytes - HEADERS_BYTES + _UDP.size
    return _UDP.pack(*ports(connection), udp_bytes, 0).ljust(udp_bytes, b"\0")


class Sender:
    """Keeps some connections and opens others. `send` sends a connection's datagram, or raises an `OSError`.

    Attributes:
        next: the next connection to open.
    """

    def __init__(self, send: Callable[[int], object]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._kept = self._at = 0
        self.next = self._end = 0
        self._keeping = Sending(self._keep_one, NUMBER.size)
        self._opening = Sending(self._open_one, NUMBER.size)

    def keep(self, connections: int, per_s: float) -> None:
        """Keep the first connections, with this number of datagrams a second for all together."""
        with self._lock:
            self._kept = connections
            self._keeping.change_rate(per_s * DATAGRAM_BITS, time.monotonic())

    def open(self, first: int, end: int, per_s: float) -> None:
        """Open this number of connections a second, from the first one to the one before the end."""
        with self._lock:
            self.next, self._end = first, end
            self._opening.change_rate(per_s * DATAGRAM_BITS, time.monotonic())

    def round(self, now_s: float) -> None:
        """Send the datagrams that are due."""
        with self._lock:
            self._keeping.send(now_s)
            self._opening.send(now_s)

    def _keep_one(self, _payload: bytearray) -> None:
        if self._kept:
            self._send(self._at % self._kept)
            self._at = (self._at + 1) % self._kept

    def _open_one(self, _payload: bytearray) -> None:
        if self.next < self._end:
            self._send(self.next)
            self.next += 1


@contextlib.contextmanager
def sending(pid: int, address: str, frame_bytes: int) -> Iterator[Sender]:
    """A sender from the network namespace of a process to an address, in a thread."""
    ended = threading.Event()
    with process_network(pid):
        endpoint = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    with endpoint:
        endpoint.setblocking(False)
        endpoint.connect((address, 0))
        sender = Sender(lambda connection: endpoint.send(datagram(connection, frame_bytes)))

        def run() -> None:
            while not ended.wait(TICK_S):
                sender.round(time.monotonic())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield sender
        finally:
            ended.set()
            thread.join()
