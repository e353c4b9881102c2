"""Traffic between VMs of a cloud: each frame must arrive, and once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tests.switch import frames
from tests.switch.judging import few_lost
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.host import Vm
from tests.switch.traffic import Traffic


def traffic(
    cloud: Cloud, ways: Sequence[tuple[Vm, Vm]], pps: float, frame_bytes: int = 60
) -> Traffic:
    """VMs send to VMs while the block lasts, each pair `pps` frames a second.

    VMs of one network send to each other's address, VMs of different ones to the router's.
    """
    built = [_frame(cloud, one, to, frame_bytes) for one, to in ways]
    return Traffic(ways, pps, built, cloud.fence)


@contextlib.contextmanager
def each_once(
    cloud: Cloud, ways: Sequence[tuple[Vm, Vm]], pps: float, count: int, frame_bytes: int = 60
) -> Iterator[None]:
    """While the block lasts, and for so many frames of each flow after it, each arrives once."""
    with traffic(cloud, ways, pps, frame_bytes) as talk:
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
