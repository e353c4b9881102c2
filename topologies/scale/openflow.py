"""OpenFlow connections of the bench: one that watches a bridge's groups, and a relay that times messages."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

VERSION = 4
HELLO, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER, SET_CONFIG, PORT_STATUS = 0, 2, 3, 4, 9, 12
MULTIPART_REQUEST, MULTIPART_REPLY, GROUP_DESC = 18, 19, 7
REPLY_MORE = 1
# The changes of a bundle take effect with its commit request, an ONF extension message.
_ONF, _BUNDLE_CONTROL, _COMMIT_REQUEST = 0x4F4E4600, 2300, 4
_HEADER, _MULTIPART, _EXPERIMENTER = (struct.Struct(f) for f in ("!BBHI", "!HH4x", "!II4xH"))
READ_BYTES = 1 << 16
TIMEOUT_S = 5.0


class Messages:
    """Splits a stream of OpenFlow messages."""

    def __init__(self) -> None:
        self._bytes = b""

    def of(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete."""
        self._bytes += data
        found = []
        while len(self._bytes) >= _HEADER.size:
            length = max(_HEADER.size, _HEADER.unpack_from(self._bytes)[2])
            if len(self._bytes) < length:
                break
            found.append(self._bytes[:length])
            self._bytes = self._bytes[length:]
        return found


def is_port_status(message: bytes) -> bool:
    """Whether the switch reports a port."""
    return message[1] == PORT_STATUS


def commits(message: bytes) -> bool:
    """Whether the service changes groups or flows now, which it always does in a bundle."""
    if message[1] != EXPERIMENTER or len(message) < _HEADER.size + _EXPERIMENTER.size:
        return False
    found = _EXPERIMENTER.unpack_from(message, _HEADER.size)
    return found == (_ONF, _BUNDLE_CONTROL, _COMMIT_REQUEST)


class Relay:
    """A relay for one management socket, which it replaces, between the service and a bridge; a context manager.

    It forwards all bytes as they arrive, and records when messages pass.
    `service_s()` is how long the service took from the first message about a port after `begin`
    until it had sent its next bundle, with the commit.
    """

    def __init__(self, management_socket: Path) -> None:
        self._path = management_socket
        self.switch_socket = management_socket.with_suffix(".real")
        self._told_s: float | None = None
        self._followed_s: float | None = None
        self._over = threading.Event()

    def __enter__(self) -> Relay:
        self._path.rename(self.switch_socket)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.switch_socket.rename(self._path)

    def begin(self) -> None:
        """Forget the messages that have passed."""
        self._told_s = self._followed_s = None

    def service_s(self) -> float | None:
        """The service's part of a failover; None if it has not followed yet."""
        told_s, followed_s = self._told_s, self._followed_s
        return None if told_s is None or followed_s is None else followed_s - told_s

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                service, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(service,), daemon=True).start()

    def _pass(self, service: socket.socket) -> None:
        switch = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with service, switch, selectors.DefaultSelector() as selector:
            switch.connect(str(self.switch_socket))
            from_switch, from_service = Messages(), Messages()
            selector.register(switch, selectors.EVENT_READ)
            selector.register(service, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                while not self._over.is_set():
                    for key, _ in selector.select(1.0):
                        is_switch = key.fileobj is switch
                        source, target = (switch, service) if is_switch else (service, switch)
                        data = source.recv(READ_BYTES)
                        if not data:
                            return
                        messages = (from_switch if is_switch else from_service).of(data)
                        self._note(is_switch, messages, time.monotonic())
                        target.sendall(data)

    def _note(self, is_switch: bool, messages: Sequence[bytes], now_s: float) -> None:
        if is_switch and self._told_s is None and any(map(is_port_status, messages)):
            self._told_s = now_s
        told = self._told_s is not None and self._followed_s is None
        if told and not is_switch and any(map(commits, messages)):
            self._followed_s = now_s


class SwitchView:
    """An OpenFlow 1.3 connection to a bridge's management socket; a context manager.

    Raises:
        OSError: the bridge does not exist, or does not answer in time.
    """

    def __init__(self, management_socket: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(str(management_socket))
        self._messages, self._pending = Messages(), list[bytes]()
        self._send(HELLO)
        # The switch sends port status messages on this connection only after this.
        self._send(SET_CONFIG, struct.pack("!HH", 0, 128))

    def __enter__(self) -> SwitchView:
        return self

    def __exit__(self, *_: object) -> None:
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
            while not self._pending:
                received = self._socket.recv(READ_BYTES)
                if not received:
                    raise ConnectionError("the bridge closed the connection")
                self._pending += self._messages.of(received)
            message = self._pending.pop(0)
            _, kind, _, xid = _HEADER.unpack_from(message)
            body = message[_HEADER.size :]
            if kind == ECHO_REQUEST:
                self._send(ECHO_REPLY, body, xid)
            if kind == wanted:
                return body
