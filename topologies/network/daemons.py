"""Daemons of Open vSwitch and OVN, with their sockets, pidfiles and logs in a directory of their own."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from pathlib import Path

from topologies.network import processes

START_TIMEOUT_S = 10.0
# The path of a Unix socket has at most 107 characters. The longest name that a daemon appends to the
# directory is `/ovn-controller.PID.ctl`.
LONGEST_RUNDIR = 80
RANDOM_CHARACTERS = 8  # the suffix that tempfile appends


def make_rundir(prefix: str) -> Path:
    """A new directory with room for the names of sockets, in the system's temporary one or in /tmp."""
    usual = tempfile.gettempdir()
    fits = len(f"{usual}/{prefix}") + RANDOM_CHARACTERS <= LONGEST_RUNDIR
    return Path(tempfile.mkdtemp(prefix=prefix, dir=usual if fits else "/tmp"))


class Daemons:
    """The daemons that run in one directory, `rundir`. The environment `env` must name it to them."""

    def __init__(self, rundir: Path, env: dict[str, str]) -> None:
        self.rundir, self.env = rundir, env
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def pid(self, daemon: str) -> int:
        """The process id of a daemon, `ovs-vswitchd` for example."""
        return int((self.rundir / f"{daemon}.pid").read_text())

    def start(self, daemon: str, *arguments: str, niceness: int = 0) -> None:
        """Start a daemon, or start it again, and wait until it serves.

        Raises:
            RuntimeError: it did not start; the message has the end of its log.
        """
        # In the foreground, as our child: a daemon that detaches would become a zombie that looks
        # alive where process 1 does not reap it.
        self.stop(daemon)
        log = self.rundir / f"{daemon}.log"
        command = ["nice", "-n", str(niceness), daemon, *arguments]
        command += ["--pidfile", "-vconsole:off", f"--log-file={log}"]
        process = processes.start(command, self.rundir / f"{daemon}.out", self.env)
        self._running[daemon] = process
        # The control socket is the last thing that a daemon opens before it serves.
        socket = self.rundir / f"{daemon}.{process.pid}.ctl"
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (socket.exists() and (self.rundir / f"{daemon}.pid").exists()):
            if process.poll() is not None or time.monotonic() > deadline_s:
                tail = log.read_text()[-500:] if log.exists() else "no log was written"
                raise RuntimeError(f"{daemon} did not start (exit {process.poll()}): {tail}")
            time.sleep(0.01)

    def log_tails(self, lines: int) -> dict[str, str]:
        """The last lines of each daemon's log, by the log's name."""
        return {
            log.name: "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
            for log in sorted(self.rundir.glob("*.log"))
        }

    def stop(self, daemon: str, signal_number: int = signal.SIGTERM) -> None:
        """Stop a daemon, if it is running, and wait for its end."""
        if (process := self._running.pop(daemon, None)) is not None:
            processes.end(process, signal_number)

    def close(self) -> None:
        """Stop all of them, the last one first."""
        for daemon in reversed([*self._running]):
            self.stop(daemon)
