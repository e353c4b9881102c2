"""A machine to install the package on, and packages for it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.switch import systemd
from tests.switch.systemd import CHECKOUT, COMMAND_TIMEOUT_S
from tests.switch.waiting import NotThere

# The last commit whose version is 0.1.0.
LAST_OF_RELEASE_BEFORE = "adce4592503f6c45131160a5c8fef7e35109ef66"
# The usual run directory is that of this Open vSwitch; nothing of a checkout is installed, and no policy
# keeps services from starting, as containers have it.
PREPARED = """
mkdir -p /run/openvswitch
mount --bind {rundir} /run/openvswitch
mount -t tmpfs tmpfs /var/log/openvswitch
ln -sf /run/openvswitch/conf.db /etc/openvswitch/conf.db
rm -rf /usr/local/bin/ovs-lbt /usr/sbin/policy-rc.d
echo 'APT::Get::Assume-Yes "true"; APT::Sandbox::User "root";' >/etc/apt/apt.conf.d/99test
"""


class Machine(systemd.Machine):
    """A context manager; what it was is gone with it."""

    def _prepare(self) -> None:
        self.do("bash", "-euc", PREPARED.format(rundir=self._ovs.rundir))
        # Units have a /tmp and a /var/tmp of their own, which hide a checkout.
        if any(CHECKOUT.is_relative_to(hidden) for hidden in ("/tmp", "/var/tmp")):
            self.do("mkdir", "-p", "/etc/systemd/system/service.d")
            added = self.path("/etc/systemd/system/service.d/checkout.conf")
            added.write_text(f'[Service]\nBindReadOnlyPaths="{CHECKOUT}"\n')

    def install(self, package: Path) -> str:
        """Install a package, or upgrade to it; all that was said."""
        there = self.path("/run") / package.name
        there.write_bytes(package.read_bytes())
        done = self.apt("install", f"/run/{package.name}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def apt(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`apt-get` without a network."""
        options = ["--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]
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


def build(source: Path = CHECKOUT) -> Path:
    """The package of this checkout, or of other sources that have its environment and its wheels."""
    script = source / "controller/debian/build"
    done = subprocess.run([script], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
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
