"""An Open vSwitch of one's own: its own database, sockets and vswitchd.

Benches and tests run on a private instance (userspace datapath), so that nothing
they do, restart or leave behind can touch the host's bridges or its ovs-lbt service.
Every OVS command, Mininet and `ovs-lbt` follow the environment that `env` gives.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_TIMEOUT_S = 10.0


class PrivateOvs:
    """A running ovsdb-server and ovs-vswitchd under a directory of their own.

    Use it as a context manager. `rundir` holds sockets and pidfiles; `env` is the
    environment in which commands reach this instance and no other.

    Raises:
        RuntimeError: a daemon did not start; the message carries the end of its log.
    """

    def __init__(self, prefix: str = "ovs-lbt-") -> None:
        self.rundir = Path(tempfile.mkdtemp(prefix=prefix))
        directory = str(self.rundir)
        self.env = {
            **os.environ,
            "OVS_RUNDIR": directory,
            "OVS_LOGDIR": directory,
            "OVS_DBDIR": directory,
        }

    def __enter__(self) -> PrivateOvs:
        try:
            self.run(
                "ovsdb-tool", "create", str(self.rundir / "conf.db"), str(SCHEMA)
            )
            self.start_database()
            self.run("ovs-vsctl", "--no-wait", "init")
            self.start_switch()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *command: str, timeout_s: float = 30.0) -> str:
        """Run a command against this instance; its standard output.

        Raises:
            RuntimeError: it exited non-zero; the message carries its standard error.
        """
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=timeout_s
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def vsctl(self, *arguments: str) -> str:
        """`ovs-vsctl` on this instance."""
        return self.run("ovs-vsctl", *arguments).strip()

    def pid(self, daemon: str) -> int:
        """The process id of `ovs-vswitchd` or `ovsdb-server`."""
        return int((self.rundir / f"{daemon}.pid").read_text())

    def start_database(self) -> None:
        self._start(
            "ovsdb-server",
            str(self.rundir / "conf.db"),
            f"--remote=punix:{self.rundir}/db.sock",
        )

    def start_switch(self) -> None:
        self._start("ovs-vswitchd", f"unix:{self.rundir}/db.sock")

    def stop(self, daemon: str, signal_number: int = signal.SIGTERM) -> None:
        """End one daemon and wait until it is gone; a daemon that is not there is fine."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            pid = self.pid(daemon)
            os.kill(pid, signal_number)
            deadline = time.monotonic() + START_TIMEOUT_S
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.02)

    def close(self) -> None:
        """Remove every bridge, end both daemons and delete the directory."""
        with contextlib.suppress(Exception):
            for bridge in self.vsctl("--timeout=5", "list-br").split():
                self.vsctl("--timeout=5", "del-br", bridge)
        self.stop("ovs-vswitchd")
        self.stop("ovsdb-server")
        shutil.rmtree(self.rundir, ignore_errors=True)

    def _start(self, daemon: str, *arguments: str) -> None:
        log = self.rundir / f"{daemon}.log"
        done = subprocess.run(
            [daemon, *arguments, "--pidfile", "--detach", "-vconsole:off", f"--log-file={log}"],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode:
            tail = log.read_text()[-500:] if log.exists() else "no log was written"
            raise RuntimeError(f"{daemon} did not start (exit {done.returncode}): {tail}")
