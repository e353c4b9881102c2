"""Runs roles of the traffic program for a load, each with its plan and its results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topologies.loads import traffic
from topologies.network import processes


class Programs:
    """The processes of a load, one for each role. Their files in `directory` begin with `name`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, plan: Mapping[str, Any]) -> None:
        """Start a role of `traffic.py`."""
        path = self._path(role, "plan.json")
        path.write_text(json.dumps(plan))
        script = str(Path(traffic.__file__).resolve())
        command = [sys.executable, "-P", script, role, str(path), str(self._path(role, "json"))]
        self._running[role] = processes.start(command, self._path(role, "log"))

    def __getitem__(self, role: str) -> subprocess.Popen[bytes]:
        return self._running[role]

    def signal(self, role: str, number: int) -> None:
        """Send a signal to a role, if it was started and has not ended."""
        if role in self._running and self._running[role].poll() is None:
            self._running[role].send_signal(number)

    def require_running(self) -> None:
        """Check that no program has ended.

        Raises:
            RuntimeError: one has; the message has its role and the end of its log.
        """
        for role, program in self._running.items():
            if program.poll() is not None:
                raise RuntimeError(f"{self._name}, {role}: ended too early; {self._log_end(role)}")

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
            raise RuntimeError(f"{self._name}, {role}: {found}; {self._log_end(role)}")
        results: dict[str, Any] = json.loads(self._path(role, "json").read_text())
        return results

    def close(self) -> None:
        """Stop all programs."""
        for program in self._running.values():
            processes.end(program)

    def _log_end(self, role: str) -> str:
        log = self._path(role, "log").read_text(errors="replace")
        return f"end of its log: {log[-500:]}"

    def _path(self, role: str, suffix: str) -> Path:
        return self._directory / f"{self._name}.{role}.{suffix}"
