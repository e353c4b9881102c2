"""Questions to a running daemon of Open vSwitch's, many of them, over one connection."""

from __future__ import annotations

import json
import socket

from tests.switch.waiting import HANG_S
from topologies.network.private_ovs import PrivateOvs

ANSWERS_WITHIN_S = HANG_S


class Appctl:
    """What `ovs-appctl` does, without a process for each question.

    Raises:
        ValueError: the daemon refused a question, or ended.
        OSError: it does not run, or does not answer in time.
    """

    def __init__(self, ovs: PrivateOvs, daemon: str = "ovs-vswitchd") -> None:
        self._daemon = daemon
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWERS_WITHIN_S)
        try:
            self._socket.connect(f"{ovs.rundir}/{daemon}.{ovs.pid(daemon)}.ctl")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def ask(self, method: str, *words: str) -> str:
        """The answer to one command."""
        self.send(method, *words)
        return self.answer()

    def send(self, method: str, *words: str) -> None:
        """Ask, and do not wait: JSON-RPC, on a stream."""
        self._asked = f"{method} {' '.join(words)}"
        self._socket.sendall(json.dumps({"id": 0, "method": method, "params": words}).encode())

    def answer(self) -> str:
        """The answer to what was sent last."""
        text = b""
        while True:
            part = self._socket.recv(1 << 16)
            if not part:
                raise ValueError(f"{self._daemon} hung up at {self._asked}")
            text += part
            try:
                answer = json.loads(text)
            except ValueError:
                continue
            if answer["error"] is not None:
                raise ValueError(f"{self._asked}: {answer['error']}")
            return str(answer["result"])
