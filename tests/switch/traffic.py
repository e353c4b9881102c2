"""Traffic of every VM with the outside, in both directions, and what was lost of it."""

from __future__ import annotations

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
        self._lost: dict[str, int] = {}
        self._most_copies = 0

    def __enter__(self) -> Traffic:
        self._ears.__enter__()
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._stream.stop()
            self._ears.until_quiet()
            for i, (a, b) in enumerate(self._ways):
                ear = self._ears[b.point]
                if count := self._stream.lost(ear, i):
                    self._lost[f"{a} to {b}"] = count
                copies = self._stream.received(ear, i).values()
                self._most_copies = max([self._most_copies, *copies])
        finally:
            self._ears.close()

    def go_on(self, count: int = FRAMES) -> None:
        """Return when that many more frames of each flow have arrived."""
        self._stream.more([self._ears[b.point] for _, b in self._ways], count)

    def lost(self) -> dict[str, int]:
        """After the block: the frames of each flow that never arrived, if any."""
        return self._lost

    def most_copies(self) -> int:
        """After the block: how often the frame was heard that was heard most often."""
        return self._most_copies
