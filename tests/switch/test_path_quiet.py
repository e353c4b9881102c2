"""No fault is found where nothing is wrong with any uplink: in a storm, a loop, among many hosts, at full load.

`storm`: a host upstream sends broadcasts as fast as it can, so that both switches are busy with nothing else;
and the same with a cable upstream that makes a loop, in which each broadcast goes round for ever.

`hosts`: some hosts with two or three uplinks each, and all switches upstream joined to one segment. Their
services, each with a key of its own, have some of the hosts each. The VMs and a host upstream talk to each
other. In the end, one uplink of one host is cut off, and only that host may find something.

`load`: shaped uplinks, full in both directions: first of TCP streams, then of more datagrams than uplinks
carry. Each of them begins with idle uplinks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.switch import datapath, frames, iperf
from tests.switch.bed import PLAIN, Bed, BedSpec, Upstream, run
from tests.switch.counters import RECEIVED, counters
from tests.switch.path_faults import Talk, blocked, checking, faults, found_after_s, told_faults
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream, inside
from topologies.network.private_ovs import PrivateOvs

STORM, LOOP, LOAD = "storm", "loop", "load"
STORM_S, LOAD_S, TALK_S = 5.0, 8.0, 4.0
FEW_HOSTS, FEW_SERVICES = 4, 2
# More than Python can send, and what comes of it at least.
STORM_PPS, STORM_LEAST_PPS = 1e6, 2000
# What VMs of many hosts say, and the end of it, in which each must be heard.
TALK_PPS, TALK_END_S = 20.0, 4.0
# What an uplink of the case `load` carries, and what is sent.
CAPACITY_MBPS, OVERLOAD_RATIO = 4.0, 1.6
# Its queue has room for 0.1 s, as that of a switch port.
QUEUE_FRAMES = 33
# What a busy machine had no time to send is sent afterwards.
BURST_BYTES = 50_000
OF_STORM = BedSpec(PLAIN, 3, (None, None), addresses=True)
OF_LOAD = BedSpec(PLAIN, 3, (None, None, None), (None, None, None), addresses=True)
FULL_FRAME_BYTES = 1514
TCP_STREAMS = 4
# Uplinks are idle that long before a kind of load begins.
IDLE_S = 2.0
# A fault that has begun is found within this time, and what follows from it would be seen.
AFTER_S = 4.0


@pytest.mark.parametrize("case", [STORM, LOOP, LOAD])
def test_nothing_is_found_where_nothing_is_wrong(tor: Upstream, case: str) -> None:
    with Host(0, tor) as host:
        bed = host.add(OF_LOAD if case == LOAD else OF_STORM)
        with host.entered(), checking(host.service, bed, bed.hosts[0].ip):
            if case == LOAD:
                fill(host, bed)
            with watched([host]) as seen:
                if case == LOAD:
                    full_load(bed)
                else:
                    storm(bed, loops=case == LOOP)
    assert seen.findings == []
    assert seen.judged, "path checks did not come to look"


@pytest.fixture(scope="module")
def hosts(tor: Upstream) -> Iterator[list[Host]]:
    with segment(tor, FEW_HOSTS, FEW_SERVICES) as made:
        yield made


def test_hosts_on_one_segment_do_not_disturb_each_other(hosts: list[Host]) -> None:
    """All VMs talk to a host upstream."""
    beds = [bed for host in hosts for bed in host.beds]
    assert len(beds) == FEW_HOSTS
    with (
        watched(hosts) as seen,
        Talk([bed.vms[0] for bed in beds], beds[0].hosts[0], TALK_PPS) as talk,
    ):
        talk.go_on(TALK_S)
        talk.stop()
    assert seen.findings == []
    assert seen.judged >= FEW_HOSTS * TALK_S
    assert talk.silent(TALK_END_S) == []


@pytest.mark.parametrize("number", [FEW_HOSTS - 2, FEW_HOSTS - 1])
def test_a_fault_of_one_host_is_found_by_that_host_alone(hosts: list[Host], number: int) -> None:
    """One of them has two uplinks, and the other one three."""
    assert found_elsewhere(hosts, number) == []


# ---- what happens, and what is seen of it ------------------------------------------------


class Host:
    """Some hosts: their bridges are on one Open vSwitch in a network of its own, with one service."""

    def __init__(self, number: int, tor: Upstream) -> None:
        self._netns = f"q{os.getpid() & 0xFFFFF:05x}{number:x}"
        self._tor = tor
        self._running = contextlib.ExitStack()
        self.beds: list[Bed] = []

    def __enter__(self) -> Host:
        with contextlib.ExitStack() as building:
            run("ip", "netns", "add", self._netns)
            building.callback(run, "ip", "netns", "del", self._netns)
            with self.entered():
                run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
                run("ip", "link", "set", "lo", "up")
                self.ovs = building.enter_context(PrivateOvs(prefix="ovs-lbt-quiet-"))
                self.service = Service(self.ovs)
                building.callback(self.service.kill)
                self.service.start()
            self._running = building.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.entered():
            self._running.close()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, is in these hosts' network."""
        with inside(self._netns):
            yield

    def add(self, spec: BedSpec) -> Bed:
        """One more host."""
        with self.entered():
            bed = self._running.enter_context(Bed(self.ovs, self._tor, spec))
            self.beds.append(bed)
            bed.set("bridge", bed.bridge, failback_delay_s=1)
            self.service.attach(bed, "--policy", "originating-port")
        return bed


@dataclass(slots=True)
class Seen:
    """What path checks have judged, in rounds, and what the history says of faults."""

    judged: int = 0
    findings: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watched(hosts: Sequence[Host]) -> Iterator[Seen]:
    """What path checks do in this block, and until all that has followed would be seen."""
    seen, before, began_at = Seen(), judged(hosts), time.time()
    yield seen
    time.sleep(AFTER_S)
    seen.judged = judged(hosts) - before
    seen.findings = [one["why"] for host in hosts for one in told_faults(host.ovs, began_at)]


def judged(hosts: Sequence[Host]) -> int:
    """The rounds of all path checks that were judged."""
    rounds = 0.0
    for host in hosts:
        with host.entered():
            rounds += host.service.metric("ovslbt_path_rounds_total", result="judged")
    return int(rounds)


# ---- storm -------------------------------------------------------------------------------


def storm(bed: Bed, loops: bool) -> None:
    """Broadcasts keep both switches busy. `loops`: they go round, instead of being sent."""
    sender, before = bed.hosts[0], received(bed)
    with contextlib.ExitStack() as stack:
        if loops:
            stack.enter_context(loop(bed))
            bed.introduce()
        else:
            flows = [(sender.point, frames.broadcast(sender.mac, 0, 0))]
            stack.enter_context(Stream(flows, STORM_PPS, catch_up_s=0.0))
        time.sleep(STORM_S)
    least = STORM_LEAST_PPS * STORM_S * len(bed.uplinks)
    assert received(bed) - before > least, "that was no storm"


@contextlib.contextmanager
def loop(bed: Bed) -> Iterator[None]:
    """A cable joins two ports of the switch upstream in this block."""
    ends, netns, ovs = (f"{bed.prefix}l0", f"{bed.prefix}l1"), bed.tor.netns, bed.tor.ovs
    lines = [f"link add {ends[0]} type veth peer {ends[1]}", *(f"link set {e} up" for e in ends)]
    run("ip", "-n", netns, "-batch", "-", stdin="\n".join(lines))
    try:
        words = [word for end in ends for word in ("--", "add-port", bed.upstream, end)]
        ovs.vsctl(*words[1:])
        yield
    finally:
        run("ip", "-n", netns, "link", "del", ends[0])
        for end in ends:
            ovs.vsctl("--if-exists", "del-port", bed.upstream, end)


def received(bed: Bed) -> int:
    """How many frames the uplinks have received."""
    now = counters()
    return sum(now[uplink.name][RECEIVED] for uplink in bed.uplinks)


# ---- many hosts --------------------------------------------------------------------------


@contextlib.contextmanager
def segment(tor: Upstream, count: int, services: int) -> Iterator[list[Host]]:
    """So many hosts on one segment, with two or three uplinks each, which probe each other.

    Each asks the first one's host upstream, too.
    """
    name = f"q{os.getpid() & 0xFFFFF:05x}seg"
    with contextlib.ExitStack() as stack:
        tor.ovs.vsctl("add-br", name, "--", "set", "bridge", name, datapath.SETTING)
        stack.callback(tor.ovs.vsctl, "--if-exists", "del-br", name)
        hosts = [stack.enter_context(Host(number, tor)) for number in range(services)]
        for number in range(count):
            first = number == 0
            spec = BedSpec(PLAIN, 2 + number % 2, (None,), (None,) * first, addresses=first)
            bed = hosts[number % services].add(spec)
            join(tor, name, bed)
        asked = hosts[0].beds[0].hosts[0].ip
        for host in hosts:
            for bed in host.beds:
                with host.entered():
                    bed.introduce()
                stack.enter_context(checking(host.service, bed, asked))
        yield hosts


def join(tor: Upstream, segment_name: str, bed: Bed) -> None:
    """Join the switch upstream of a host to the segment."""
    patches = (f"{bed.prefix}sg", f"{bed.prefix}gs")
    for bridge, patch, peer in (
        (segment_name, *patches),
        (bed.upstream, *reversed(patches)),
    ):
        setting = ["--", "set", "interface", patch, "type=patch", f"options:peer={peer}"]
        tor.ovs.vsctl("add-port", bridge, patch, *setting)


def found_elsewhere(hosts: Sequence[Host], number: int) -> list[str]:
    """Cut off an uplink of one host, which it finds: the bridges of others that find something."""
    host = hosts[number % len(hosts)]
    bed = host.beds[number // len(hosts)]
    uplink, began_at = bed.uplinks[-1], time.time()
    with blocked(bed, uplink, "receive", "forward"):
        expected = (uplink.name, "unreachable", True, None)
        found_after_s(host.service, bed, expected)
        time.sleep(AFTER_S)
        told = [one for other in hosts for one in told_faults(other.ovs, began_at)]
    wait_until(lambda: not faults(host.service, bed), "the fault is over")
    return sorted({one["bridge"] for one in told} - {bed.bridge})


# ---- full load ---------------------------------------------------------------------------


def fill(host: Host, bed: Bed) -> None:
    """Each VM has an uplink of its own, which carries little."""
    host.service.place(bed, *range(len(bed.uplinks)))
    for uplink in bed.uplinks:
        for interface, netns in (
            (uplink.name, None),
            (uplink.upstream_end.interface, uplink.upstream_end.netns),
        ):
            run("ip", "link", "set", interface, "txqueuelen", str(QUEUE_FRAMES), netns=netns)
    bed.limit_uplinks(CAPACITY_MBPS, BURST_BYTES)


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
