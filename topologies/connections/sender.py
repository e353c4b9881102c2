"""Sends the frames of many connections from one end system, at given rates.

A connection is a pair of UDP ports, and each has a frame of its own, made before the start. The sender
*keeps* the first connections: it sends their frames in turn, at a constant rate, so that switches keep
them cached. And it *opens* others: it sends the frames of connections that no switch has seen yet, each
once. An order, which is answered by the counters, has any of these:

    keep          the number of connections to keep, from the first one on
    keep_per_s    how many frames a second they get together
    open          the first connection to open, and the one after the last
    open_per_s    how many connections to open in a second

Frames that are more than `MAX_DELAY_S` late are not sent, because a burst would make the network lose
frames: the rate is lower instead, and `skipped` counts these frames.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

from topologies.network.private_network import process_network

# Destination ports count up from the first one, each with this number of source ports.
FIRST_SOURCE_PORT, SOURCE_PORTS = 1024, 60_000
FIRST_PORT = 7100
TICK_S = 0.001
MAX_DELAY_S = 0.01
# The kernel's UIO_MAXIOV.
MOST_AT_ONCE = 1024
ETH_IPV4, IPV4_UDP, TTL = 0x0800, 17, 64
_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
HEADERS_BYTES = _ETHERNET.size + _IPV4.size + _UDP.size
# A `struct iovec`, and a `struct mmsghdr`: name, its length, vector, its length, control data, its
# length, flags; and the length sent.
_IOVEC = struct.Struct("@PN")
_MMSGHDR = struct.Struct("@PIPNPNi0PI0P")
_LIBC = ctypes.CDLL(None, use_errno=True)


def ports(connection: int) -> tuple[int, int]:
    """The source and destination port of a connection, by its number from 0 on."""
    return (
        FIRST_SOURCE_PORT + connection % SOURCE_PORTS,
        FIRST_PORT + connection // SOURCE_PORTS,
    )


def first_of_next_port(connections: int) -> int:
    """The first connection of a destination port that this many connections do not use."""
    return -(-connections // SOURCE_PORTS) * SOURCE_PORTS


def header(
    macs: tuple[bytes, bytes],
    addresses: tuple[bytes, bytes],
    connection: int,
    payload_bytes: int,
) -> bytes:
    """The headers of a connection's frame. MACs and addresses are source and destination."""
    source, destination = ports(connection)
    udp_bytes = _UDP.size + payload_bytes
    # Without a UDP checksum, which IPv4 permits: it would differ for each connection.
    fields = (0x45, 0, _IPV4.size + udp_bytes, 0, 0, TTL, IPV4_UDP)
    ip = _IPV4.pack(*fields, 0, *addresses)
    ip = _IPV4.pack(*fields, _checksum(ip), *addresses)
    ethernet = _ETHERNET.pack(macs[1], macs[0], ETH_IPV4)
    return ethernet + ip + _UDP.pack(source, destination, udp_bytes, 0)


def _checksum(header_: bytes) -> int:
    total = sum(struct.unpack(f"!{len(header_) // 2}H", header_))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Rate:
    """Frames that are due at a constant rate.

    Attributes:
        skipped: the number of frames that were due, but too late.
    """

    def __init__(self) -> None:
        self.per_s = 0.0
        self.skipped = 0
        self._from_s = 0.0
        self._taken = 0

    def set(self, per_s: float, now_s: float) -> None:
        """Use another rate from now on."""
        self.per_s, self._from_s, self._taken = per_s, now_s, 0

    def due(self, now_s: float) -> int:
        """Return the number of frames that are due now, and count them as taken."""
        found = int((now_s - self._from_s) * self.per_s) - self._taken
        most = max(1, int(self.per_s * MAX_DELAY_S))
        late = max(0, found - most)
        self.skipped += late
        self._taken += found
        return found - late


class Frames:
    """The frames of all connections, ready to be sent by `sendmmsg`."""

    def __init__(self, headers: Sequence[bytes], payload_bytes: int) -> None:
        count = len(headers)
        self._headers = ctypes.create_string_buffer(b"".join(headers), HEADERS_BYTES * count)
        self._payload = ctypes.create_string_buffer(payload_bytes)
        self._vectors = ctypes.create_string_buffer(2 * _IOVEC.size * count)
        self._messages = ctypes.create_string_buffer(_MMSGHDR.size * count)
        first, payload = ctypes.addressof(self._headers), ctypes.addressof(self._payload)
        vectors = ctypes.addressof(self._vectors)
        for number in range(count):
            at = 2 * _IOVEC.size * number
            _IOVEC.pack_into(
                self._vectors, at, first + HEADERS_BYTES * number, len(headers[number])
            )
            _IOVEC.pack_into(self._vectors, at + _IOVEC.size, payload, payload_bytes)
            message = (0, 0, vectors + at, 2, 0, 0, 0, 0)
            _MMSGHDR.pack_into(self._messages, _MMSGHDR.size * number, *message)
        self._first = ctypes.addressof(self._messages)

    def send(self, endpoint: socket.socket, first: int, count: int) -> int:
        """Send the frames of `count` connections from `first` on. Returns how many were sent."""
        sent = 0
        while sent < count:
            at = ctypes.c_void_p(self._first + _MMSGHDR.size * (first + sent))
            some = min(MOST_AT_ONCE, count - sent)
            done = _LIBC.sendmmsg(endpoint.fileno(), at, some, socket.MSG_DONTWAIT)
            if done <= 0:  # no room
                break
            sent += done
        return sent


class Sender:
    """Keeps some connections and opens others."""

    def __init__(self, frames: Frames, endpoint: socket.socket) -> None:
        self._frames, self._endpoint = frames, endpoint
        self._keep = self._at = 0
        self._next = self._end = 0
        self._keeping, self._opening = Rate(), Rate()
        self._kept = self._opened = self._unsent = 0

    def order(self, order: dict[str, Any], now_s: float) -> dict[str, int]:
        """Carry out an order. Returns the counters."""
        if "keep" in order:
            self._keep = order["keep"]
            self._at = 0 if self._at >= self._keep else self._at
        if "keep_per_s" in order:
            self._keeping.set(order["keep_per_s"], now_s)
        if "open" in order:
            self._next, self._end = order["open"]
            self._opening.set(order["open_per_s"], now_s)
        return {
            "kept": self._kept,
            "opened": self._opened,
            "next": self._next,
            "skipped": self._keeping.skipped,
            "unsent": self._unsent,
        }

    def round(self, now_s: float) -> None:
        """Send the frames that are due."""
        due = self._keeping.due(now_s)
        while due > 0 and self._keep:
            some = min(due, self._keep - self._at)
            sent = self._frames.send(self._endpoint, self._at, some)
            self._kept += sent
            self._unsent += some - sent
            self._at = (self._at + some) % self._keep
            due -= some
        if self._next < self._end:
            some = min(self._opening.due(now_s), self._end - self._next)
            sent = self._frames.send(self._endpoint, self._next, some)
            self._opened += sent
            self._next += sent


class Sending:
    """A sender in the network namespace of a process, from a thread; a context manager."""

    def __init__(self, pid: int, interface: str, frames: Frames) -> None:
        with process_network(pid):
            self._endpoint = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self._endpoint.bind((interface, 0))
        self._sender = Sender(frames, self._endpoint)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._endpoint.close()

    def order(self, **order: Any) -> dict[str, int]:
        """Give an order; without arguments, only read the counters.

        Raises:
            RuntimeError: the sender has ended.
        """
        if not self._thread.is_alive():
            raise RuntimeError("the sender has ended")
        with self._lock:
            return self._sender.order(order, time.monotonic())

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._lock:
                self._sender.round(time.monotonic())
