"""The directory and the environment of a private Open vSwitch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

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
