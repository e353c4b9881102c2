"""Callers of the control socket who do not behave."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import ovs.daemon
import ovs.dirs
import ovs.util
import pytest

from controller.api.engine_commands import Reply
from controller.host import control
from tests.unit.fuzz.targets import _call, _Served

Call = Callable[[bytes], socket.socket]
SHOW = b'{"id":%d,"method":"lbt/show","params":[]}'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[_Served]:
    made = _Served(str(tmp_path / "ctl"))
    yield made
    made.close()


@pytest.fixture
def call(served: _Served, tmp_path: Path) -> Iterator[Call]:
    """Call, say something, and be heard."""
    callers: list[socket.socket] = []

    def made(said: bytes) -> socket.socket:
        callers.append(_call(str(tmp_path / "ctl")))
        callers[-1].sendall(said)
        served.turn()
        return callers[-1]

    yield made
    for caller in callers:
        caller.close()


@pytest.mark.parametrize("number", [0, 1], ids=["as our client numbers it", "another number"])
def test_a_caller_who_hangs_up_before_the_answer_is_no_error(
    served: _Served, call: Call, number: int
) -> None:
    call(SHOW % number).close()
    served.turn()
    assert len(served.taken) == 1
    served.answer_all()
    served.turn()


def test_two_requests_at_once_are_no_error(served: _Served, call: Call) -> None:
    caller = call(SHOW % 0 * 2)
    assert len(served.taken) == 2
    served.answer_all()
    served.turn()
    assert b"so be it" in caller.recv(4096)


def test_a_caller_whose_bytes_the_library_cannot_decode_is_hung_up_on(call: Call) -> None:
    assert call(b"\xc2\x80").recv(1) == b""


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


def test_a_run_directory_that_is_created_again_gets_the_socket_and_the_pidfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    pidfile = directory / "ovs-lbt.pid"
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(directory))
    monkeypatch.setattr(ovs.daemon, "_pidfile", str(pidfile))
    monkeypatch.setattr(ovs.util, "PROGRAM_NAME", "ovs-lbt")
    monkeypatch.setattr(ovs.daemon, "_make_pidfile", lambda: pidfile.write_text("1"))
    directory.mkdir()
    server = control.Server(lambda _: None, "1")
    (path,) = directory.iterdir()
    server._listen_again()
    assert [*directory.iterdir()] == [path]
    shutil.rmtree(directory)
    server._listen_again()
    assert not directory.exists()
    directory.mkdir()
    server._listen_again()
    assert path.stat().st_mode & 0o077 == 0 and pidfile.exists()
    _call(str(path)).close()
    server._server.close()


def test_callers_who_hang_keep_nobody_out(
    served: _Served, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, hung = call(SHOW % 0), []
    for _ in range(control.CALLERS_MAX + 5):
        hung.append(call(b""))
        served._hang_up()
    late = call(b'{"id":0,')
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


def test_answers_control_no_terminal(served: _Served, call: Call) -> None:
    caller = call(SHOW % 0)
    served.reply(Reply(served.taken.pop().request_id, "vm \x1b[2J\x9b"))
    served.turn()
    served.turn()
    assert rb"vm \\x1b[2J\\x9b" in caller.recv(4096)
