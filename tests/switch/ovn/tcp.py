"""A TCP connection between two VMs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from tests.switch.ovn.host import Vm
from tests.switch.waiting import HANG_S
from tests.switch.wire import inside

PORT = 5001
CHUNK = bytes(1000)
INTERVAL_S = 0.005


class Connection:
    """One VM sends to another at a steady rate while the block lasts."""

    def __init__(self, sender: Vm, receiver: Vm) -> None:
        self._vms = (sender, receiver)
        self._stop = threading.Event()
        self._sent = self._received = 0

    def __enter__(self) -> Connection:
        sender, receiver = self._vms
        # A socket stays in the namespace that it was made in.
        with inside(receiver.name):
            listening = socket.create_server((receiver.ip, PORT))
        with contextlib.closing(listening):
            with inside(sender.name):
                self._out = socket.create_connection((receiver.ip, PORT), HANG_S)
            self._in, _ = listening.accept()
        self._in.settimeout(HANG_S)
        self._threads = [threading.Thread(target=one) for one in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._in.close()
        self._out.close()

    @property
    def unbroken(self) -> bool:
        """After the block: whether all that was sent has arrived."""
        return 0 < self._sent == self._received

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stop.is_set():
                self._out.sendall(CHUNK)
                self._sent += len(CHUNK)
                time.sleep(INTERVAL_S)
            self._out.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._in.recv(1 << 16):
                self._received += len(data)
