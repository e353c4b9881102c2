"""Frames of many connections, and how many of them are due."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from topologies.connections import sender
from topologies.connections.sender import Frames, Rate, Sender

MACS = (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
ADDRESSES = (socket.inet_aton("10.1.0.1"), socket.inet_aton("10.1.1.1"))
PAYLOAD_BYTES = 100


def test_headers_are_those_of_a_datagram() -> None:
    frame = sender.header(MACS, ADDRESSES, 5, PAYLOAD_BYTES)
    assert len(frame) == sender.HEADERS_BYTES == 42
    assert frame[:6] == MACS[1] and frame[6:12] == MACS[0]
    assert frame[12:14] == b"\x08\x00"
    ip = frame[14:34]
    # RFC 1071: with its checksum, the sum of a header is all ones.
    total = sum(struct.unpack("!10H", ip))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    assert struct.unpack("!H", ip[2:4]) == (20 + 8 + PAYLOAD_BYTES,)
    assert ip[12:16] == ADDRESSES[0] and ip[16:20] == ADDRESSES[1]
    assert struct.unpack("!HHHH", frame[34:]) == (1029, 7100, 8 + PAYLOAD_BYTES, 0)


def test_what_is_too_late_is_skipped() -> None:
    rate = Rate()
    rate.set(1000, 10.0)
    assert rate.due(10.5) == 10, "10 ms of 1,000 a second"
    assert rate.skipped == 490
    assert rate.due(10.5015) == 1, "what was skipped is not made up for"
    rate.set(10, 11.0)
    assert rate.due(11.25) == 1, "slow rates are not skipped whole"


class Recorded(Frames):
    """Remembers what was sent; there is room for `room` frames at once."""

    def __init__(self, room: int) -> None:
        self.sent: list[int] = []
        self._room = room

    def send(self, _endpoint: Any, first: int, count: int) -> int:
        some = min(self._room, count)
        self.sent += range(first, first + some)
        return some


def _sender(room: int = 1000) -> tuple[Sender, list[int]]:
    """A sender, and the connections that it sent frames of."""
    frames = Recorded(room)
    with socket.socket() as unused:
        return Sender(frames, unused), frames.sent


def test_kept_connections_take_turns() -> None:
    one, sent = _sender()
    one.order({"keep": 3, "keep_per_s": 1000}, 0.0)
    one.round(0.0055)
    one.round(0.0085)
    assert sent == [0, 1, 2, 0, 1, 2, 0, 1]
    assert one.order({"keep": 2}, 0.009)["kept"] == 8, "fewer from now on"
    one.round(0.0115)
    assert sent[8:] == [0, 1, 0]


def test_connections_are_opened_once_and_in_order_when_there_is_room() -> None:
    one, sent = _sender(room=2)
    one.order({"open": [10, 16], "open_per_s": 1000}, 0.0)
    one.round(0.0055)
    assert one.order({}, 0.005)["next"] == 12
    for tick in range(6, 20):
        one.round(tick / 1000)
    assert sent == [10, 11, 12, 13, 14, 15]
    counters = one.order({}, 0.02)
    assert (counters["opened"], counters["next"]) == (6, 16)


def test_frames_are_sent_whole() -> None:
    """`sendmmsg` takes any socket, so a pair of sockets shows what the frames are."""
    headers = [sender.header(MACS, ADDRESSES, number, PAYLOAD_BYTES) for number in range(5)]
    frames = Frames(headers, PAYLOAD_BYTES)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        assert frames.send(here, 1, 3) == 3
        there.setblocking(False)
        assert [there.recv(2000) for _ in range(3)] == [
            one + bytes(PAYLOAD_BYTES) for one in headers[1:4]
        ]
        with pytest.raises(BlockingIOError):
            there.recv(1)
