"""Sets and clears the port flag `no-flood`, over an OpenFlow 1.0 connection made for this.

NORMAL does not flood to ports that have this flag. Only OpenFlow 1.0 can set and show it, so the
bridge's OpenFlow 1.3 connection cannot be used.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from controller.api.events import PortFlagsSet, SetPortFlags
from controller.host import faults
from controller.host.sockets import BridgeSocket, Unreachable

LOG = logging.getLogger(__name__)

TIMEOUT_S = 5.0

# OpenFlow 1.0.0, sections 5.1 to 5.3.
VERSION = 0x01
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
FEATURES_REQUEST, FEATURES_REPLY, PORT_MOD, BARRIER_REQUEST, BARRIER_REPLY = 5, 6, 15, 18, 19
NO_FLOOD = 1 << 4
HEADER = struct.Struct("!BBHI")
FEATURES_BYTES = 24  # what precedes the ports in a features reply
PORT = struct.Struct("!H6s16sIIIIII")
HELLO_FAILED = b"\0\0"
NO_OPENFLOW_1_0 = "the switch closed the connection -> OpenFlow10 among the bridge's protocols"
PORT_CHANGE = struct.Struct("!H6sIII4x")


class Refused(Exception):
    """The switch does not set the flags. The text says `found -> expected`."""


class Stream(Protocol):
    """The methods of a socket that the exchange needs."""

    def settimeout(self, timeout_s: float | None, /) -> None: ...
    def recv(self, count: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...


def start(
    dial: Callable[[], BridgeSocket], command: SetPortFlags, submit: Callable[[PortFlagsSet], None]
) -> None:
    """Carry out a command on a new thread, over a connection that `dial` makes.

    `submit` gets the answer, also when the exchange fails.
    """

    def run() -> None:
        answer = PortFlagsSet(command.bridge, command.number, frozenset())
        try:
            with closing(dial()) as wire:
                there, before = set_flags(wire, command.no_flood, command.flood)
                answer = replace(answer, no_flood=there, before=before)
        except (OSError, Refused, Unreachable, ValueError) as failure:
            answer = replace(answer, error=str(failure) or type(failure).__name__)
        submit(answer)

    def failed(found: str) -> None:
        submit(PortFlagsSet(command.bridge, command.number, frozenset(), error=found))

    faults.once("port-flags", f"port flags {command.bridge}", run, failed)


def set_flags(
    sock: Stream, no_flood: frozenset[int], flood: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Set the flag of the ports in `no_flood`, and clear it for those in `flood`.

    Ports that have the wanted setting are not modified. Returns the ports of `no_flood` that the
    bridge has, and all ports that had the flag before.

    Raises:
        Refused: the switch does not support OpenFlow 1.0, or refuses a change.
        OSError: the connection failed, or a read or write took longer than `TIMEOUT_S`.
    """
    sock.settimeout(TIMEOUT_S)
    _send(sock, _message(HELLO))
    ports = list(_ports(_ask(sock, FEATURES_REQUEST, FEATURES_REPLY)))
    changes = [
        _message(PORT_MOD, PORT_CHANGE.pack(number, address, wanted, NO_FLOOD, 0))
        for number, address, config in ports
        if number in no_flood | flood
        for wanted in [NO_FLOOD if number in no_flood else 0]
        if config & NO_FLOOD != wanted
    ]
    if changes:
        _send(sock, b"".join(changes))
        _ask(sock, BARRIER_REQUEST, BARRIER_REPLY)
    before = frozenset(number for number, _, config in ports if config & NO_FLOOD)
    return no_flood & {number for number, _, _ in ports}, before


def _message(kind: int, body: bytes = b"", xid: int = 0) -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def _ask(sock: Stream, request: int, reply: int) -> bytes:
    """Send a request, and return the body of its reply.

    An error that precedes the reply concerns this request or a message before it.

    Raises:
        Refused: the switch answered with an error, or closed the connection.
    """
    _send(sock, _message(request))
    while True:
        _, kind, length, xid = HEADER.unpack(_read(sock, HEADER.size))
        body = _read(sock, length - HEADER.size)
        if kind == reply:
            return body
        if kind == ERROR and body[:2] == HELLO_FAILED:
            raise Refused(NO_OPENFLOW_1_0)
        if kind == ERROR:
            raise Refused(f"OpenFlow error {body[:4].hex()} -> a switch that sets no-flood")
        if kind == ECHO_REQUEST:
            _send(sock, _message(ECHO_REPLY, body, xid))


def _send(sock: Stream, data: bytes) -> None:
    try:
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        raise Refused(NO_OPENFLOW_1_0) from None


def _read(sock: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := sock.recv(size - len(data))):
            raise Refused(NO_OPENFLOW_1_0)
        data += part
    return data


def _ports(features: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield the number, the hardware address and the configuration bits of each port."""
    whole = len(features) - (len(features) - FEATURES_BYTES) % PORT.size
    for offset in range(FEATURES_BYTES, whole, PORT.size):
        number, address, _, config, *_ = PORT.unpack_from(features, offset)
        yield number, address, config
