"""Frames of a capture file."""

from __future__ import annotations

import struct

import pytest

from topologies.loads.handover import announcement
from topologies.measure.captured import MAGIC_NS, Frame, parse

MAC = bytes.fromhex("525400000001")
HEADER = struct.pack("=IHHiIII", MAGIC_NS, 2, 4, 0, 0, 64, 1)


def record(frame: bytes, second: int, nanosecond: int) -> bytes:
    return struct.pack("=IIII", second, nanosecond, len(frame), len(frame)) + frame


def test_frames_have_monotonic_times_and_addresses() -> None:
    datagram = b"\xff" * 6 + MAC + b"\x08\x00" + bytes(12) + bytes([10, 0, 0, 7]) + bytes(30)
    content = (
        HEADER + record(announcement(MAC), 100, 500_000_000) + record(datagram, 101, 250_000_000)
    )
    cut_off = record(datagram, 102, 0)[:-5]
    assert list(parse(content + cut_off, -90.0)) == [
        Frame(10.5, "52:54:00:00:00:01", 0x8035),
        Frame(11.25, "52:54:00:00:00:01", 0x0800, "10.0.0.7"),
    ]
    with pytest.raises(ValueError, match="-> a capture with times in nanoseconds"):
        list(parse(b"\0" * 24, 0.0))
