"""How commands reach the service: one question, one answer, and none for ever."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import ovs.dirs
import pytest

from controller.host import client
from controller.text.wording import Refused

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def service(place: Path, talk: Talk) -> Iterator[None]:
    """Something that takes connections where a service would, each once."""
    (place / "ovs-lbt.pid").write_text(f"{os.getpid()}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place / f"ovs-lbt.{os.getpid()}.ctl"))
        listening.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    wire, _ = listening.accept()
                    with wire:
                        talk(wire)

        threading.Thread(target=serve, daemon=True).start()
        yield


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path))
    return tmp_path


def test_a_question_is_answered(place: Path) -> None:
    asked = []

    def talk(wire: socket.socket) -> None:
        asked.append(json.loads(wire.recv(4096)))
        # In pieces, one of which ends like a message.
        answer = json.dumps({"id": 0, "result": "{}" * 40_000 + "ü", "error": None}).encode()
        for piece in (answer[:22], answer[22:]):
            wire.sendall(piece)

    with service(place, talk):
        assert client.ask("lbt/show", ["br0", "--json"]) == "{}" * 40_000 + "ü"
    assert asked == [{"id": 0, "method": "lbt/show", "params": ["br0", "--json"]}]


def test_a_refusal_is_told(place: Path) -> None:
    def talk(wire: socket.socket) -> None:
        wire.recv(4096)
        wire.sendall(json.dumps({"id": 0, "result": None, "error": "br9 -> br0\n"}).encode())

    with service(place, talk), pytest.raises(Refused, match=r"^br9 -> br0$"):
        client.ask("lbt/show", ["br9"])


def ends(wire: socket.socket) -> None:
    wire.recv(4096)


def hangs(wire: socket.socket) -> None:
    while wire.recv(4096):
        pass


@pytest.mark.parametrize(
    ("talk", "timeout_s", "why"),
    [
        (ends, 30.0, "the service closed the connection: .*"),
        (hangs, 0.1, r"the service did not answer within 0\.1 s"),
    ],
)
def test_a_service_that_ends_or_hangs_is_given_up(
    place: Path, talk: Talk, timeout_s: float, why: str
) -> None:
    with service(place, talk):
        assert client.running()
        with pytest.raises(client.Unanswered, match=f"{why}; see the ovs-lbt log"):
            client.ask("lbt/show", [], timeout_s=timeout_s)


def test_without_a_service_nobody_is_asked(place: Path) -> None:
    none = "no service is running; start it with: ovs-lbt run"
    (place / "db.sock").touch()
    for pid in (None, "", "rubbish", "4194304\n"):
        if pid is not None:
            (place / "ovs-lbt.pid").write_text(pid)
        assert not client.running()
        with pytest.raises(client.Unanswered, match=none):
            client.ask("lbt/show", [])


def test_a_socket_that_a_killed_service_left_is_no_service(place: Path) -> None:
    (place / "ovs-lbt.pid").write_text(f"{os.getpid()}\n")
    path = place / f"ovs-lbt.{os.getpid()}.ctl"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(path))
        left.listen()
        assert client.running()
    assert path.is_socket() and not client.running()


def test_a_directory_that_root_cannot_write_to_is_not_a_matter_of_rights(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert client.obstacle() is None
    assert client.read_only() == f"{place} is not writable"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert client.obstacle() == f"user 1000 cannot write to {place}; run the command as root"


def test_another_service_than_the_one_that_is_meant_is_found(place: Path) -> None:
    assert client.another() is None
    with service(place, lambda wire: None):
        assert client.another() is None, "this one is meant"
        client.call("ovs-lbt-b")
        try:
            assert client.another() == "ovs-lbt"
        finally:
            client.call(client.NAME)
