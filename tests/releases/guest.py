"""A QEMU guest that runs one command on this machine's own file system, on another kernel.

It reads the file system by 9p, and writes go to memory. Nothing else of a system starts in it: no
udev, which takes minutes where a guest is emulated on a busy machine.
"""

from __future__ import annotations

import lzma
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

QEMU = "qemu-system-x86_64"
MEMORY = "2G"
# Where a guest is emulated on a busy machine, its timer may come too late for the kernel's check of it,
# and the kernel panics.
# Protecting it from its own programs takes some of its processor time.
APPEND = "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off init_on_alloc=0"
# What the file system needs before its own modules can be read.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
# How modprobe names the file of a module.
INSMOD = r"^insmod (\S.*\.ko\S*)"
# Until then, only busybox is there. An emulated guest is slow at asking for each file anew.
INIT = """#!/bin/busybox sh
mkdir() { /bin/busybox mkdir -p "$@"; }
mount() { /bin/busybox mount "$@"; }
for module in /modules/*; do /bin/busybox insmod $module; done
mkdir /proc /host /memory /root
mount -t proc proc /proc
mount -t 9p -o ro,version=9p2000.L,trans=virtio,msize=524288,cache=loose host /host
mount -t tmpfs memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /root
mkdir /root/proc /root/sys /root/dev /root/run /root/tmp /root/lib/modules
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mkdir /root/dev/pts /root/dev/shm
mount -t devpts -o mode=620,ptmxmode=666 pts /root/dev/pts
mount -t tmpfs -o mode=1777 shm /root/dev/shm
mount -t tmpfs -o mode=755 run /root/run
/bin/busybox ln -sfn MODULES /root/lib/modules/VERSION
/bin/busybox cp /command /root/run/command
/bin/busybox umount /proc
exec /bin/busybox switch_root -c /dev/ttyS0 /root /bin/bash /run/command
"""
# Behind a pipe, no program takes its output for a terminal. The guest ends as it writes a number to a
# port: its status and 1. QEMU's status is twice that and 1; of its own accord QEMU ends with 0 or 1.
COMMAND = """export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
ln -sfn /proc/self/fd /dev/fd
stty -F /dev/ttyS0 raw -echo
ip link set lo up
({command}) </dev/null 2>&1 | cat
status=${PIPESTATUS[0]}
sync
printf "\\\\x$(printf %02x $((status > 60 ? 61 : status + 1)))" >/run/status
dd if=/run/status of=/dev/port bs=1 seek=244 status=none
"""
# The second line of `times` is the guest's processor time.
STATUS = '"$@" </dev/null; s=$?; times; ((s & 1 && s > 1)) && exit $(((s >> 1) - 1)); exit 125'
# An emulated processor whose clock goes by what it has executed, an instruction a nanosecond: while this
# machine does something else, no time passes in the guest. So a busy machine makes a guest late, and
# nothing in it. There can be only one such processor. While it has nothing to do, its clock goes on.
EMULATED = ["-cpu", "max", "-smp", "1", "-icount", "shift=0,sleep=on,align=off", "-rtc", "clock=vm"]


def command(
    unpacked: Path, version: str, inside: str, directory: Path, cores: int | None
) -> list[str]:
    """What runs a bash command in a guest: its output and its status (up to 60) are the command's.

    125: the guest ended by itself. `unpacked`: where the kernel and busybox are; `directory`: what is
    made for the guest goes there; `cores`: how many it has with KVM, None: without KVM.

    Raises:
        RuntimeError: the guest could not be prepared; the message says why.
    """
    directory.mkdir(parents=True, exist_ok=True)
    initramfs = _initramfs(unpacked, version, inside, directory)
    words = [QEMU, "-machine", f"q35,sata=off,smbus=off,accel={'kvm' if cores else 'tcg'}"]
    words += ["-cpu", "host", "-smp", str(cores)] if cores else EMULATED
    words += ["-m", MEMORY]
    words += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"]
    words += ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]
    words += ["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]
    words += ["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]
    words += ["-kernel", str(unpacked / f"boot/vmlinuz-{version}"), "-initrd", str(initramfs)]
    words += ["-append", APPEND]
    return ["bash", "-c", STATUS, "guest", *words]


def _initramfs(unpacked: Path, version: str, inside: str, directory: Path) -> Path:
    modules = unpacked / "lib/modules" / version
    init = INIT.replace("MODULES", shlex.quote(str(modules))).replace("VERSION", version)
    files: list[tuple[str, int, bytes]] = [
        ("bin", 0o040755, b""),
        ("dev", 0o040755, b""),
        ("modules", 0o040755, b""),
        ("bin/busybox", 0o100755, (unpacked / "bin/busybox").read_bytes()),
        ("init", 0o100755, init.encode()),
        ("command", 0o100755, COMMAND.replace("{command}", inside).encode()),
    ]
    for number, path in enumerate(_with_those_before(unpacked, version, MODULES)):
        files.append((f"modules/{number:02d}.ko", 0o100644, _module(path)))
    made = directory / "initramfs"
    made.write_bytes(b"".join(_cpio(*file) for file in (*files, ("TRAILER!!!", 0, b""))))
    return made


def _with_those_before(unpacked: Path, version: str, names: Sequence[str]) -> list[Path]:
    """Modules with those that they need, in the order in which they can be loaded."""
    found: dict[Path, None] = {}
    for name in names:
        asked = ["modprobe", "-d", str(unpacked), "-S", version, "--show-depends", name]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(asked)}: {done.stderr.strip()}")
        found |= {
            Path(module[1]): None for module in re.finditer(INSMOD, done.stdout, re.MULTILINE)
        }
    return list(found)


def _module(path: Path) -> bytes:
    """A module as busybox can load it."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
    return data


def _cpio(name: str, mode: int, data: bytes) -> bytes:
    """An entry of an archive as the kernel takes it (the format is `newc`)."""
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
