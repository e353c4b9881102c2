"""Questions to a running ovs-vswitchd, many of them, over one connection."""

from __future__ import annotations

import json
import socket

from topologies.private_ovs import PrivateOvs


class Appctl:
    """What `ovs-appctl` does, without a process for each question.

    Raises:
        ValueError: the daemon refused a question, or ended.
    """

    def __init__(self, ovs: PrivateOvs) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"{ovs.rundir}/ovs-vswitchd.{ovs.pid('ovs-vswitchd')}.ctl")

    def close(self) -> None:
        self._socket.close()

    def ask(self, method: str, *words: str) -> str:
        """The answer to one command: JSON-RPC, on a stream."""
        self._socket.sendall(json.dumps({"id": 0, "method": method, "params": words}).encode())
        text = b""
        while True:
            part = self._socket.recv(1 << 16)
            if not part:
                raise ValueError(f"ovs-vswitchd hung up at {method}")
            text += part
            try:
                answer = json.loads(text)
            except ValueError:
                continue
            if answer["error"] is not None:
                raise ValueError(f"{method} {' '.join(words)}: {answer['error']}")
            return str(answer["result"])
