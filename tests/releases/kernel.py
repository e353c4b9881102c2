"""A kernel with Open vSwitch's datapath: this machine's, or one of the distribution in QEMU.

`.ci/setup kernel` has unpacked that kernel and installed QEMU.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.releases import guest

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = Path("/sys/module/openvswitch")
# Where set-up has unpacked a kernel, and where the guest's files are made.
UNPACKED = CHECKOUT / "out/linux"
MADE = CHECKOUT / "out/kernel"
BOOTS_WITHIN_S = 60.0
# In the guest, a directory in memory for temporary files: every user may use it.
TEMPORARY = "/run/ovs-lbt"
# Not all machines that have /dev/kvm can run a guest.
NATIVE, KVM, EMULATED = "natively", "in QEMU with KVM", "in QEMU without KVM"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its version, and how it runs."""

    version: str
    runs: str

    def running(self, command: str) -> list[str]:
        """What runs a bash command of this checkout on this kernel and its datapath.

        Raises:
            RuntimeError: a guest could not be prepared; the message says why.
        """
        here = shlex.quote(str(CHECKOUT))
        variables = f"export OVS_LBT_DATAPATH=kernel PYTHONPATH={here}"
        if self.runs == NATIVE:
            return ["bash", "-c", f"{variables}; {command}"]
        variables += f" PYTHONDONTWRITEBYTECODE=1 TMPDIR={TEMPORARY}"
        begin = f"mkdir -m 1777 {TEMPORARY} && modprobe openvswitch && cd {here}"
        return self._booting(f"{variables}; {begin} && {{ {command}; }}")

    def boots(self) -> bool:
        """Whether a guest ends as it should."""
        try:
            done = subprocess.run(
                self._booting("true"), capture_output=True, timeout=BOOTS_WITHIN_S
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _booting(self, command: str) -> list[str]:
        cores = len(os.sched_getaffinity(0))
        return guest.command(UNPACKED, self.version, command, MADE, cores, self.runs == KVM)


def find() -> Kernel:
    """The kernel to use: this machine's, otherwise the unpacked one as fast as it runs.

    Raises:
        RuntimeError: there is none.
    """
    if not MODULE.exists() and shutil.which("modprobe"):
        subprocess.run(["modprobe", "--quiet", "openvswitch"], capture_output=True)
    if MODULE.exists():
        return Kernel(os.uname().release, NATIVE)
    images = sorted(UNPACKED.glob("boot/vmlinuz-*"))
    if not images or not shutil.which(guest.QEMU):
        raise RuntimeError(
            f"no module openvswitch, and no {guest.QEMU} or no kernel in {UNPACKED} -> .ci/setup kernel"
        )
    version = images[-1].name.removeprefix("vmlinuz-")
    fast = Kernel(version, KVM)
    if os.access("/dev/kvm", os.W_OK) and fast.boots():
        return fast
    return Kernel(version, EMULATED)


def short_version(kernel: str) -> str:
    """`6.1` of `6.1.0-56-amd64`."""
    return ".".join(re.findall(r"\d+", kernel)[:2])
