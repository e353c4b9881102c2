"""A private OVN: its two databases and ovn-northd, in a directory of their own."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from topologies.network import daemons, processes

PROGRAMS = ("ovn-northd", "ovn-nbctl", "ovn-sbctl", "ovn-controller")
# The first version that makes tunnels from each endpoint of a host to each of another one.
TUNNELS_OF_EACH_ENDPOINT = (24, 3)


@functools.cache
def version() -> tuple[int, int]:
    """The version of the machine's OVN, such as (24, 3); (0, 0) without one."""
    if not shutil.which("ovn-controller"):
        return 0, 0
    told = subprocess.run(["ovn-controller", "--version"], capture_output=True, text=True).stdout
    year, month, *_ = re.findall(r"\d+", told)
    return int(year), int(month)


class Central:
    """OVN's northbound and southbound databases in one ovsdb-server, and ovn-northd.

    Use it as a context manager. It is reached by a Unix socket, `remote`, from every network.
    """

    def __init__(self) -> None:
        missing = [program for program in PROGRAMS if not shutil.which(program)]
        assert not missing, f"these programs are missing: {', '.join(missing)}; run: make setup"
        self.rundir = daemons.make_rundir("ovs-lbt-ovn-")
        self.remote = f"unix:{self.rundir}/ovn.sock"
        self.env = {
            **os.environ,
            **dict.fromkeys(("OVN_RUNDIR", "OVS_RUNDIR", "OVN_LOGDIR"), str(self.rundir)),
        }
        self._daemons = daemons.Daemons(self.rundir, self.env)

    def __enter__(self) -> Central:
        try:
            files = []
            for name in ("nb", "sb"):
                schema = _schemas() / f"ovn-{name}.ovsschema"
                files.append(str(self.rundir / f"{name}.db"))
                processes.run("ovsdb-tool", "create", files[-1], str(schema), env=self.env)
            self._daemons.start("ovsdb-server", *files, f"--remote=p{self.remote}")
            self.nbctl("init")
            processes.run("ovn-sbctl", f"--db={self.remote}", "init", env=self.env)
            databases = (f"--ovnnb-db={self.remote}", f"--ovnsb-db={self.remote}")
            self._daemons.start("ovn-northd", *databases)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def nbctl(self, *arguments: str) -> str:
        """`ovn-nbctl` on this OVN."""
        return processes.run("ovn-nbctl", f"--db={self.remote}", *arguments, env=self.env).strip()

    def sbctl(self, *arguments: str) -> str:
        """`ovn-sbctl` on this OVN."""
        return processes.run("ovn-sbctl", f"--db={self.remote}", *arguments, env=self.env).strip()

    def settle(self) -> None:
        """Wait until the flows of all hosts are those that the northbound database asks for."""
        self.nbctl("--timeout=30", "--wait=hv", "sync")

    def log_tails(self, lines: int) -> dict[str, str]:
        """The last lines of each daemon's log."""
        return {f"central {name}": tail for name, tail in self._daemons.log_tails(lines).items()}

    def close(self) -> None:
        self._daemons.close()
        shutil.rmtree(self.rundir, ignore_errors=True)


def _schemas() -> Path:
    """The schemas must belong to the programs in use."""
    northd = shutil.which("ovn-northd")
    assert northd
    return Path(northd).parents[1] / "share" / "ovn"
