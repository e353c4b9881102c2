"""libvirtd as the distribution has it, on a test's Open vSwitch, and the `virsh` that reaches it.

Its VMs are QEMU's, emulated, without a disk: their firmware asks the network for something to boot.
What libvirtd would write to /etc, /var and /run stays in memory. Nothing of it outlives the test.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.switch.waiting import HANG_S, wait_until
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

PROGRAMS = ("libvirtd", "virsh", "qemu-system-x86_64")
SOCKET = "libvirt-sock"
# Control groups, and what protects a host from its VMs, are others' business.
QEMU_CONF = """
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""
# Bash is process 1: it reaps VMs, whose processes are no children of libvirtd.
LAYOUT = """
set -eu
mkdir "$1/memory"
mount -t tmpfs tmpfs "$1/memory"
for place in etc var; do
    mkdir -p "$1/memory/$place/upper" "$1/memory/$place/work"
    layers="lowerdir=/$place,upperdir=$1/memory/$place/upper,workdir=$1/memory/$place/work"
    mount -t overlay overlay -o "$layers" "/$place"
done
mount -t tmpfs tmpfs /run
# QEMU's usual user, which libvirtd wants to know all the same.
grep -q ^libvirt-qemu: /etc/passwd || echo libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin >>/etc/passwd
grep -q ^libvirt-qemu: /etc/group || echo libvirt-qemu:x:64055: >>/etc/group
grep -q ^kvm: /etc/group || echo kvm:x:64054: >>/etc/group
mkdir -p /etc/libvirt
cp "$1/qemu.conf" /etc/libvirt/qemu.conf
# VMs are emulated. What judges time beside them comes first.
nice -n 10 libvirtd --config "$1/libvirtd.conf" &
wait
"""
# With `more` in it, as libvirt's documentation describes it. Firmware that finds nothing to boot tries again.
DOMAIN = """
<domain type='qemu'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>64</memory>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <boot dev='network'/>
    <bios rebootTimeout='0'/>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>{emulator}</emulator>
    <controller type='usb' model='qemu-xhci'/>
    <memballoon model='none'/>
    {interface}
  </devices>
</domain>
"""


@dataclass(frozen=True, slots=True)
class Domain:
    """A VM as libvirt defines it, with one interface."""

    name: str
    uuid: str
    mac: str

    def xml(self, interface: str) -> str:
        emulator = shutil.which("qemu-system-x86_64")
        return DOMAIN.format(name=self.name, uuid=self.uuid, emulator=emulator, interface=interface)


class Libvirt:
    """A context manager. Its commands are those of Open vSwitch's run directory `ovs`."""

    def __init__(self, ovs: PrivateOvs) -> None:
        missing = [program for program in PROGRAMS if not shutil.which(program)]
        assert not missing, (
            f"these programs are missing: {', '.join(missing)}; run: make setup-kernel"
        )
        self._ovs = ovs
        self.place = ovs.rundir / "libvirt"
        self._log = self.place / "libvirtd.log"
        uri = f"qemu+unix:///system?socket={self.place / SOCKET}"
        self.env = {**ovs.env, "LIBVIRT_DEFAULT_URI": uri}

    def __enter__(self) -> Libvirt:
        self.place.mkdir()
        (self.place / "qemu.conf").write_text(QEMU_CONF)
        settings = {
            "unix_sock_dir": self.place,
            "auth_unix_rw": "none",
            "auth_unix_ro": "none",
            "host_uuid": uuid.uuid4(),
        }
        lines = [f'{key} = "{value}"\n' for key, value in settings.items()]
        (self.place / "libvirtd.conf").write_text("".join(lines))
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        layout = [*own, "--propagation", "private", "bash", "-c", LAYOUT, "bash", str(self.place)]
        # `unshare` blocks SIGTERM while it waits.
        command = ["setpriv", "--pdeathsig", "KILL", "--", *layout]
        self._process = processes.start(command, self._log, self._ovs.env)

        def answers() -> bool:
            assert self._process.poll() is None, self._log.read_text()
            asked = ["virsh", "version"]
            return not subprocess.run(asked, env=self.env, capture_output=True).returncode

        try:
            wait_until(answers, "libvirtd answers", interval_s=0.2)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """With all its VMs."""
        processes.end(self._process, signal.SIGKILL)
        shutil.rmtree(self.place)

    def log_tails(self, lines: int) -> dict[str, str]:
        """The last lines of libvirtd's log."""
        found = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return {"libvirtd": "\n".join(found[-lines:])}

    def virsh(self, *words: str) -> str:
        """`virsh WORDS…`, which must be done; what it says."""
        done = subprocess.run(
            ["virsh", "--quiet", *words],
            env=self.env,
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 0, f"virsh {' '.join(words)}: {done.stderr.strip()}"
        return done.stdout.strip()

    def define(self, domain: Domain, interface: str) -> None:
        """Define a VM, or define it anew."""
        file = self.place / f"{domain.name}.xml"
        file.write_text(domain.xml(interface))
        self.virsh("define", file.name)

    @contextmanager
    def defined(self, domain: Domain, interface: str) -> Iterator[None]:
        """A VM is defined in this block, and neither defined nor running after it."""
        self.define(domain, interface)
        try:
            yield
        finally:
            if self.virsh("domstate", domain.name) != "shut off":
                self.virsh("destroy", domain.name)
            self.virsh("undefine", domain.name)

    def port(self, domain: Domain, mac: str | None = None) -> str:
        """The port of a VM that runs, by the address of the interface."""
        rows = [line.split() for line in self.virsh("domiflist", domain.name).splitlines()]
        (port,) = [row[0] for row in rows if row[-1] == (mac or domain.mac)]
        return port
