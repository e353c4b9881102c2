"""An OpenFlow connection that watches the groups of a bridge."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

VERSION = 4
HELLO, ECHO_REQUEST, ECHO_REPLY, SET_CONFIG, PORT_STATUS = 0, 2, 3, 9, 12
MULTIPART_REQUEST, MULTIPART_REPLY, GROUP_DESC = 18, 19, 7
REPLY_MORE = 1
_HEADER, _MULTIPART = (struct.Struct(f) for f in ("!BBHI", "!HH4x"))
TIMEOUT_S = 5.0


class SwitchView:
    """An OpenFlow 1.3 connection to a bridge's management socket; a context manager.

    Raises:
        OSError: the bridge does not exist, or does not answer in time.
    """

    def __init__(self, management_socket: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(str(management_socket))
        self._received = self._socket.makefile("rb")
        self._send(HELLO)
        # The switch sends port status messages on this connection only after this.
        self._send(SET_CONFIG, struct.pack("!HH", 0, 128))

    def __enter__(self) -> SwitchView:
        return self

    def __exit__(self, *_: object) -> None:
        self._received.close()
        self._socket.close()

    def groups(self) -> bytes:
        """The group descriptions of the bridge, as encoded by the switch."""
        self._send(MULTIPART_REQUEST, _MULTIPART.pack(GROUP_DESC, 0))
        groups = b""
        while True:
            body = self._await(MULTIPART_REPLY)
            _, flags = _MULTIPART.unpack_from(body)
            groups += body[_MULTIPART.size :]
            if not flags & REPLY_MORE:
                return groups

    def await_port_change(self) -> float:
        """Wait for a port status message, and return the time of its arrival."""
        self._await(PORT_STATUS)
        return time.monotonic()

    def await_group_change(self, before: bytes) -> tuple[float, float]:
        """Wait until the groups differ from `before`.

        Returns the time of the change, and the longest response time of the switch.

        Raises:
            TimeoutError: the groups did not change in time.
        """
        end_s, longest_s = time.monotonic() + TIMEOUT_S, 0.0
        while True:
            asked_s = time.monotonic()
            groups, answered_s = self.groups(), time.monotonic()
            longest_s = max(longest_s, answered_s - asked_s)
            if groups != before:
                return answered_s, longest_s
            if answered_s > end_s:
                raise TimeoutError(f"the groups did not follow the link state in {TIMEOUT_S:g} s")
            time.sleep(0.001)

    def _send(self, kind: int, body: bytes = b"", xid: int = 1) -> None:
        length = _HEADER.size + len(body)
        self._socket.sendall(_HEADER.pack(VERSION, kind, length, xid) + body)

    def _await(self, wanted: int) -> bytes:
        while True:
            header = self._received.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise ConnectionError("the bridge closed the connection")
            _, kind, length, xid = _HEADER.unpack(header)
            body = self._received.read(length - _HEADER.size)
            if kind == ECHO_REQUEST:
                self._send(ECHO_REPLY, body, xid)
            if kind == wanted:
                return body
