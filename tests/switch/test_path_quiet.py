"""No fault is found where nothing is wrong with any uplink: in a storm, in a loop, at full load.

In a storm, a host upstream sends broadcasts as fast as it can, so that both switches are busy with nothing
else. In a loop, a cable upstream has each broadcast go round for ever. At full load, shaped uplinks are full
in both directions: first of TCP streams, then of more datagrams than uplinks carry.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.switch import frames, iperf
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds, run
from tests.switch.path_faults import checking, told_faults
from tests.switch.service import Service
from tests.switch.wire import Stream

STORM_S, LOAD_S = 5.0, 8.0
# More than Python can send, and what comes of it at least.
STORM_PPS, STORM_LEAST_PPS = 1e6, 2000
# What an uplink carries at full load, and what is sent.
CAPACITY_MBPS, OVERLOAD_RATIO = 4.0, 1.6
# Its queue has room for 0.1 s, as that of a switch port.
QUEUE_FRAMES = 33
# What a busy machine had no time to send is sent afterwards.
BURST_BYTES = 50_000
FULL_FRAME_BYTES = 1514
TCP_STREAMS = 4
# Uplinks are idle that long before a kind of load begins.
IDLE_S = 2.0
# A fault that has begun is found within this time, and what follows from it would be seen.
AFTER_S = 4.0
Broadcasts = Callable[[Bed], contextlib.AbstractContextManager[object]]


def storm(bed: Bed, broadcasts: Broadcasts) -> None:
    """Broadcasts keep both switches busy."""
    before = received(bed)
    with broadcasts(bed):
        time.sleep(STORM_S)
    least = STORM_LEAST_PPS * STORM_S * len(bed.uplinks)
    assert received(bed) - before > least, "that was no storm"


def sent_without_pause(bed: Bed) -> Stream:
    """A host upstream sends broadcasts as fast as it can in this block."""
    sender = bed.hosts[0]
    flows = [(sender.point, frames.broadcast(sender.mac, 0, 0))]
    return Stream(flows, STORM_PPS, catch_up_s=0.0)


@contextlib.contextmanager
def loop(bed: Bed) -> Iterator[None]:
    """A cable joins two ports of the switch upstream in this block, and broadcasts go round."""
    ends, netns, ovs = (f"{bed.prefix}l0", f"{bed.prefix}l1"), bed.tor.netns, bed.tor.ovs
    lines = [f"link add {ends[0]} type veth peer {ends[1]}", *(f"link set {e} up" for e in ends)]
    run("ip", "-n", netns, "-batch", "-", stdin="\n".join(lines))
    try:
        words = [word for end in ends for word in ("--", "add-port", bed.upstream, end)]
        ovs.vsctl(*words[1:])
        bed.introduce()
        yield
    finally:
        run("ip", "-n", netns, "link", "del", ends[0])
        for end in ends:
            ovs.vsctl("--if-exists", "del-port", bed.upstream, end)


def received(bed: Bed) -> int:
    """How many frames the uplinks have received."""
    shown = run("ip", "-j", "-s", "link", "show")
    received = {link["ifname"]: link["stats64"]["rx"]["packets"] for link in json.loads(shown)}
    return sum(int(received[uplink.name]) for uplink in bed.uplinks)


@pytest.fixture
def full(attached: Bed, service: Service) -> Bed:
    """Each VM has an uplink of its own, which carries little."""
    service.place(attached, *range(len(attached.uplinks)))
    for uplink in attached.uplinks:
        for interface, netns in (
            (uplink.name, None),
            (uplink.upstream_end.interface, uplink.upstream_end.netns),
        ):
            run("ip", "link", "set", interface, "txqueuelen", str(QUEUE_FRAMES), netns=netns)
    attached.limit_uplinks(CAPACITY_MBPS, BURST_BYTES)
    return attached


def full_load(bed: Bed) -> None:
    """All uplinks are full in both directions, by one kind of load after another."""
    for load in (streams, overload):
        time.sleep(IDLE_S)
        load(bed, LOAD_S / 2)


def streams(bed: Bed, seconds: float) -> None:
    """TCP streams between each VM and a host of its own, in both directions."""
    with contextlib.ExitStack() as stack:
        pairs = list(zip(bed.vms, bed.hosts, strict=True))
        for _, host in pairs:
            stack.enter_context(iperf.server(host))
        options = ("--bidir", "--parallel", str(TCP_STREAMS))
        clients = [
            stack.enter_context(iperf.client(vm, host, round(seconds), *options))
            for vm, host in pairs
        ]
        for one in clients:
            iperf.end(one, round(seconds))


def overload(bed: Bed, seconds: float) -> None:
    """More datagrams between each VM and a host of its own than uplinks carry, in both directions."""
    ways = [
        w for vm, host in zip(bed.vms, bed.hosts, strict=True) for w in ((vm, host), (host, vm))
    ]
    flows = [(a.point, frames.udp(a.mac, b.mac, frame_bytes=FULL_FRAME_BYTES)) for a, b in ways]
    pps = OVERLOAD_RATIO * CAPACITY_MBPS * 1e6 / (8 * FULL_FRAME_BYTES)
    with Stream(flows, pps):
        time.sleep(seconds)


@on_beds(BedSpec(PLAIN, 3, (None, None), addresses=True))
@pytest.mark.parametrize("broadcasts", [sent_without_pause, loop])
def test_broadcasts_without_end_are_no_fault(
    attached: Bed, service: Service, broadcasts: Broadcasts
) -> None:
    with nothing_is_found(attached, service):
        storm(attached, broadcasts)


@on_beds(BedSpec(PLAIN, 3, (None, None, None), (None, None, None), addresses=True))
def test_full_uplinks_are_no_fault(full: Bed, service: Service) -> None:
    with nothing_is_found(full, service):
        full_load(full)


@contextlib.contextmanager
def nothing_is_found(bed: Bed, service: Service) -> Iterator[None]:
    """Path checks come to look, and find nothing in this block and until what followed would be seen."""
    with checking(service, bed, bed.hosts[0].ip):
        before, began_at = judged(service), time.time()
        yield
        time.sleep(AFTER_S)
        assert told_faults(bed.ovs, began_at) == []
        assert judged(service) > before, "path checks did not come to look"


def judged(service: Service) -> float:
    """The rounds of all path checks that were judged."""
    return service.metric("ovslbt_path_rounds_total", result="judged")
