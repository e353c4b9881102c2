"""Runs the programs of a load, and reads the JSON that they print."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.network import processes

TRAFFIC = [sys.executable, "-P", "-m", "topologies.loads.traffic"]


class Programs:
    """The processes of a load, by their roles. Their files in `directory` begin with `name`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, plan: Mapping[str, Any]) -> None:
        """Start a role of `traffic.py`."""
        path = self._path(role, "plan.json")
        path.write_text(json.dumps(plan))
        log, output = self._path(role, "log"), self._path(role, "json")
        command = [*TRAFFIC, role, str(path)]
        self._running[role] = processes.start(command, log, output=output, stdin=subprocess.PIPE)

    def start_in(self, namespace_pid: int, role: str, command: Sequence[str]) -> None:
        """Start another program in the network namespace of a process."""
        log, output = self._path(role, "log"), self._path(role, "json")
        self._running[role] = processes.start_in(namespace_pid, command, log, output=output)

    def __getitem__(self, role: str) -> subprocess.Popen[bytes]:
        return self._running[role]

    def order(self, role: str, order: Mapping[str, Any]) -> None:
        """Give an order to a role of `traffic.py`.

        Raises:
            OSError: it has ended.
        """
        orders = self._running[role].stdin
        assert orders is not None
        orders.write(json.dumps(order).encode() + b"\n")
        orders.flush()

    def stop(self, role: str) -> None:
        """Tell a role of `traffic.py` to end, if it was started and has not ended."""
        if role in self._running and (orders := self._running[role].stdin):
            with contextlib.suppress(OSError):
                orders.close()

    def require_running(self) -> None:
        """Check that no program has ended.

        Raises:
            RuntimeError: one has; the message has its role and the end of its log.
        """
        for role, program in self._running.items():
            if program.poll() is not None:
                raise RuntimeError(f"{self._name}, {role}: ended too early; {self.said(role)}")

    def results(self, role: str, timeout_s: float) -> dict[str, Any]:
        """Wait for a program's end and return its results.

        Raises:
            RuntimeError: it failed or did not end; the message has its role and the end of its log.
        """
        try:
            status: int | None = self._running[role].wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            found = "did not end in time" if status is None else f"exit status {status}"
            raise RuntimeError(f"{self._name}, {role}: {found}; {self.said(role)}")
        results: dict[str, Any] = json.loads(self._path(role, "json").read_text())
        return results

    def close(self) -> None:
        """Stop all programs."""
        for role, program in self._running.items():
            self.stop(role)
            processes.end(program)

    def said(self, role: str) -> str:
        """The end of a program's log."""
        log = self._path(role, "log").read_text(errors="replace")
        return f"end of its log: {log[-500:]}"

    def _path(self, role: str, suffix: str) -> Path:
        return self._directory / f"{self._name}.{role}.{suffix}"
