"""Stations, or VMs of a cloud, that send to each other, and what of it was lost or came twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from tests.switch import frames
from tests.switch.bed import Bed, Station
from tests.switch.wire import CountingEar, Ears, Point, Stream

FLOW_PPS = 500
FRAMES = 200


class Speaker(Protocol):
    """Somebody who sends and hears."""

    @property
    def point(self) -> Point:
        """Where."""

    @property
    def mac(self) -> str:
        """The address."""


class Traffic:
    """Each first one of `ways` sends to the second one, `pps` frames a second, while the block lasts.

    They may be of several beds. `built`: the frame of each way, if it is no plain datagram. `fence`: as of
    `Ears`.
    """

    def __init__(
        self,
        ways: Sequence[tuple[Speaker, Speaker]],
        pps: float = FLOW_PPS,
        built: Sequence[bytes] = (),
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        built = built or [frames.udp(a.mac, b.mac) for a, b in ways]
        self._flows = [f"{a} to {b}" for a, b in ways]
        self._pps = pps
        # VMs of several beds have the same names.
        points = {b.point: replace(b.point, name=str(n)) for n, (_, b) in enumerate(ways)}
        self._ears = Ears([*points.values()], CountingEar, fence)
        self._heard_by = [self._ears[points[b.point]] for _, b in ways]
        senders = [a.point for a, _ in ways]
        self._stream = Stream([*zip(senders, built, strict=True)], pps)
        # The first frame of each flow that counts.
        self._begin = 0
        self._sent = 0
        self._began_at = 0.0

    @classmethod
    def of(cls, bed: Bed, vms: Sequence[Station] = (), pps: float = FLOW_PPS) -> Traffic:
        """Every VM of a bed, or some of them, and the host upstream talk to each other."""
        host, vms = bed.hosts[0], vms or bed.vms
        ways = [*((vm, host) for vm in vms), *((host, vm) for vm in vms)]
        return cls(ways, pps, fence=bed.fence_what_runs)

    def __enter__(self) -> Traffic:
        self._stream.__enter__()
        self._began_at = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._sent = self._stream.stop().count
            self._ears.until_quiet()
        finally:
            self._ears.close()

    def go_on(self, count: int = FRAMES) -> int:
        """Return when that many more frames of each flow have arrived: the number that all are past."""
        return self._stream.more(self._heard_by, count)

    def warm_up(self) -> None:
        """Have each flow arrive, and count what comes from then on.

        Open vSwitch drops what it is to send in a tunnel before it knows the neighbour.
        """
        self.go_on(1)
        self._begin = 1 + max(map(max, self._received()))

    def lost(self) -> dict[str, int]:
        """After the block: how many frames of a flow never arrived, of those that lost any."""
        return self._where(lambda copies: copies == 0)

    def numbers_lost(self) -> dict[str, list[int]]:
        """After the block: which frames of each flow never arrived."""
        numbers = range(self._begin, self._sent)
        received = zip(self._flows, self._received(), strict=True)
        return {flow: [n for n in numbers if n not in copies] for flow, copies in received}

    def lost_after(self, at: float) -> dict[str, int]:
        """The same of frames that were sent after a time, in seconds since the epoch."""
        return self._where(lambda copies: copies == 0, self._number_at(at))

    def twice(self) -> dict[str, int]:
        """After the block: how many frames of a flow arrived more than once, if any did."""
        return self._where(lambda copies: copies > 1)

    def silent_s(self, since_at: float) -> float:
        """After the block: for how long no frame of a flow arrived that was sent after a time, of all flows."""
        longest, first = 0, self._number_at(since_at)
        for copies in self._received():
            row = 0
            for number in range(first, self._sent):
                row = 0 if copies.get(number) else row + 1
                longest = max(longest, row)
        return longest / self._pps

    def _number_at(self, at: float) -> int:
        """The number of the first frame of each flow that was sent after a time."""
        return int((at - self._began_at) * self._pps) + 1

    def _where(self, is_bad: Callable[[int], bool], first: int = 0) -> dict[str, int]:
        found = {}
        numbers = range(max(first, self._begin), self._sent)
        for flow, copies in zip(self._flows, self._received(), strict=True):
            if count := sum(is_bad(copies.get(number, 0)) for number in numbers):
                found[flow] = count
        return found

    def _received(self) -> list[Mapping[int, int]]:
        return [self._stream.received(ear, flow) for flow, ear in enumerate(self._heard_by)]
