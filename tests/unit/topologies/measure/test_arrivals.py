"""What happened to a VM that arrived, from captured frames and from what else was seen."""

from __future__ import annotations

import struct

import pytest

from topologies.loads.handover import ETH_RARP, Handover, announcement
from topologies.measure.arrivals import ETH_IPV4, MAGIC_NS, Frame, parse, timeline

MAC, OURS, ADDRESS = "52:54:00:00:00:01", "0a:00:00:00:00:02", "10.100.0.1"


def test_times_are_those_since_the_port_left() -> None:
    frames = [
        Frame(9.9, MAC, ETH_IPV4, ADDRESS),
        Frame(10.03, OURS, ETH_IPV4, ADDRESS),
        Frame(10.04, OURS, ETH_IPV4, "10.100.0.2"),
        Frame(10.07, MAC, ETH_RARP),
        Frame(10.08, MAC, ETH_IPV4, ADDRESS),
        Frame(10.2, MAC, ETH_RARP),
        Frame(99.0, MAC, ETH_RARP),
    ]
    added = [(9.0, 0), (10.025, 0), (10.026, 1), (10.031, 20)]
    found = timeline(Handover(10.0, 10.01), MAC, ADDRESS, frames, added)
    assert {name: [pytest.approx(at_s) for at_s in at] for name, at in found.items()} == {
        "installed": [0.025],
        "learned": [0.031],
        "announcement_out": [0.07, 0.2],
        "own_out": [0.08],
        "ours_out": [0.03],
    }


MAC_BYTES = bytes.fromhex(MAC.replace(":", ""))
HEADER = struct.pack("=IHHiIII", MAGIC_NS, 2, 4, 0, 0, 64, 1)


def record(frame: bytes, second: int, nanosecond: int) -> bytes:
    return struct.pack("=IIII", second, nanosecond, len(frame), len(frame)) + frame


def test_frames_have_monotonic_times_and_addresses() -> None:
    datagram = b"\xff" * 6 + MAC_BYTES + b"\x08\x00" + bytes(12) + bytes([10, 0, 0, 7]) + bytes(30)
    content = (
        HEADER
        + record(announcement(MAC_BYTES), 100, 500_000_000)
        + record(datagram, 101, 250_000_000)
    )
    cut_off = record(datagram, 102, 0)[:-5]
    for end in (b"", cut_off):
        assert list(parse(content + end, -90.0)) == [
            Frame(10.5, MAC, 0x8035),
            Frame(11.25, MAC, 0x0800, "10.0.0.7"),
        ]
    with pytest.raises(ValueError, match="00000000; expected a capture with times in nanoseconds"):
        list(parse(b"\0" * 24, 0.0))
