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
CPUINFO = Path("/proc/cpuinfo")
# Where set-up has unpacked a kernel, and where the guests' files are made.
UNPACKED = CHECKOUT / "out/linux"
MADE = CHECKOUT / "out/kernel/guests"
# Pytest compiles tests in its own way.
COLLECT = ["pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "tests/switch"]
# Once for all processes of a run; tests stretch limits by it.
MEASURE = (
    "export OVS_LBT_SLOWNESS_RATIO=$(.venv/bin/python -m tests.switch.waiting)"
    " && echo slowness ratio: $OVS_LBT_SLOWNESS_RATIO"
)
BOOTS_WITHIN_S = 60
# Open vSwitch 3.1 counts the processors for the first time when the machine has been up for 10 s. An
# ovs-vswitchd with a kernel datapath that opens it before starts no thread for the frames that the kernel
# hands it, and does not recover when it counts again.
UP_S = 10
BE_UP = f"until (( $(cut -d. -f1 /proc/uptime) > {UP_S} )); do sleep 0.2; done"
# In the guest, a directory in memory for temporary files: every user may use it.
TEMPORARY = "/run/ovs-lbt"
# The driver of taps is for bridges in userspace.
MODULES = "openvswitch tun"
# Not all machines that have /dev/kvm can run a guest.
NATIVE, KVM, EMULATED = "natively", "in QEMU with KVM", "in QEMU without KVM"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its version, and how it runs."""

    version: str
    runs: str

    @property
    def guests(self) -> int:
        """How many steps are run beside each other: a guest without KVM uses one core."""
        return len(os.sched_getaffinity(0)) if self.runs == EMULATED else 1

    def running(self, command: str, name: str) -> list[str]:
        """What runs a bash command of this checkout on this kernel and its datapath.

        `name`: of what is made for a guest.

        Raises:
            RuntimeError: a guest could not be prepared; the message says why.
        """
        here = shlex.quote(str(CHECKOUT))
        variables = f"export OVS_LBT_DATAPATH=kernel PYTHONPATH={here}"
        if self.runs == NATIVE:
            return ["bash", "-c", f"{variables}; {MEASURE} && {{ {command}; }}"]
        # A guest that is ended leaves the name of the test that it was at.
        variables += f" OVS_LBT_GUEST=yes TMPDIR={TEMPORARY} PYTHONUNBUFFERED=1"
        begin = f"mkdir -m 1777 {TEMPORARY} && modprobe -a {MODULES} && cd {here} && {MEASURE} && {BE_UP}"
        return self._booting(f"{variables}; {begin} && {{ {command}; }}", name)

    def boots(self) -> bool:
        """Whether a guest ends as it should."""
        words = ["timeout", "--kill-after=5", str(BOOTS_WITHIN_S), *self._booting("true", "boots")]
        return subprocess.run(words, capture_output=True).returncode == 0

    def _booting(self, command: str, name: str) -> list[str]:
        cores = len(os.sched_getaffinity(0)) if self.runs == KVM else None
        return guest.command(UNPACKED, self.version, command, MADE / name, cores)


def compile_here() -> None:
    """Compile the checkout's modules and tests: each process of a guest would do it anew, slowly.

    Raises:
        RuntimeError: a test cannot be imported; the message says why.
    """
    for words in (["compileall", "-q", "controller", "policies", "topologies"], COLLECT):
        asked = [".venv/bin/python", "-m", *words]
        done = subprocess.run(asked, cwd=CHECKOUT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(asked)}: {done.stdout}{done.stderr}")


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
            f"this kernel has no module openvswitch, and {guest.QEMU} or a kernel in {UNPACKED} is missing; run: .ci/setup kernel"
        )
    version = images[-1].name.removeprefix("vmlinuz-")
    fast = Kernel(version, KVM)
    # Where the processor cannot, some machines have /dev/kvm nevertheless, and its guests hang.
    able = re.search(r"^flags\b.* (vmx|svm)\b", CPUINFO.read_text(), re.MULTILINE)
    if able and os.access("/dev/kvm", os.W_OK) and fast.boots():
        return fast
    return Kernel(version, EMULATED)


def measured(log: str) -> dict[str, float]:
    """What a step's log says of the machine: its slowness ratio, and a guest's processor time."""
    found = {}
    if slowness := re.search(r"^slowness ratio: ([\d.]+)$", log, re.MULTILINE):
        found["slowness_ratio"] = float(slowness[1])
    if times := re.findall(r"^(\d+)m([\d.]+)s (\d+)m([\d.]+)s$", log, re.MULTILINE):
        minutes, seconds, of_system_minutes, of_system_s = map(float, times[-1])
        found["processor_s"] = round(60 * (minutes + of_system_minutes) + seconds + of_system_s, 1)
    return found


def short_version(kernel: str) -> str:
    """`6.1` of `6.1.0-56-amd64`."""
    return ".".join(re.findall(r"\d+", kernel)[:2])
