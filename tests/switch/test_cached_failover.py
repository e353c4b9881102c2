"""An uplink fails with many connections cached: with the service, without it, and on bonds of Open vSwitch."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from tests.switch import datapath, frames, judging
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.judging import OUTAGE_S, at_most, judges_time, repetitions
from tests.switch.service import Service, launcher_with
from tests.switch.test_failover import place_in_bond
from tests.switch.test_split import is_split
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream, sending_socket

BONDS = (ACTIVE_BACKUP, BALANCE_SLB)
POLICIES = ("load-based", "dynamic", "adaptive")
# `make test` has no time for more.
MANY, FEWER = 10_000, 1_000
RUNS, RUNS_ON_THE_KERNEL, RUNS_IN_BENCH = 1, 3, 9
# So that all connections stay cached; Open vSwitch's default is 10 s.
MAX_IDLE_MS = 120_000
SENT_PER_S = 3000.0
# One connection of each VM is watched. The rate of each: silence is known to 2 ms.
PPS = 500.0
BEFORE, AFTER = 100, 200
# The 5 ms by which buckets may follow a bond (docs/reliability/failover.md), and the frame before and the one behind them.
WAITS_MS = 5.0
LATER_MAX_MS = WAITS_MS + 2 * 1000 / PPS
# A VM that is to be split sends that many connections, and this much relative to an uplink's capacity.
CONNECTIONS, LOAD_RATIO = 16, 1.4
LOAD_PPS, LOAD_FRAME_BYTES = 25.0, 1400
SEES_ITS_LOAD_S = 2.0


def cached() -> int:
    return MANY if judging.benching or datapath.NAME == "kernel" else FEWER


def runs() -> int:
    return repetitions(RUNS_ON_THE_KERNEL if datapath.NAME == "kernel" else RUNS, RUNS_IN_BENCH)


@contextlib.contextmanager
def beds(own: Service, tor: Upstream, team: str) -> Iterator[Bed]:
    """A bond whose cached flows outlast the measurement."""
    own.ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={MAX_IDLE_MS}")
    with Bed(own.ovs, tor, BedSpec(team, 2, (None,) * 2)) as bed:
        yield bed


@pytest.fixture(scope="module")
def of_bonds(own: Service, tor: Upstream) -> dict[str, list[float]]:
    """How long VMs are silent with Open vSwitch's own bonds, in ms."""
    found: dict[str, list[float]] = {}
    for mode in BONDS:
        with beds(own, tor, mode) as bed:
            settings = (f"bond_mode={mode}", "other_config:bond-rebalance-interval=0")
            own.ovs.vsctl("set", "port", bed.bond, *settings)
            bed.introduce_to_normal()
            fill(bed, cached())
            for _ in range(runs()):
                if mode == BALANCE_SLB:
                    place_in_bond(bed)
                found.setdefault(mode, []).append(silent_ms(bed, mode))
    return found


@judges_time
@pytest.mark.parametrize("policy", POLICIES)
def test_hardly_longer_than_on_the_bond(
    policy: str,
    own: Service,
    tor: Upstream,
    of_bonds: dict[str, list[float]],
    record_property: Callable[[str, object], None],
) -> None:
    own.kill()
    # A VM that was split stays it, though its load ends.
    own.launcher = launcher_with("controller.teaming.splits", MERGE_AFTER_S=1e6)
    own.start()
    alive, dead = [], []
    with beds(own, tor, BALANCE_SLB) as bed:
        # The next run wants its uplink back.
        bed.set("bridge", bed.bridge, failback_delay_s=0)
        own.attach(bed, "--policy", policy)
        if policy == "adaptive":
            split(bed, own)
        fill(bed, cached())
        for _ in range(runs()):
            alive.append(silent_ms(bed, f"{policy}, service alive"))
            wait_until(lambda: own.all_up(bed), "the service knows that the uplink is up")
        if policy == "adaptive":
            assert is_split(bed, own), "it was split all the time"
        with own.dead():
            dead = [silent_ms(bed, f"{policy}, service dead") for _ in range(runs())]
        own.do("detach", bed.bridge)
    by_bond = statistics.median(of_bonds[BALANCE_SLB])
    found = {**of_bonds, f"{policy}, alive": alive, f"{policy}, dead": dead}
    for who, of in found.items():
        record_property(f"silent, ms, with {cached()} connections cached, {who}", of)
        print(f"silent, ms, with {cached()} connections cached, {who}: {of}")
    for who, of in (("alive", alive), ("dead", dead)):
        what = f"ms silent, {policy}, service {who}, median; limit: that of {BALANCE_SLB} and {LATER_MAX_MS:g}"
        at_most(what, statistics.median(of), by_bond + LATER_MAX_MS, 1000 * OUTAGE_S, of)


def fill(bed: Bed, count: int) -> None:
    """Send a frame of each of so many new connections of the first VM."""
    with contextlib.closing(sending_socket(bed.vms[0].point)) as out:
        started_s = time.monotonic()
        for number in range(count):
            while started_s + number / SENT_PER_S > time.monotonic():
                time.sleep(0.0005)
            out.send(frame(bed, 0, number, 1 + number))
    bed.fence()


def frame(bed: Bed, vm_at: int, connection: int, frame_id: int = 0) -> bytes:
    """A frame of a connection of a VM; those of the first VM are among the cached ones."""
    host = bed.hosts[0]
    return frames.segment(
        bed.vms[vm_at].mac,
        host.mac,
        source_ip="192.0.2.1",
        destination_ip=host.ip,
        ports=(10_000 + connection, 443),
        protocol=frames.UDP,
        frame_id=frame_id,
    )


def silent_ms(bed: Bed, who: str) -> float:
    """How long a watched connection is silent when the uplink of most of them loses its carrier."""
    host, ends = bed.hosts[0], {uplink: uplink.upstream_end for uplink in bed.uplinks}
    watched = [(vm.point, frame(bed, vm_at, 0)) for vm_at, vm in enumerate(bed.vms)]
    bed.revalidated()
    flows = len(bed.ovs.run("ovs-appctl", "dpctl/dump-flows", timeout_s=120).splitlines())
    with bed.ears(host.point, *ends.values()) as ears, Stream(watched, PPS) as stream:
        at = [ears[host.point]] * len(watched)
        stream.more(at, BEFORE)
        used = {
            uplink: sum(bool(stream.received(ears[end], n)) for n in range(len(watched)))
            for uplink, end in ends.items()
        }
        fails = max(used, key=lambda uplink: used[uplink])
        on_it = used[fails]
        bed.pull_cable(fails)
        stream.more(at, AFTER)
        stream.stop()
        ears.until_quiet()
        lost = sum(stream.lost(ear, n) for n, ear in enumerate(at))
    bed.plug_cable(fails)
    wait_until(lambda: bed.carrier(fails), f"{fails} has its carrier again")
    assert on_it, "a watched connection leaves by it"
    print(f"{who}: {flows} flows, {on_it} connections on the uplink, {lost} frames lost")
    return round(1000 * lost / (PPS * on_it), 1)


def split(bed: Bed, service: Service) -> None:
    """Make the first VM send more than an uplink is said to carry, until its connections are spread."""
    vm = bed.vms[0]
    bed.set("bridge", bed.bridge, poll_interval_ms=100)
    flows = [(vm.point, padded(frame(bed, 0, number))) for number in range(CONNECTIONS)]
    said_mbps = 0

    def splits() -> bool:
        """Whether it is split. A slow machine sends less than it is told to."""
        nonlocal said_mbps
        sent_mbps = service.port(bed, vm)["tx_bps"] / 1e6
        capacity_mbps = max(1, round(sent_mbps / LOAD_RATIO))
        if capacity_mbps != said_mbps:
            said_mbps = capacity_mbps
            for uplink in bed.uplinks:
                bed.set("interface", uplink.name, capacity_mbps=capacity_mbps)
        return is_split(bed, service)

    with Stream(flows, LOAD_PPS):
        wait_until(splits, "the hot VM is split", interval_s=SEES_ITS_LOAD_S)


def padded(data: bytes) -> bytes:
    """A frame made longer. Its last eight bytes say which it is."""
    return data[:-8] + bytes(LOAD_FRAME_BYTES - len(data)) + data[-8:]
