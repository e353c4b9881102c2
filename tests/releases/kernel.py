"""A kernel with Open vSwitch's datapath: this machine's, or one of the distribution in QEMU.

In QEMU, virtme-ng runs the kernel on this machine's own file system. It is read there, and what is
written goes to memory. `.ci/setup kernel` has unpacked the kernel and installed both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = Path("/sys/module/openvswitch")
# Where set-up has unpacked it.
UNPACKED = CHECKOUT / "out/linux"
MEMORY = "2G"
BOOTS_WITHIN_S = 60.0
# In the guest, a directory in memory for temporary files: every user may use it.
TEMPORARY = "/run/ovs-lbt"
# Not all that look as if they could run a guest can.
NATIVE, KVM, EMULATED = "natively", "in QEMU with KVM", "in QEMU without KVM"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its version, how it runs, and its image for QEMU."""

    version: str
    runs: str
    image: Path | None = None

    def running(self, command: str) -> list[str]:
        """A bash command of this checkout, on this kernel with its datapath."""
        variables = f"export OVS_LBT_DATAPATH=kernel PYTHONPATH={shlex.quote(str(CHECKOUT))}"
        if self.image is None:
            return ["bash", "-c", f"{variables}; {command}"]
        variables += f" PYTHONDONTWRITEBYTECODE=1 TMPDIR={TEMPORARY}"
        begin = (
            f"mkdir -m 1777 {TEMPORARY}; modprobe openvswitch && cd {shlex.quote(str(CHECKOUT))}"
        )
        return self.booting(f"{variables}; {begin} && {{ {command}; }}")

    def booting(self, command: str) -> list[str]:
        """A bash command in a guest; its output and its status are the command's."""
        words = [_program("vng"), "--run", str(self.image), "--user", "root", "--memory", MEMORY]
        words += ["--cpus", str(len(os.sched_getaffinity(0)))]
        words += ["--busybox", str(UNPACKED / "bin/busybox")]
        words += ["--disable-kvm"] if self.runs == EMULATED else []
        # QEMU opens each of its outputs anew, and empties a file each time: so it gets a pipe.
        piped = 'set -o pipefail; "$@" </dev/null 2>&1 | cat'
        return ["bash", "-c", piped, "vng", *words, "--", f"bash -c {shlex.quote(command)}"]

    def boots(self) -> bool:
        """Whether a guest ends as it should."""
        try:
            done = subprocess.run(self.booting("true"), capture_output=True, timeout=BOOTS_WITHIN_S)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


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
    if not images:
        raise RuntimeError(
            f"no module openvswitch, no kernel in {UNPACKED} -> make test-kernel, or .ci/setup kernel"
        )
    version = images[-1].name.removeprefix("vmlinuz-")
    fast = Kernel(version, KVM, images[-1])
    if os.access("/dev/kvm", os.W_OK) and fast.boots():
        return fast
    return Kernel(version, EMULATED, images[-1])


def short_version(kernel: str) -> str:
    """`6.1` of `6.1.0-56-amd64`."""
    return ".".join(re.findall(r"\d+", kernel)[:2])


def _program(name: str) -> str:
    """A program of this environment, or of the machine."""
    places: Sequence[str] = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    found = shutil.which(name, path=":".join(places))
    if found is None:
        raise RuntimeError(f"no {name} in {places[0]} or on PATH -> .ci/setup kernel")
    return found
