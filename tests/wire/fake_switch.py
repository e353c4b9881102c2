"""An OpenFlow 1.3 switch of a few lines: bytes over a Unix socket, nothing behind them."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

VERSION = 4
HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 0, 2, 3, 5, 6
MULTIPART_REQUEST, MULTIPART_REPLY, ROLE_REQUEST, ROLE_REPLY, SET_ASYNC = 18, 19, 24, 25, 28
ERROR, EXPERIMENTER = 1, 4
NOCHANGE, EQUAL, MASTER, SLAVE = 0, 1, 2, 3
# OpenFlow 1.4's role status, as an extension of 1.3.
ROLE_STATUS = 1911
NO_GENERATION = (1 << 64) - 1
PORT_STATS, PORT_DESC = 4, 13
# A port has changed, and how.
PORT_STATUS, ADD, DELETE, MODIFY = 12, 0, 1, 2
HEADER = struct.Struct("!BBHI")
ROLE = struct.Struct("!I4xQ")


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def port(number: int, name: str) -> bytes:
    """A port description: link up, 10 Gbit/s."""
    speeds_kbps = (10_000_000, 10_000_000)
    return struct.pack("!I4x6s2x16s24xII", number, bytes(6), name.encode(), *speeds_kbps)


class FakeSwitch:
    """Listens where a bridge's management socket would be."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(10)
        self._connection: socket.socket | None = None
        # By which a controller has become master, or wants to; the types of what it has said.
        self.generation = NO_GENERATION
        self.heard: set[int] = set()
        self.datapath_id = 1
        # The roles that the last controller has asked for.
        self.asked_for: list[int] = []
        self._claim = 0

    @property
    def connection(self) -> socket.socket:
        assert self._connection is not None, "nobody has dialled"
        return self._connection

    def accept(self) -> None:
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(10)

    def call(self, address: tuple[str, int]) -> None:
        """Dial the controller instead."""
        self._connection = socket.create_connection(address, timeout=10)

    def shake_hands(self, grants: bool = True) -> None:
        """From hello to the role of master, which the controller asks for last."""
        self.asked_for = []
        self.connection.sendall(message(HELLO, 1))
        while True:
            kind, xid, body = self.receive()
            if kind == FEATURES_REQUEST:
                features = struct.pack("!QIBB2xII", self.datapath_id, 0, 254, 0, 0x4F, 0)
                self.connection.sendall(message(FEATURES_REPLY, xid, features))
            elif kind == MULTIPART_REQUEST:
                ports = port(1, "eth1") + port(0xFFFFFFFE, "br0")
                reply = struct.pack("!HH4x", PORT_DESC, 0) + ports
                self.connection.sendall(message(MULTIPART_REPLY, xid, reply))
            elif kind == ROLE_REQUEST:
                role, generation = ROLE.unpack(body)
                self.asked_for.append(role)
                if role == MASTER:
                    self.generation, self._claim = generation, xid
                    if grants:
                        self.grant()
                    return
                known = ROLE.pack(EQUAL, self.generation)
                self.connection.sendall(message(ROLE_REPLY, xid, known))

    def grant(self) -> None:
        """The controller is master from here on."""
        body = ROLE.pack(MASTER, self.generation)
        self.connection.sendall(message(ROLE_REPLY, self._claim, body))

    def receive(self) -> tuple[int, int, bytes]:
        """The next message as (type, xid, body).

        Raises:
            EOFError: the controller has hung up.
        """
        _, kind, length, xid = HEADER.unpack(self._exactly(HEADER.size))
        self.heard.add(kind)
        return kind, xid, self._exactly(length - HEADER.size)

    def hang_up(self) -> None:
        self.connection.close()

    def stop(self) -> None:
        self._listener.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.connection.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data
