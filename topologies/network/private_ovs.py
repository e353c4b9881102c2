"""A private Open vSwitch: its own database, sockets and vswitchd.

Benches and tests use a private instance with the userspace datapath, so they cannot affect the
host's bridges or its ovs-lbt service. All OVS commands, Mininet and `ovs-lbt` use the environment
in `env`.
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

# The values of the layouts' parameter `datapath`, and Open vSwitch's names for them. All Open vSwitches
# of a network namespace share one kernel datapath.
DATAPATHS = {"userspace": "netdev", "kernel": "system"}
START_TIMEOUT_S = 10.0
# As ovs-ctl sets it.
NICENESS = -10
# The path of a Unix socket has at most 107 characters. The longest name that OVS appends to the
# directory is `/ovs-vswitchd.PID.ctl`.
LONGEST_RUNDIR = 82
RANDOM_CHARACTERS = 8  # the suffix that tempfile appends


def _parent_directory(prefix: str) -> str:
    """The system's temporary directory, or /tmp if the paths of sockets would be too long."""
    usual = tempfile.gettempdir()
    return usual if len(f"{usual}/{prefix}") + RANDOM_CHARACTERS <= LONGEST_RUNDIR else "/tmp"


class PrivateOvs:
    """A running ovsdb-server and ovs-vswitchd in a directory of their own.

    Use it as a context manager. `rundir` has the sockets and pidfiles. Commands use this instance
    if they have the environment `env`.

    Raises:
        RuntimeError: a daemon did not start; the message has the end of its log.
    """

    def __init__(self, prefix: str = "ovs-lbt-") -> None:
        self.rundir = Path(tempfile.mkdtemp(prefix=prefix, dir=_parent_directory(prefix)))
        directory = str(self.rundir)
        # The settings of an installed `ovs-lbt` may name its database.
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
            # The schema must belong to the tools in use.
            self.run("ovsdb-tool", "create", str(self.rundir / "conf.db"))
            self.start_database()
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
        """Run a command on this instance and return its standard output.

        Raises:
            RuntimeError: it exited non-zero; the message has its standard error.
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
        """Start ovsdb-server. `options` may make it listen elsewhere as well."""
        self._start(
            "ovsdb-server",
            str(self.rundir / "conf.db"),
            f"--remote=punix:{self.rundir}/db.sock",
            *options,
        )

    def start_switch(self) -> None:
        self._start("ovs-vswitchd", f"unix:{self.rundir}/db.sock")

    def stop(self, daemon: str, signal_number: int = signal.SIGTERM) -> None:
        """Stop a daemon, if it is running, and wait for its end."""
        if (process := self._daemons.pop(daemon, None)) is not None:
            processes.end(process, signal_number)

    def close(self) -> None:
        """Remove every bridge, stop both daemons and delete the directory."""
        with contextlib.suppress(Exception):
            deletions = [("--", "del-br", name) for name in self.vsctl("list-br").split()]
            self.vsctl("--timeout=5", *(word for words in deletions for word in words))
        self.stop("ovs-vswitchd")
        self.stop("ovsdb-server")
        shutil.rmtree(self.rundir, ignore_errors=True)

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """In this context, OVS commands of this process, including Mininet's, use this instance."""
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _version(self) -> str:
        """The version of this Open vSwitch."""
        return self.run("ovs-vswitchd", "--version").split("\n", 1)[0].rpartition(" ")[2]

    def _start(self, daemon: str, *arguments: str) -> None:
        # In the foreground, as our child: a daemon that detaches would become a zombie that looks
        # alive where process 1 does not reap it.
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
