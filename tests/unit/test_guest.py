"""The status of a command in a guest comes back, and a guest that is missing or hangs is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.releases import guest, kernel
from tests.releases.__main__ import main

VERSION = "6.1.0"


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
    assert "openvswitch" in (said := capsys.readouterr().err) and "; run: .ci/setup kernel" in said
