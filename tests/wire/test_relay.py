"""The relay that a bench puts before a switch: it passes everything on, and sees what it times."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from controller.dataplane import pipeline
from controller.dataplane.specs import EMPTY
from tests.unit.controller.openflow.switch_bytes import PIPELINE, bundle
from tests.wire.fake_switch import HELLO, MODIFY, PORT_STATUS, FakeSwitch, message, port
from topologies.scale.openflow import Messages, Relay, commits, is_port_status

BUNDLE = bundle(pipeline.changes(PIPELINE, EMPTY))
STATUS = message(PORT_STATUS, 0, struct.pack("!B7x", MODIFY) + port(1, "eth1"))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1000])
def test_messages_are_found_in_whatever_pieces_they_come(size: int) -> None:
    sent, messages = [message(HELLO, 1), STATUS, *BUNDLE], Messages()
    stream = b"".join(sent)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [found for piece in pieces for found in messages.of(piece)] == sent


def test_of_a_bundle_only_the_commit_counts() -> None:
    assert list(map(commits, BUNDLE)) == [False] * (len(BUNDLE) - 1) + [True]
    assert [is_port_status(one) for one in (STATUS, message(HELLO, 1))] == [True, False]


def received(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += sock.recv(1 << 16)
    return data


def test_it_times_from_the_port_status_to_the_commit(tmp_path: Path) -> None:
    path, bundled = tmp_path / "br0.mgmt", b"".join(BUNDLE)
    switch = FakeSwitch(path)
    with Relay(path) as relay, socket.socket(socket.AF_UNIX) as service:
        service.settimeout(10)
        service.connect(str(path))
        switch.accept()
        relay.begin()
        # A bundle that no port caused.
        service.sendall(bundled)
        assert received(switch.connection, len(bundled)) == bundled
        assert relay.service_s() is None
        switch.connection.sendall(STATUS)
        assert received(service, len(STATUS)) == STATUS
        service.sendall(bundled[:-1])
        received(switch.connection, len(bundled) - 1)
        assert relay.service_s() is None
        service.sendall(bundled[-1:])
        received(switch.connection, 1)
        took_s = relay.service_s()
        assert took_s is not None and 0.0 < took_s < 10.0
    assert path.exists(), "the switch listens where it did before"
