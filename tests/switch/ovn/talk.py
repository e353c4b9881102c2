"""Traffic between VMs of a cloud: each frame must arrive, and once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.switch import frames
from tests.switch.judging import few_lost
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import Vm
from tests.switch.waiting import wait_until
from tests.switch.wire import STREAM_SHIFT, CountingEar, Ears, Stream


class Talk:
    """VMs send to VMs while the block lasts, each pair `pps` frames a second.

    VMs of one network send to each other's address, VMs of different ones to the router's.
    """

    def __init__(
        self, cloud: Cloud, ways: Sequence[tuple[Vm, Vm]], pps: float, frame_bytes: int = 60
    ) -> None:
        self._ways = list(ways)
        listeners = {to.name: to.point for _, to in ways}
        self._ears = Ears([*listeners.values()], CountingEar, cloud.fence)
        flows = [(one.point, _frame(cloud, one, to, frame_bytes)) for one, to in ways]
        self._stream = Stream(flows, pps)
        # Of each flow, the first frame that counts.
        self._begins = [0] * len(self._ways)
        self._sent = 0

    def __enter__(self) -> Talk:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._sent = self._stream.stop().count
            self._ears.until_quiet()
        finally:
            self._ears.close()

    def go_on(self, count: int) -> None:
        """Return when that many more frames of each flow have arrived."""
        goals = [number + count for number in self._arrived()]
        wait_until(
            lambda: all(n >= goal for n, goal in zip(self._arrived(), goals, strict=True)),
            f"{count} more frames of each flow",
        )

    def warm_up(self) -> None:
        """Have each flow arrive, and count what comes from then on.

        Open vSwitch drops what it is to send in a tunnel before it knows the neighbour.
        """
        self.go_on(1)
        self._begins = [number + 1 for number in self._arrived()]

    def lost(self) -> dict[str, int]:
        """After the block: how many frames of a flow never arrived, of those that lost any."""
        return self._where(lambda copies: copies == 0)

    def twice(self) -> dict[str, int]:
        """After the block: how many frames of a flow arrived more than once, if any did."""
        return self._where(lambda copies: copies > 1)

    def _where(self, is_bad: Callable[[int], bool]) -> dict[str, int]:
        found = {}
        for index, (one, to) in enumerate(self._ways):
            counts, first_id = self._heard_by(to), self._stream.first_id(index)
            numbers = range(self._begins[index], self._sent)
            if count := sum(is_bad(counts.get(first_id + number, 0)) for number in numbers):
                found[f"{one} to {to}"] = count
        return found

    def _arrived(self) -> list[int]:
        """The number of the latest frame of each flow that has arrived; -1 before the first."""
        self._ears.listen()
        return [
            self._ear(to).newest.get(self._stream.first_id(index) >> STREAM_SHIFT, -1)
            for index, (_, to) in enumerate(self._ways)
        ]

    def _heard_by(self, vm: Vm) -> Mapping[int, int]:
        return self._ear(vm).counts

    def _ear(self, vm: Vm) -> CountingEar:
        ear = self._ears[vm.name]
        assert isinstance(ear, CountingEar)
        return ear


@contextlib.contextmanager
def each_once(
    cloud: Cloud, ways: Sequence[tuple[Vm, Vm]], pps: float, count: int, frame_bytes: int = 60
) -> Iterator[None]:
    """While the block lasts, and for so many frames of each flow after it, each arrives once."""
    with Talk(cloud, ways, pps, frame_bytes) as talk:
        talk.warm_up()
        yield
        talk.go_on(count)
    assert not talk.twice()
    few_lost(talk.lost(), 0, pps)


def _frame(cloud: Cloud, one: Vm, to: Vm, frame_bytes: int) -> bytes:
    next_hop = cloud.next_hop(one, to)
    return frames.udp(
        one.mac, next_hop, source_ip=one.ip, destination_ip=to.ip, frame_bytes=frame_bytes
    )
