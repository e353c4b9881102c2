"""A connection in another version of OpenFlow, for one request that OpenFlow 1.3 cannot express."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Protocol

TIMEOUT_S = 5.0
# A switch that sends other messages instead, or a byte at a time, may not keep the thread for longer.
ANSWER_TIMEOUT_S = 30.0

# These are the same in every version of OpenFlow.
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
HEADER = struct.Struct("!BBHI")
# The type, or the type and code, of errors about the version. Of a hello without a list of versions,
# a switch takes it that every earlier one will do as well.
HELLO_FAILED, BAD_VERSION = b"\0\0", b"\0\1\0\0"


class Refused(Exception):
    """The switch does not do what it was asked. The text says `found -> expected`."""


class Stream(Protocol):
    """The methods of a socket that the exchange needs."""

    def settimeout(self, timeout_s: float | None, /) -> None: ...
    def recv(self, count: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...


class SideConnection:
    """An exchange of messages in one version of OpenFlow.

    `version`: the number in headers. `protocol`: what Open vSwitch calls the version. `expected`:
    what a switch is expected to be if it answers with an error. The version is offered at once.

    Raises, as every method does:
        Refused: the switch does not support the version, or answers with an error.
        OSError: the connection failed, a read or write took longer than `timeout_s`, or a reply longer
            than `ANSWER_TIMEOUT_S`.
    """

    def __init__(
        self, stream: Stream, version: int, protocol: str, expected: str, timeout_s: float
    ) -> None:
        self._stream = stream
        self._version = version
        self._expected = expected
        self._closed = (
            f"the switch does not speak {protocol} -> {protocol} among the bridge's protocols"
        )
        self._until_s = 0.0
        stream.settimeout(timeout_s)
        self.send([self.message(HELLO)])

    def message(self, kind: int, body: bytes = b"", xid: int = 0) -> bytes:
        return HEADER.pack(self._version, kind, HEADER.size + len(body), xid) + body

    def send(self, messages: Iterable[bytes]) -> None:
        try:
            self._stream.sendall(b"".join(messages))
        except (BrokenPipeError, ConnectionResetError):
            raise Refused(self._closed) from None

    def ask(self, request: int, reply: int) -> bytes:
        """Send a request, and return the body of its reply.

        An error that precedes the reply concerns this request or a message before it.
        """
        self.send([self.message(request)])
        self._until_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            _, kind, length, xid = HEADER.unpack(self._read(HEADER.size))
            body = self._read(length - HEADER.size)
            if kind == reply:
                return body
            if kind == ERROR and (body[:2] == HELLO_FAILED or body[:4] == BAD_VERSION):
                raise Refused(self._closed)
            if kind == ERROR:
                raise Refused(f"OpenFlow error {body[:4].hex()} -> {self._expected}")
            if kind == ECHO_REQUEST:
                self.send([self.message(ECHO_REPLY, body, xid)])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (part := self._stream.recv(size - len(data))):
                raise Refused(self._closed)
            if time.monotonic() > self._until_s:
                raise TimeoutError("no reply in time")
            data += part
        return data
