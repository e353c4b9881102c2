"""A private Open vSwitch: its own database, sockets and vswitchd.

Benches and tests use a private instance with the userspace datapath, so they cannot affect the
host's bridges or its ovs-lbt service. All OVS commands, Mininet and `ovs-lbt` use the environment
in `env`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence

from topologies.network import daemons, processes

# The values of the layouts' parameter `datapath`, and Open vSwitch's names for them. All Open vSwitches
# of a network namespace share one kernel datapath.
DATAPATHS = {"userspace": "netdev", "kernel": "system"}
# As ovs-ctl sets it.
NICENESS = -10


class PrivateOvs(daemons.Daemons):
    """A running ovsdb-server and ovs-vswitchd in a directory of their own.

    Use it as a context manager. `rundir` has the sockets and pidfiles. Commands use this instance
    if they have the environment `env`.

    Raises:
        RuntimeError: a daemon did not start; the message has the end of its log.
    """

    def __init__(self, prefix: str = "ovs-lbt-", switch_options: Sequence[str] = ()) -> None:
        rundir = daemons.make_rundir(prefix)
        self._switch_options = switch_options
        directory = str(rundir)
        # The settings of an installed `ovs-lbt` may name its database.
        kept = {k for k in os.environ if not k.startswith("OVS_LBT_") or k == "OVS_LBT_FRAMEWORK"}
        own = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"), directory)
        super().__init__(rundir, {**{k: os.environ[k] for k in kept}, **own})

    def __enter__(self) -> PrivateOvs:
        try:
            # The schema must belong to the tools in use.
            self.run("ovsdb-tool", "create", str(self.rundir / "conf.db"))
            self.start_database()
            version = self.run("ovs-vswitchd", "--version").split("\n", 1)[0].rpartition(" ")[2]
            setting = ("set", "Open_vSwitch", ".", f"ovs-version={version}")
            self.run("ovs-vsctl", "--no-wait", "init", "--", *setting)
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
        return processes.run(*command, env=self.env, timeout_s=timeout_s)

    def vsctl(self, *arguments: str) -> str:
        """`ovs-vsctl` on this instance."""
        return self.run("ovs-vsctl", *arguments).strip()

    def start_database(self, *options: str) -> None:
        """Start ovsdb-server. `options` may make it listen elsewhere as well."""
        self.start(
            "ovsdb-server",
            str(self.rundir / "conf.db"),
            f"--remote=punix:{self.rundir}/db.sock",
            *options,
            niceness=NICENESS,
        )

    def start_switch(self) -> None:
        database = f"unix:{self.rundir}/db.sock"
        self.start("ovs-vswitchd", database, *self._switch_options, niceness=NICENESS)

    def close(self) -> None:
        """Remove every bridge, stop both daemons and delete the directory."""
        with contextlib.suppress(Exception):
            deletions = [("--", "del-br", name) for name in self.vsctl("list-br").split()]
            self.vsctl("--timeout=5", *(word for words in deletions for word in words))
        self.stop("ovs-vswitchd")
        super().close()
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
