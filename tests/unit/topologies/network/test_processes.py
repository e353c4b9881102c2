"""What child processes leave behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topologies.network import processes


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
