"""Shares, reservations and limits of VM ports, measured on what arrives upstream.

Each VM sends to a host of its own, whose interface counts. The bottleneck is the queue of the
uplink, as what comes after it carries much more.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.switch import frames, iperf
from tests.switch.bed import PLAIN, Bed, BedSpec, Station, Uplink, on_beds, run
from tests.switch.judging import at_least, at_most, judges_time
from tests.switch.service import Service
from tests.switch.waiting import wait_until

CAPACITY_MBPS = 40
FLOOD_MBPS = 35
# Queues fill, and TCP finds its rate.
WARM_UP_S = 1.5
# Of what it should be, where senders get little time.
LITTLE_RATIO = 0.1
MEASURED_S = 3.0
# Senders send for a minute.
MEASURED_WITHIN_S = 45.0
# What is more than that, of what it should be, is no matter of how busy the machine is.
PARTS_MAX, MORE_RATIO = 3.0, 1.3
HANDLES_ON_LO = "7a57:", "7a58:"
HANDLE, CLASS_IDS, DEFAULT_CLASS = "6c62:", 0x6C620000, 0xFFF1

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 3, (None,) * 3, addresses=True))


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    with session_service.attached(bed, "--policy", "originating-port"):
        yield bed


@pytest.fixture
def shared(team: Bed, service: Service) -> Iterator[Bed]:
    """All VMs on the first uplink; what a test sets is taken away after it."""
    service.place(team, 0, 0, 0)
    yield team
    for vm in team.vms:
        for key in ("shares", "reserve-mbps", "limit-mbps"):
            record = ["interface", vm.port, "external_ids", f"ovs-lbt-{key}"]
            team.ovs.vsctl("remove", *record)
    untouched = [["noqueue"]] * len(team.uplinks)
    wait_until(lambda: [*map(qdiscs, team.uplinks)] == untouched, "uplinks queue as they did")


@judges_time
@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_shares_of_two_to_one_divide_a_full_uplink(
    shared: Bed, service: Service, kind: str
) -> None:
    bed = shared
    part(bed, service, {0: {"shares": 100}, 1: {"shares": 50}})
    with sending(bed, kind, {0: FLOOD_MBPS, 1: FLOOD_MBPS}):
        # A sender that had no core for a second has left its part to the other one.
        first, second = wait_until(
            lambda: taken_if(
                measured(bed, [0, 1]),
                lambda a, b: (
                    LITTLE_RATIO <= a / b <= PARTS_MAX and a + b >= LITTLE_RATIO * CAPACITY_MBPS
                ),
            ),
            "both send, and one has its part",
            MEASURED_WITHIN_S,
        )
    at_least("the one's part over the other's", first / second, 1.8, LITTLE_RATIO)
    at_most("the one's part over the other's", first / second, 2.2, PARTS_MAX)
    at_least("Mbit/s in all", first + second, 0.9 * CAPACITY_MBPS, LITTLE_RATIO * CAPACITY_MBPS)


@judges_time
@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_limit_holds_on_an_idle_uplink(shared: Bed, service: Service, kind: str) -> None:
    bed, limit_mbps = shared, 15
    part(bed, service, {0: {"limit_mbps": limit_mbps}})
    with sending(bed, kind, {0: FLOOD_MBPS}):
        (rate_mbps,) = wait_until(
            lambda: taken_if(
                measured(bed, [0]),
                lambda mbps: LITTLE_RATIO * limit_mbps <= mbps <= MORE_RATIO * limit_mbps,
            ),
            f"it sends, and not more than {limit_mbps} Mbit/s",
            MEASURED_WITHIN_S,
        )
    at_least("Mbit/s", rate_mbps, 0.95 * limit_mbps, LITTLE_RATIO * limit_mbps)
    at_most("Mbit/s", rate_mbps, 1.05 * limit_mbps, MORE_RATIO * limit_mbps)


@judges_time
def test_a_reservation_is_kept_against_a_flood(shared: Bed, service: Service) -> None:
    bed, reserve_mbps = shared, 16
    part(
        bed,
        service,
        {0: {"shares": 100}, 1: {"shares": 100}, 2: {"shares": 1, "reserve_mbps": reserve_mbps}},
    )
    with sending(bed, "udp", {0: FLOOD_MBPS, 1: FLOOD_MBPS, 2: reserve_mbps}):
        first, second, reserved = measured(bed, [0, 1, 2])
    # Without a reservation, one share of 201 would leave it a fifth of a megabit.
    at_least("Mbit/s reserved", reserved, 0.95 * reserve_mbps, LITTLE_RATIO * reserve_mbps)
    rest_mbps = CAPACITY_MBPS - reserve_mbps
    at_least("Mbit/s of the others", first + second, 0.9 * rest_mbps, LITTLE_RATIO * rest_mbps)


def test_a_tagged_frame_is_in_the_class_of_its_sender(shared: Bed, service: Service) -> None:
    bed, vm = shared, shared.vms[1]
    part(bed, service, {1: {"shares": 80}})

    def sent() -> int:
        found = class_of(bed, bed.uplinks[0], vm)
        assert found
        return int(found["sent"])

    before = sent()
    bed.fire([bed.shot(vm.point, frames.broadcast, vm.mac, 30, 30, "a tagged broadcast")])
    wait_until(lambda: sent() > before, "its class has counted it")


def test_a_restart_of_the_service_touches_nothing(
    shared: Bed, service: Service, tmp_path: Path
) -> None:
    bed = shared
    part(bed, service, {0: {"shares": 100, "limit_mbps": 20}, 1: {"reserve_mbps": 5}})
    with changes_told(tmp_path / "changes") as changes:
        with service.dead():
            assert [qdiscs(uplink) for uplink in bed.uplinks] == [["htb"]] * 2
        service.wait_ready(bed)
        # Then it has looked at the uplinks.
        drops = "ovslbt_port_shaped_drops_total"
        wait_until(lambda: drops in str(service.metrics()), "the service counts drops")
    assert changes == []


# ---- what a test does ------------------------------------------------------------------


def part(bed: Bed, service: Service, keys: Mapping[int, Mapping[str, int]]) -> None:
    """Say what VMs get, and wait until uplinks queue by it and know whose frames are whose."""
    for number, values in keys.items():
        bed.set("interface", bed.vms[number].port, **values)
    for uplink, vm in itertools.product(bed.uplinks, bed.vms):
        values = keys.get(bed.vms.index(vm), {})
        story = f"{uplink} has a class for {vm} with {values}"
        wait_until(functools.partial(is_parted, bed, uplink, vm, values), story)


def is_parted(bed: Bed, uplink: Uplink, vm: Station, values: Mapping[str, int]) -> bool:
    found, default = class_of(bed, uplink, vm), class_of(bed, uplink)
    if found is None or default is None:
        return False
    program = run("tc", "filter", "show", "dev", uplink.name, "parent", HANDLE)
    return (
        f" {CLASS_IDS | int(found['minor'], 16)}" in program
        and found["ceil"] == f"{values.get('limit_mbps', CAPACITY_MBPS)}Mbit"
        and ("reserve_mbps" not in values or found["rate"] == f"{values['reserve_mbps']}Mbit")
        and int(found["quantum"]) == int(default["quantum"]) * values.get("shares", 50) // 50
    )


@contextlib.contextmanager
def changes_told(file: Path) -> Iterator[list[str]]:
    """After this block: what the kernel has told `tc` of changes to our qdiscs, classes and filters."""
    changes = list[str]()
    on_lo = ("dev", "lo", "root")
    with file.open("w") as out, subprocess.Popen(["tc", "monitor"], stdout=out) as monitor:

        def tells(handle: str) -> bool:
            """Whether it tells of a qdisc of this test, and so of all changes before it."""
            run("tc", "qdisc", "replace", *on_lo, "handle", handle, "pfifo")
            return handle in file.read_text()

        try:
            wait_until(lambda: tells(HANDLES_ON_LO[0]), "the kernel tells tc of changes")
            yield changes
            wait_until(lambda: tells(HANDLES_ON_LO[1]), "it has told of all of them")
            changes += [line for line in file.read_text().splitlines() if HANDLE in line]
        finally:
            monitor.terminate()
            run("tc", "qdisc", "del", *on_lo)


def class_of(bed: Bed, uplink: Uplink, vm: Station | None = None) -> dict[str, str] | None:
    """What `tc` says of a VM's class, or of that of all else; None where it has none."""
    ofport = bed.ofport(vm.port) if vm else DEFAULT_CLASS
    shown = run("tc", "-d", "-s", "class", "show", "dev", uplink.name)
    pattern = rf"class htb {HANDLE}(?P<minor>{ofport:x}) .*quantum (?P<quantum>\d+)"
    pattern += r" rate (?P<rate>\S+) ceil (?P<ceil>\S+).*\n Sent (?P<sent>\d+)"
    found = re.search(pattern, shown)
    return found.groupdict() if found else None


def qdiscs(uplink: Uplink) -> list[str]:
    shown = json.loads(run("tc", "-j", "qdisc", "show", "dev", uplink.name))
    return [qdisc["kind"] for qdisc in shown if qdisc.get("root")]


@contextlib.contextmanager
def sending(bed: Bed, kind: str, rates_mbps: Mapping[int, int]) -> Iterator[None]:
    """VM i sends to host i by iperf3: UDP at these rates, TCP as fast as it can."""
    with contextlib.ExitStack() as running:
        for number in rates_mbps:
            running.enter_context(iperf.server(bed.hosts[number]))
        for number, rate_mbps in rates_mbps.items():
            udp = ["--udp", "--bitrate", f"{rate_mbps}M", "--length", "1400"]
            options = udp if kind == "udp" else ()
            running.enter_context(iperf.client(bed.vms[number], bed.hosts[number], 60, *options))
        yield


def measured(bed: Bed, numbers: Sequence[int]) -> list[float]:
    """What arrives at each of these hosts, in Mbit/s of whole frames."""
    time.sleep(WARM_UP_S)
    before, began_s = [received(bed.hosts[n]) for n in numbers], time.monotonic()
    time.sleep(MEASURED_S)
    after, elapsed_s = [received(bed.hosts[n]) for n in numbers], time.monotonic() - began_s
    return [(b - a) * 8e-6 / elapsed_s for a, b in zip(before, after, strict=True)]


def taken_if(mbps: Sequence[float], is_right: Callable[..., bool]) -> Sequence[float]:
    """What was measured, if it is right; else nothing."""
    return mbps if all(mbps) and is_right(*mbps) else []


def received(host: Station) -> int:
    (shown,) = json.loads(run("ip", "-s", "-j", "link", "show", "eth0", netns=host.point.netns))
    stats: dict[str, Any] = shown["stats64"]
    return int(stats["rx"]["bytes"])
