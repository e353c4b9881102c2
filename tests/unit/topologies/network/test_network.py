"""The directory and the environment of a private Open vSwitch, its programs, and the queues of links."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from topologies.network import processes, shaping
from topologies.network.daemons import LONGEST_RUNDIR
from topologies.network.private_ovs import PrivateOvs


@pytest.mark.parametrize("length", [10, 60, 90])
def test_its_directory_name_leaves_room_for_sockets(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / ("x" * length)
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    rundir = PrivateOvs().rundir
    try:
        assert len(str(rundir)) <= LONGEST_RUNDIR
    finally:
        shutil.rmtree(rundir)


def test_it_ignores_the_settings_of_an_installed_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OVS_LBT_OVSDB", "unix:/somewhere/else.sock")
    private = PrivateOvs()
    shutil.rmtree(private.rundir)
    assert "OVS_LBT_OVSDB" not in private.env
    assert private.env["OVS_RUNDIR"] == str(private.rundir)


@pytest.mark.system
def test_a_command_in_a_namespace_keeps_its_temporary_files_beside_its_log(tmp_path: Path) -> None:
    log = tmp_path / "mktemp.log"
    command = ("mktemp", "--tmpdir", "left.XXXXXX")
    process = processes.start_in(os.getpid(), command, log)
    assert process.wait(30) == 0, log.read_text()
    assert [path.parent for path in tmp_path.glob("left.*")] == [tmp_path]


@pytest.mark.system
def test_a_session_gets_a_niceness_where_linux_divides_the_cpu_among_sessions(
    tmp_path: Path,
) -> None:
    process = processes.start(("sleep", "60"), tmp_path / "log")
    try:
        processes.set_session_niceness(process.pid, 5)
        group = Path(f"/proc/{process.pid}/autogroup")
        assert not group.exists() or group.read_text().endswith(" nice 5\n")
    finally:
        processes.end(process)


# The default of the kernel, and the frames of 2304 bytes in memory that fit into it.
DEFAULT_BYTES, DEFAULT_FRAMES = 212_992, 92


@pytest.mark.parametrize(
    ("buffer_bytes", "links", "frames"),
    [
        (DEFAULT_BYTES, 0, DEFAULT_FRAMES),
        (DEFAULT_BYTES, 1, DEFAULT_FRAMES),
        (DEFAULT_BYTES, 2, DEFAULT_FRAMES // 2),
        (DEFAULT_BYTES, 4, DEFAULT_FRAMES // 4),
        # No longer than on a switch.
        (64 * 2**20, 4, shaping.QUEUE_BYTES // 1514),
    ],
)
def test_queues_share_the_buffer(
    buffer_bytes: int, links: int, frames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shaping, "SEND_BUFFER", tmp_path / "wmem_default")
    shaping.SEND_BUFFER.write_text(f"{buffer_bytes}\n")
    assert shaping.queue_bytes(links) // 1514 == frames


def test_links_as_fast_as_the_machine_are_not_shaped() -> None:
    assert shaping.is_shaped(10**9)
    assert not shaping.is_shaped(10 * 10**9)
