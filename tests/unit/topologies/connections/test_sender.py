"""Datagrams of many connections, and how many of them are due."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from topologies.connections import sender
from topologies.connections.sender import Sender


def test_datagrams_have_the_ports_of_their_connection() -> None:
    found = sender.datagram(5, 142)
    assert struct.unpack("!HHHH", found[:8]) == (1029, 7100, 108, 0)
    assert len(found) == 142 - 14 - 20
    assert sender.ports(sender.SOURCE_PORTS) == (1024, 7101)
    assert sender.first_of_next_port(sender.SOURCE_PORTS) == sender.SOURCE_PORTS
    assert sender.first_of_next_port(1) == sender.SOURCE_PORTS


@pytest.fixture(autouse=True)
def _at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rates begin at this time."""
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: 0.0))


def test_kept_connections_take_turns() -> None:
    sent: list[int] = []
    one = Sender(sent.append)
    one.keep(3, 1000)
    one.round(0.0055)
    one.round(0.0085)
    assert sent == [0, 1, 2, 0, 1, 2, 0, 1]
    one.keep(2, 1000)
    one.round(0.0035)
    assert sent[8:] == [0, 1, 0], "fewer from now on"


def test_connections_are_opened_once_and_in_order_when_there_is_room() -> None:
    sent: list[int] = []
    room = 2

    def send(connection: int) -> None:
        if len(sent) == room:
            raise BlockingIOError
        sent.append(connection)

    one = Sender(send)
    one.open(10, 16, 1000)
    one.round(0.0055)
    assert one.next == 12
    room = 100
    for tick in range(6, 20):
        one.round(tick / 1000)
    assert sent == [10, 11, 12, 13, 14, 15]
    assert one.next == 16
