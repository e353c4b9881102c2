"""Callers of the control socket who do not behave."""

from __future__ import annotations

import os
from pathlib import Path

import ovs.dirs
import pytest

from controller.api.engine_commands import Reply
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


def test_callers_who_hang_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "ctl")
    served = _Served(path)
    asking = _call(path)
    asking.sendall(SHOW % 0)
    served.turn()
    hung = []
    for _ in range(control.CALLERS_MAX + 5):
        hung.append(_call(path))
        served.turn()
        served._hang_up()
    late = _call(path)
    late.sendall(b'{"id":0,')
    served.turn()
    served._hang_up()
    assert len(served._server._conns) == control.CALLERS_MAX
    assert all(caller.recv(1) == b"" for caller in hung[:7]), "the oldest of those that ask nothing"
    late.sendall(b'"method":"lbt/show","params":[]}')
    served.turn()
    assert len(served.taken) == 2
    # A byte does not restart the time.
    for caller in hung[7:]:
        caller.sendall(b" ")
    monkeypatch.setattr(control, "CALLER_MAX_S", -1.0)
    served.turn()
    assert len(served._server._conns) == 2, "those whose request is carried out stay"
    monkeypatch.undo()
    served.answer_all()
    served.turn()
    assert all(b"so be it" in caller.recv(4096) for caller in (asking, late))
    for caller in (*hung, asking, late):
        caller.close()
    served.close()


def test_answers_control_no_terminal(tmp_path: Path) -> None:
    served = _Served(str(tmp_path / "ctl"))
    caller = _call(str(tmp_path / "ctl"))
    caller.sendall(SHOW % 0)
    served.turn()
    served.reply(Reply(served.taken.pop().request_id, "vm \x1b[2J\x9b"))
    served.turn()
    served.turn()
    assert rb"vm \\x1b[2J\\x9b" in caller.recv(4096)
    caller.close()
    served.close()
