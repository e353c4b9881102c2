"""A machine to install the package on: this one's files, with nothing written back to them.

Its root is an overlay in memory, seen in a mount namespace of its own, with `init.py` for systemd.
Its run directory of Open vSwitch is that of the private one of the test.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.switch.waiting import NotThere, wait_until
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

CHECKOUT = Path(__file__).parents[2]
INSTALL_TIMEOUT_S = 150
# The last commit whose version is 0.1.0.
LAST_OF_RELEASE_BEFORE = "adce4592503f6c45131160a5c8fef7e35109ef66"
# Nothing of a checkout, and no policy that keeps services from starting, as containers have it.
LAYOUT = """
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
rm -rf usr/local/bin/ovs-lbt usr/sbin/policy-rc.d etc/systemd/system/ovs-lbt*
ln -sf /run/openvswitch/conf.db etc/openvswitch/conf.db
mv usr/bin/systemctl usr/bin/systemctl.real
install -m 755 "$3" usr/bin/systemctl
for shared in proc sys dev; do mount --rbind "/$shared" "$shared"; done
for own in run tmp var/log/openvswitch; do mount -t tmpfs tmpfs "$own"; done
mkdir -p run/systemd/system run/openvswitch
mount --bind "$2" run/openvswitch
# The checkout, if it is on another disk or below what is the machine's own.
[ -e ".$4" ] || { mkdir -p ".$4"; mount --bind "$4" ".$4"; }
exec /usr/bin/python3 "$3" .
"""


class Machine:
    """A context manager; what it was is gone with it."""

    def __init__(self, ovs: PrivateOvs) -> None:
        self._ovs = ovs
        self._place = tempfile.TemporaryDirectory(prefix="ovs-lbt-machine-")
        self._log = Path(self._place.name).with_suffix(".log")

    def __enter__(self) -> Machine:
        init = Path(__file__).with_name("init.py")
        given = (self._place.name, self._ovs.rundir, init, CHECKOUT)
        layout = ["bash", "-c", LAYOUT, "bash", *map(str, given)]
        command = ["unshare", "--mount", "--propagation", "private", *layout]
        self._init = processes.start(command, self._log)
        address = Path(f"/proc/{self._init.pid}/root/run/init.sock")

        def is_up() -> bool:
            assert self._init.poll() is None, self._log.read_text()
            return address.is_socket()

        wait_until(is_up, "the machine is up")
        self._mounts = os.readlink(f"/proc/{self._init.pid}/ns/mnt")
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self._init)
        _end_all_in(self._mounts)
        self._log.unlink()
        self._place.cleanup()

    @property
    def pid(self) -> int:
        """A process that is on the machine as long as it runs."""
        return self._init.pid

    def path(self, path: str) -> Path:
        """A file of the machine's. Links in it are followed in ours: give the last part as it is."""
        return Path(f"/proc/{self._init.pid}/root{path}")

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command as root's shell would run it there, whatever comes of it."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {"PATH": path, "DEBIAN_FRONTEND": "noninteractive", **variables}
        entered = ["nsenter", f"--target={self._init.pid}", "--mount", "--root", "--wd"]
        return subprocess.run(
            [*entered, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )

    def do(self, *command: str) -> str:
        """The same, which must be done; its standard output."""
        done = self.run(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, package: Path) -> str:
        """Install a package, or upgrade to it; all that was said."""
        there = self.path("/run") / package.name
        there.write_bytes(package.read_bytes())
        done = self.apt("install", f"/run/{package.name}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def apt(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`apt-get` without a network."""
        unattended = ["-y", "--no-install-recommends"]
        options = [*unattended, "-o", "Dpkg::Use-Pty=0", "-o", "APT::Sandbox::User=root"]
        return self.run("apt-get", *options, *words, **variables)

    def version(self) -> str:
        """The version of the service that runs; empty if none answers."""
        done = self.run("ovs-appctl", "--timeout=30", "-t", "ovs-lbt", "version")
        return done.stdout.strip().rpartition(" ")[2]

    def uplinks_in_use(self, bridge: str) -> dict[str, str]:
        """The binding of every VM port, as the installed command tells.

        Raises NotThere while the bridge is not connected, as for a moment after a start.
        """
        (shown,) = json.loads(self.do("ovs-lbt", "show", bridge, "--json"))["bridges"]
        if not shown["connected"]:
            raise NotThere(f"{bridge} is not connected: {shown}")
        return {port["name"]: port["uplink"] for port in shown["ports"]}


def _end_all_in(mounts: str) -> None:
    """Kill what is left of a machine: a reversal outlives whoever armed it, and keeps all that it sees."""
    for process in Path("/proc").glob("[0-9]*"):
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns/mnt") == mounts:
                os.kill(int(process.name), signal.SIGKILL)


def build(source: Path = CHECKOUT) -> Path:
    """The package of this checkout, or of other sources that have its environment and its wheels."""
    script = source / "controller/debian/build"
    done = subprocess.run([script], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return source / done.stdout.strip()


def release_before(directory: Path) -> Path:
    """The package of version 0.1.0, as its last commit makes it.

    With the wheels of this checkout, because the tests have no network. A clone that does not reach
    back to that commit makes it of this checkout's sources, with the old number.
    """
    source = directory / "source"
    source.mkdir()
    archive = subprocess.run(
        ["git", "-C", CHECKOUT, "archive", LAST_OF_RELEASE_BEFORE], capture_output=True
    )
    if archive.returncode == 0:
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    else:
        print(f"found no {LAST_OF_RELEASE_BEFORE}: 0.1.0 is made of this checkout's sources")
        others = shutil.ignore_patterns(".*", "out", "__pycache__", "*.egg-info")
        shutil.copytree(CHECKOUT, source, ignore=others, dirs_exist_ok=True)
        setup = source / "setup.cfg"
        setup.write_text(re.sub(r"(?m)^version = .*", "version = 0.1.0", setup.read_text()))
    for pins in CHECKOUT.glob("controller/debian/requirements*.txt"):
        shutil.copy(pins, source / "controller/debian")
    (source / "out/deb").mkdir(parents=True)
    for shared in (".venv", "out/deb/wheels"):
        (source / shared).symlink_to(CHECKOUT / shared)
    return build(source)


def changelog(package: Path) -> str:
    """What a package says of its versions, as Debian's tools read it."""
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True)
    wanted = ["tar", "-xO", "./usr/share/doc/ovs-lbt/changelog.gz"]
    zipped = subprocess.run(wanted, input=files.stdout, capture_output=True, check=True)
    return gzip.decompress(zipped.stdout).decode()


def successor(package: Path, directory: Path) -> Path:
    """The same package as the next version."""
    files, made = directory / "files", directory / "next.deb"
    subprocess.run(["dpkg-deb", "-R", package, files], check=True)
    (metadata,) = files.glob("opt/ovs-lbt/lib/python3/dist-packages/ovs_lbt-*/METADATA")
    for file in (files / "DEBIAN/control", metadata):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(_next(line) for line in lines))
    subprocess.run(
        ["dpkg-deb", "-Zgzip", "-z1", "-b", files, made], check=True, capture_output=True
    )
    return made


def _next(line: str) -> str:
    return f"{line.rstrip()}+next\n" if line.startswith("Version: ") else line
