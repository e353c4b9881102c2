"""A guest gets what it needs to begin, and its command's status comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.releases import guest, kernel

VERSION = "6.1.0"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What runs `exit 7` in a guest whose kernel has one module."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/busybox").write_bytes(b"busybox")
    (tmp_path / "some.ko").write_bytes(b"module")
    monkeypatch.setattr(guest, "_with_those_before", lambda *_: [tmp_path / "some.ko"])
    return guest.command(tmp_path, VERSION, "exit 7", tmp_path, cores=2, kvm=False)


def test_a_guest_reads_this_machine_s_files_and_writes_none(command: list[str]) -> None:
    (shared,) = (word for word in command if word.startswith("local,"))
    assert {"path=/", "readonly=on"} <= {*shared.split(",")}


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
    command = kernel.Kernel(VERSION, runs).running("true")
    assert (command[0] == "in a guest") is needs
    assert "OVS_LBT_DATAPATH=kernel" in command[-1]


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
