"""The port flag `no-flood`, in a short OpenFlow 1.0 exchange of its own.

NORMAL leaves ports with this flag out when it floods. Only OpenFlow 1.0 has it: later
versions neither set nor show it, so it takes a connection beside the one that we keep.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from controller.events import PortFlagsSet, SetPortFlags

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
NO_OPENFLOW_1_0 = "the switch hangs up -> OpenFlow10 among the bridge's protocols"
PORT_CHANGE = struct.Struct("!H6sIII4x")


class Refused(Exception):
    """The switch does not do it; the text says what it answered -> what was expected."""


def start(path: Path, command: SetPortFlags, submit: Callable[[PortFlagsSet], None]) -> None:
    """Carry out a command on the management socket at `path`, on a thread of its own."""

    def run() -> None:
        no_flood, error = frozenset[int](), None
        try:
            with _dial(path) as sock:
                no_flood = set_flags(sock, command.no_flood, command.flood)
        except (OSError, Refused) as failure:
            error = str(failure) or type(failure).__name__
        submit(PortFlagsSet(command.bridge, command.number, no_flood, error))

    threading.Thread(target=run, name=f"port flags {command.bridge}", daemon=True).start()


def set_flags(
    sock: socket.socket, no_flood: frozenset[int], flood: frozenset[int]
) -> frozenset[int]:
    """Set and clear the flag where it differs; those of `no_flood` that are there.

    Raises:
        Refused: the switch speaks no OpenFlow 1.0, or refuses a change.
        OSError: the connection failed, or it took longer than `TIMEOUT_S`.
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
    return no_flood & {number for number, _, _ in ports}


def _dial(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(TIMEOUT_S)
    # A socket's address holds about 100 bytes; the way over the directory is short.
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{directory}/{path.name}")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(directory)
    return sock


def _message(kind: int, body: bytes = b"", xid: int = 0) -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def _ask(sock: socket.socket, request: int, reply: int) -> bytes:
    """Send a request; the body of its reply. An error before it is about our messages."""
    _send(sock, _message(request))
    while True:
        _, kind, length, xid = HEADER.unpack(_read(sock, HEADER.size))
        body = _read(sock, length - HEADER.size)
        if kind == reply:
            return body
        if kind == ERROR and body[:2] == HELLO_FAILED:
            raise Refused(NO_OPENFLOW_1_0)
        if kind == ERROR:
            raise Refused(f"OpenFlow error {body[:4].hex()} -> port flags set")
        if kind == ECHO_REQUEST:
            _send(sock, _message(ECHO_REPLY, body, xid))


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        raise Refused(NO_OPENFLOW_1_0) from None


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := sock.recv(size - len(data))):
            raise Refused(NO_OPENFLOW_1_0)
        data += part
    return data


def _ports(features: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Number, hardware address and configuration of each port."""
    whole = len(features) - (len(features) - FEATURES_BYTES) % PORT.size
    for offset in range(FEATURES_BYTES, whole, PORT.size):
        number, address, _, config, *_ = PORT.unpack_from(features, offset)
        yield number, address, config
