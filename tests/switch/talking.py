"""Stations that talk while something happens, and how many of their frames were lost by it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tests.switch import frames
from tests.switch.bed import Station
from tests.switch.wire import Ears, Stream


@contextlib.contextmanager
def talking(ways: Sequence[tuple[Station, Station]], pps: float) -> Iterator[list[int]]:
    """In this block, each first station sends to the second one, `pps` frames a second.

    After the block, the list has how many frames each of them lost. The stations may be of several beds.
    """
    flows = [(one.point, frames.udp(one.mac, other.mac)) for one, other in ways]
    lost: list[int] = []
    with contextlib.ExitStack() as listening:
        ears = [listening.enter_context(Ears([receiver.point])) for _, receiver in ways]
        with Stream(flows, pps) as stream:
            yield lost
            stream.stop()
        for ear in ears:
            ear.until_quiet()
        lost += [
            stream.lost(ear[receiver.point], number)
            for number, (ear, (_, receiver)) in enumerate(zip(ears, ways, strict=True))
        ]
