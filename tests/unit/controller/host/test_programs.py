"""How programs on this host are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.host.programs import run


@pytest.mark.parametrize(
    ("database", "asked"),
    [
        ("unix:/run/other.sock", "--timeout=3 --db=unix:/run/other.sock list-br\n"),
        ("ssl:192.0.2.1:6640", "--timeout=3 list-br\n"),
        ("", "--timeout=3 list-br\n"),
    ],
)
def test_ovs_vsctl_asks_the_database_of_the_service_on_this_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: str, asked: str
) -> None:
    (tmp_path / "ovs-vsctl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "ovs-vsctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("OVS_LBT_OVSDB", database)
    assert run("ovs-vsctl", "list-br", timeout_s=3.0) == asked
