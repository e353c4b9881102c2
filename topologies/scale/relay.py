"""A relay between the service and a bridge that records when messages pass.

The relay replaces the bridge's management socket, and forwards all bytes as they arrive.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_HEADER = struct.Struct("!BBHI")
PORT_STATUS, EXPERIMENTER = 12, 4
# The changes of a bundle take effect with its commit request, an ONF extension message.
_ONF, _BUNDLE_CONTROL, _COMMIT_REQUEST = 0x4F4E4600, 2300, 4
_EXPERIMENTER = struct.Struct("!II4xH")
READ_BYTES = 1 << 16


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
    """A relay for one management socket; a context manager.

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
