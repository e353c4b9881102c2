"""Traffic of every VM with the outside, in both directions, and what was lost of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.switch import frames
from tests.switch.bed import Bed, Station
from tests.switch.wire import Stream

FLOW_PPS = 500
FRAMES = 200


class Traffic:
    """Every VM, or some of them, and the host upstream talk to each other while the block lasts."""

    def __init__(self, bed: Bed, vms: Sequence[Station] = ()) -> None:
        host, vms = bed.hosts[0], vms or bed.vms
        self._ways: list[tuple[Station, Station]] = [(vm, host) for vm in vms]
        self._ways += [(host, vm) for vm in vms]
        flows = [(a.point, frames.udp(a.mac, b.mac)) for a, b in self._ways]
        self._ears = bed.ears(*{b.point for _, b in self._ways})
        self._stream = Stream(flows, FLOW_PPS)
        # The numbers of the frames of each flow that never arrived.
        self._lost: dict[str, list[int]] = {}
        self._most_copies = 0
        self._began_at = 0.0

    def __enter__(self) -> Traffic:
        self._ears.__enter__()
        self._stream.__enter__()
        self._began_at = time.time()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            sent = range(self._stream.stop().count)
            self._ears.until_quiet()
            for i, (a, b) in enumerate(self._ways):
                received = self._stream.received(self._ears[b.point], i)
                self._lost[f"{a} to {b}"] = [n for n in sent if n not in received]
                self._most_copies = max([self._most_copies, *received.values()])
        finally:
            self._ears.close()

    def go_on(self, count: int = FRAMES) -> None:
        """Return when that many more frames of each flow have arrived."""
        self._stream.more([self._ears[b.point] for _, b in self._ways], count)

    def lost(self) -> dict[str, int]:
        """After the block: how many frames of each flow never arrived, if any."""
        return {flow: len(numbers) for flow, numbers in self._lost.items() if numbers}

    def lost_after(self, at: float) -> list[int]:
        """The same of those that were sent after a time, in seconds since the epoch; 0 included."""
        first = (at - self._began_at) * FLOW_PPS
        return [sum(n > first for n in numbers) for numbers in self._lost.values()]

    def most_copies(self) -> int:
        """After the block: how often the frame was heard that was heard most often."""
        return self._most_copies
