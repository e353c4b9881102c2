"""What a supervisor hears, with a socket in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.host.notify import Supervisor


@pytest.fixture(params=["a path", "an abstract name"])
def heard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The supervisor's address as the environment says it, and its socket."""
    name = str(tmp_path / "notify") if request.param == "a path" else f"@ovs-lbt-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(name.replace("@", "\0", 1))
        made.setblocking(False)
        yield name, made


def messages(sock: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(sock.recv(4096).decode())
        except BlockingIOError:
            return found


def test_readiness_and_each_new_status_are_told_once(heard: tuple[str, socket.socket]) -> None:
    name, sock = heard
    supervisor = Supervisor({"NOTIFY_SOCKET": name})
    for _ in range(2):
        supervisor.ready()
        supervisor.status("1 of 1 bridges connected")
    supervisor.stopping()
    assert messages(sock) == ["READY=1", "STATUS=1 of 1 bridges connected", "STOPPING=1"]


def test_a_status_may_be_any_text(heard: tuple[str, socket.socket]) -> None:
    name, sock = heard
    Supervisor({"NOTIFY_SOCKET": name}).status("0 of 1 bridges connected: \ud800\nMAINPID=1")
    assert messages(sock) == [r"STATUS=0 of 1 bridges connected: \ud800\nMAINPID=1"]


def test_the_watchdog_is_fed_twice_in_its_time(heard: tuple[str, socket.socket]) -> None:
    name, sock = heard
    supervisor = Supervisor({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
    supervisor.feed(100.0)
    assert supervisor.feed_due_s == 115.0
    supervisor.feed(114.9)
    assert messages(sock) == ["WATCHDOG=1"]
    supervisor.feed(115.0)
    assert messages(sock) == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    "variables",
    [{}, {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}],
)
def test_a_watchdog_of_nobody_or_of_another_process_is_not_fed(
    heard: tuple[str, socket.socket], variables: dict[str, str]
) -> None:
    name, sock = heard
    supervisor = Supervisor({"NOTIFY_SOCKET": name, **variables})
    supervisor.feed(1e9)
    assert supervisor.feed_due_s == float("inf")
    assert messages(sock) == []


def test_without_a_supervisor_nobody_is_told() -> None:
    supervisor = Supervisor({"WATCHDOG_USEC": "30000000"})
    supervisor.ready()
    assert supervisor.feed_due_s == float("inf")


def test_a_supervisor_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready()
