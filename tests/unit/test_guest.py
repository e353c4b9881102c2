"""A guest gets what it needs to begin, and its command's status comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.releases import guest, kernel
from tests.releases.__main__ import main

VERSION = "6.1.0"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What runs `exit 7` in a guest whose kernel has one module."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/busybox").write_bytes(b"busybox")
    (tmp_path / "some.ko").write_bytes(b"module")
    monkeypatch.setattr(guest, "_with_those_before", lambda *_: [tmp_path / "some.ko"])
    return guest.command(tmp_path, VERSION, "exit 7", tmp_path, cores=None)


def test_a_guest_reads_this_machine_s_files_and_writes_none(command: list[str]) -> None:
    (shared,) = (word for word in command if word.startswith("local,"))
    assert {"path=/", "readonly=on"} <= {*shared.split(",")}


def test_the_clock_of_an_emulated_guest_goes_by_what_it_executes(
    command: list[str], tmp_path: Path
) -> None:
    clock = command[command.index("-icount") + 1].split(",")
    assert {"shift=0", "sleep=on"} <= {*clock} and command[command.index("-smp") + 1] == "1"
    with_kvm = guest.command(tmp_path, VERSION, "exit 7", tmp_path, cores=2)
    assert "-icount" not in with_kvm and with_kvm[with_kvm.index("-smp") + 1] == "2"


def test_what_a_guest_begins_with(command: list[str], tmp_path: Path) -> None:
    assert command[command.index("-initrd") + 1] == str(tmp_path / "initramfs")
    found = _unpacked((tmp_path / "initramfs").read_bytes())
    assert (found["bin/busybox"], found["modules/00.ko"]) == (b"busybox", b"module")
    assert f"{tmp_path}/lib/modules/{VERSION} /root/lib/modules/{VERSION}".encode() in found["init"]
    assert b"(exit 7) </dev/null" in found["command"]


@pytest.mark.parametrize(
    ("of_qemu", "status"),
    [
        pytest.param(0, 125, id="the guest was ended, or panicked"),
        pytest.param(1, 125, id="it never began"),
        pytest.param(3, 0, id="its command ended with 0"),
        pytest.param(5, 1, id="with 1"),
        pytest.param(123, 60, id="with 60"),
    ],
)
def test_the_status_is_the_command_s(of_qemu: int, status: int) -> None:
    words = ["bash", "-c", guest.STATUS, "guest", "bash", "-c", f"exit {of_qemu}"]
    assert subprocess.run(words).returncode == status


def test_no_signal_ends_as_success() -> None:
    for number in range(1, 32):
        words = ["bash", "-c", guest.STATUS, "guest", "bash", "-c", f"exit {128 + number}"]
        assert subprocess.run(words).returncode != 0


@pytest.mark.parametrize(
    ("runs", "needs"), [(kernel.NATIVE, False), (kernel.KVM, True), (kernel.EMULATED, True)]
)
def test_only_another_kernel_needs_a_guest(
    runs: str, needs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest, "command", lambda *words: ["in a guest", str(words[2])])
    on = kernel.Kernel(VERSION, runs)
    command = on.running("true", "a step")
    assert (command[0] == "in a guest") is needs
    assert "OVS_LBT_DATAPATH=kernel" in command[-1]
    assert on.guests == (len(os.sched_getaffinity(0)) if runs == kernel.EMULATED else 1)


def test_a_guest_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the shell around it: it would go on beside the tests."""
    pid = tmp_path / "pid"
    hangs = ["bash", "-c", guest.STATUS, "guest", "bash", "-c", f"echo $$ >{pid}; exec sleep 60"]
    monkeypatch.setattr(kernel, "BOOTS_WITHIN_S", 1)
    monkeypatch.setattr(kernel.Kernel, "_booting", lambda *_: hangs)
    assert not kernel.Kernel(VERSION, kernel.KVM).boots()
    command = Path(f"/proc/{pid.read_text().strip()}/cmdline")
    # One that has ended and nobody has waited for has none.
    assert not command.exists() or not command.read_bytes()


def test_kvm_is_tried_only_where_the_processor_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / f"boot/vmlinuz-{VERSION}").touch()
    flags = tmp_path / "cpuinfo"
    monkeypatch.setattr(kernel, "MODULE", tmp_path / "none")
    monkeypatch.setattr(kernel, "UNPACKED", tmp_path)
    monkeypatch.setattr(kernel, "CPUINFO", flags)
    monkeypatch.setattr(shutil, "which", lambda name: name == guest.QEMU)
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(kernel.Kernel, "boots", lambda _: True)
    found = []
    for text in ("flags\t\t: fpu vme sse\n", "flags\t\t: fpu vmx sse\n"):
        flags.write_text(text)
        found.append(kernel.find().runs)
    assert found == [kernel.EMULATED, kernel.KVM]


@pytest.mark.parametrize("there", ["qemu", "kernel", ""])
def test_no_datapath_and_no_guest_is_a_failure(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make test` would pass if it left these tests out."""
    (tmp_path / "boot").mkdir()
    if there == "kernel":
        (tmp_path / f"boot/vmlinuz-{VERSION}").touch()
    monkeypatch.setattr(kernel, "MODULE", tmp_path / "none")
    monkeypatch.setattr(kernel, "UNPACKED", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: (there, name) == ("qemu", guest.QEMU) or None)
    assert main(["kernel", "--short", "--out", str(tmp_path / "out")]) == 1
    assert "-> .ci/setup kernel" in capsys.readouterr().err


def test_the_machine_is_measured_before_the_command() -> None:
    words = kernel.Kernel(VERSION, kernel.NATIVE).running("echo $OVS_LBT_SLOWNESS_RATIO", "a step")
    done = subprocess.run(words, cwd=kernel.CHECKOUT, capture_output=True, text=True)
    told, seen = done.stdout.splitlines()
    assert told == f"slowness ratio: {seen}" and float(seen) >= 1
    log = f"{told}\n1 passed in 3.00s\n0m0.010s 0m0.020s\n1m30.500s 0m3.250s\n"
    assert kernel.measured(log) == {"slowness_ratio": float(seen), "processor_s": 93.8}
    assert kernel.measured("1 passed in 3.00s\n") == {}


def _unpacked(archive: bytes) -> dict[str, bytes]:
    """The files of an archive in the format `newc`."""
    found, at = {}, 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        length, named = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + named - 1].decode()
        begin = (at + 110 + named + 3) // 4 * 4
        found[name] = archive[begin : begin + length]
        at = (begin + length + 3) // 4 * 4
    return found


def test_no_switch_starts_before_it_can_count_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guest, "command", lambda _unpacked, _version, inside, *_: [inside])
    (inside,) = kernel.Kernel(VERSION, kernel.EMULATED).running("exit 7", "some")
    waits, begins = inside.index("/proc/uptime"), inside.index("exit 7")
    assert waits < begins and f"> {kernel.UP_S} " in inside[waits:begins]
