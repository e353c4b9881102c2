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
from collections.abc import Iterator
from pathlib import Path

from topologies.network import processes

START_TIMEOUT_S = 10.0
# What ovs-ctl gives the daemons of a host.
NICENESS = -10
# A Unix socket's path holds 107 characters, and the longest name that OVS puts behind the
# directory is `/ovs-vswitchd.PID.ctl`.
LONGEST_RUNDIR = 82
RANDOM_CHARACTERS = 8  # what tempfile appends


def _place(prefix: str) -> str:
    """Where temporary directories go, unless sockets in there had too long a path."""
    usual = tempfile.gettempdir()
    return usual if len(f"{usual}/{prefix}") + RANDOM_CHARACTERS <= LONGEST_RUNDIR else "/tmp"


class PrivateOvs:
    """A running ovsdb-server and ovs-vswitchd under a directory of their own.

    Use it as a context manager. `rundir` holds sockets and pidfiles; `env` is the
    environment in which commands reach this instance and no other.

    Raises:
        RuntimeError: a daemon did not start; the message carries the end of its log.
    """

    def __init__(self, prefix: str = "ovs-lbt-") -> None:
        self.rundir = Path(tempfile.mkdtemp(prefix=prefix, dir=_place(prefix)))
        directory = str(self.rundir)
        # Without the settings of an `ovs-lbt` of the machine's: they may name its database.
        kept = {k for k in os.environ if not k.startswith("OVS_LBT_") or k == "OVS_LBT_FRAMEWORK"}
        others = {k: os.environ[k] for k in kept}
        self.env = {
            **others,
            "OVS_RUNDIR": directory,
            "OVS_LOGDIR": directory,
            "OVS_DBDIR": directory,
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> PrivateOvs:
        try:
            # By the schema that belongs to the tools in use.
            self.run("ovsdb-tool", "create", str(self.rundir / "conf.db"))
            self.start_database()
            # As ovs-ctl does.
            version = f"ovs-version={self._version()}"
            self.run("ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", ".", version)
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

    def start_database(self, *options: str) -> None:
        """Start ovsdb-server, which `options` may tell to listen elsewhere, too."""
        self._start(
            "ovsdb-server",
            str(self.rundir / "conf.db"),
            f"--remote=punix:{self.rundir}/db.sock",
            *options,
        )

    def start_switch(self) -> None:
        self._start("ovs-vswitchd", f"unix:{self.rundir}/db.sock")

    def stop(self, daemon: str, signal_number: int = signal.SIGTERM) -> None:
        """End one daemon and wait until it is gone; a daemon that is not there is fine."""
        if (process := self._daemons.pop(daemon, None)) is not None:
            processes.end(process, signal_number)

    def close(self) -> None:
        """Remove every bridge, end both daemons and delete the directory."""
        with contextlib.suppress(Exception):
            deletions = [("--", "del-br", name) for name in self.vsctl("list-br").split()]
            self.vsctl("--timeout=5", *(word for words in deletions for word in words))
        self.stop("ovs-vswitchd")
        self.stop("ovsdb-server")
        shutil.rmtree(self.rundir, ignore_errors=True)

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Meanwhile every OVS command of this process, Mininet's too, is for this instance."""
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _version(self) -> str:
        """Which Open vSwitch this is."""
        return self.run("ovs-vswitchd", "--version").split("\n", 1)[0].rpartition(" ")[2]

    def _start(self, daemon: str, *arguments: str) -> None:
        # In the foreground, as a child of ours: a daemon that detaches is nobody's child,
        # and where process 1 does not reap it stays a zombie that looks alive.
        self.stop(daemon)
        log = self.rundir / f"{daemon}.log"
        command = ["nice", "-n", str(NICENESS), daemon, *arguments]
        command += ["--pidfile", "-vconsole:off", f"--log-file={log}"]
        process = processes.start(command, self.rundir / f"{daemon}.out", self.env)
        self._daemons[daemon] = process
        # The control socket is the last thing that a daemon opens before it serves.
        socket = self.rundir / f"{daemon}.{process.pid}.ctl"
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (socket.exists() and (self.rundir / f"{daemon}.pid").exists()):
            if process.poll() is not None or time.monotonic() > deadline_s:
                tail = log.read_text()[-500:] if log.exists() else "no log was written"
                raise RuntimeError(f"{daemon} did not start (exit {process.poll()}): {tail}")
            time.sleep(0.01)
