"""Callers of the control socket who do not behave."""

from __future__ import annotations

import os
from pathlib import Path

import ovs.dirs
import pytest

from controller.host import control
from tests.unit.fuzz.targets import _call, _Served

SHOW = b'{"id":%d,"method":"lbt/show","params":[]}'


@pytest.mark.parametrize("number", [0, 1], ids=["as our client numbers it", "another number"])
def test_a_caller_who_hangs_up_before_the_answer_is_no_error(tmp_path: Path, number: int) -> None:
    path = str(tmp_path / "ctl")
    served = _Served(path)
    caller = _call(path)
    caller.sendall(SHOW % number)
    served.turn()
    caller.close()
    served.turn()
    assert len(served.taken) == 1
    served.answer_all()
    served.turn()
    served.close()


def test_two_requests_at_once_are_no_error(tmp_path: Path) -> None:
    path = str(tmp_path / "ctl")
    served = _Served(path)
    caller = _call(path)
    caller.sendall(SHOW % 0 * 2)
    served.turn()
    assert len(served.taken) == 2
    served.answer_all()
    served.turn()
    assert b"so be it" in caller.recv(4096)
    caller.close()
    served.close()


def test_a_caller_whose_bytes_the_library_cannot_decode_is_hung_up_on(tmp_path: Path) -> None:
    path = str(tmp_path / "ctl")
    served = _Served(path)
    caller = _call(path)
    caller.sendall(b"\xc2\x80")
    served.turn()
    assert caller.recv(1) == b""
    caller.close()
    served.close()


def test_nobody_else_may_call_whatever_we_were_started_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path))
    before = os.umask(0)
    try:
        server = control.Server(lambda _: None, "1")
        assert os.umask(0) == 0, "files of ours are made as we were told"
    finally:
        os.umask(before)
    (path,) = tmp_path.iterdir()
    assert path.is_socket() and path.stat().st_mode & 0o077 == 0
    server._server.close()
