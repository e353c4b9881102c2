"""One VM that no uplink can carry is split by `adaptive`, and merged when its load ends."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

import pytest

from tests.switch import iperf
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service, launcher_with
from tests.switch.test_hot_vm import WINDOW, address_moves
from tests.switch.waiting import wait_until

SPEC = BedSpec(BALANCE_SLB, 2, (None, None), addresses=True)
UPLINK_BPS = 100e6
STREAMS = 16
# A split VM port is merged when it has been mergeable for that long: 60 s by default.
MERGE_AFTER_S = 4
# From when the load begins: it has to rise, and to be worth it twice.
SPLIT_WITHIN_S = 2.0


@pytest.fixture
def impatient(own: Service) -> Iterator[Service]:
    """A service that merges soon."""
    own.launcher = launcher_with("controller.teaming.splits", MERGE_AFTER_S=MERGE_AFTER_S)
    own.start()
    yield own
    own.launcher = []


@judges_time
@pytest.mark.parametrize("connection_hash", ["multipath", "dp_hash"])
def test_a_hot_vm_is_split_and_merged(
    tor: Upstream,
    impatient: Service,
    connection_hash: str,
) -> None:
    service = impatient
    with Bed(service.ovs, tor, SPEC) as bed, iperf.server(bed.hosts[0]):
        bed.limit_uplinks(round(UPLINK_BPS / 1e6))
        bed.set("bridge", bed.bridge, poll_interval_ms=100, connection_hash=connection_hash)
        service.attach(bed, "--policy", "adaptive", "--teaming", "switch-independent")
        hot, moves_before = bed.vms[0], address_moves(bed)
        with loaded(bed):
            started_s = time.monotonic()
            wait_until(lambda: is_split(bed, service), "the hot VM is split")
            after_s = time.monotonic() - started_s
            shown = service.show_json(bed.bridge)["connection_hash"]
            assert shown["used"] == connection_hash
            home = service.bindings(bed)[hot.port]
            wait_until(
                lambda: min(sent_bps(bed, service)) > 0.5 * UPLINK_BPS,
                "both uplinks carry what one VM sends",
            )
            before = installed(bed)
            with service.dead():
                pass
            service.wait_ready(bed)
            assert is_split(bed, service), "a restart merged it"
            # Buckets may have moved meanwhile, but nothing came or went.
            assert installed(bed).keys() == before.keys()
            assert service.bindings(bed)[hot.port] == home
        arrives_once(bed, "split")
        assert address_moves(bed) == moves_before, "no address moves upstream"
        wait_until(lambda: not is_split(bed, service), "it is merged", 6 * MERGE_AFTER_S)
        wait_until(lambda: bucket_groups(bed) == 0, "its buckets are gone")
        arrives_once(bed, "merged")
        with loaded(bed):
            wait_until(lambda: is_split(bed, service), "it is split again")
            service.do("pin", hot.port, home)
            wait_until(lambda: bucket_groups(bed) == 0, "a pin merges it")
        assert service.metric("ovslbt_moves_applied_total", reason="merge") >= 1
        service.do("detach", bed.bridge)
        soon("the hot VM is split", after_s, SPLIT_WITHIN_S)


def loaded(bed: Bed) -> contextlib.AbstractContextManager[object]:
    """A VM's streams to a host, in a block."""
    options = ["--parallel", str(STREAMS), "--window", WINDOW]
    return iperf.client(bed.vms[0], bed.hosts[0], 60, *options)


def is_split(bed: Bed, service: Service) -> bool:
    return bool(service.port(bed, bed.vms[0]).get("split")) and bucket_groups(bed) > 0


def sent_bps(bed: Bed, service: Service) -> list[float]:
    return [float(uplink["tx_bps"]) for uplink in service.show_json(bed.bridge)["uplinks"]]


def installed(bed: Bed) -> dict[str, str]:
    """The groups of the bridge, by id."""
    shown = bed.ofctl("dump-groups")
    return dict(re.findall(r"group_id=(\d+),(.*)", shown))


def bucket_groups(bed: Bed) -> int:
    """How many groups there are of buckets."""
    return sum(0x6CE00000 <= int(group) < 0x6CF00000 for group in installed(bed))


def arrives_once(bed: Bed, when: str) -> None:
    """A VM's broadcast and a host's leave and arrive once, by the VM's home."""
    vm, other, host = *bed.vms[:2], bed.hosts[0]
    ours, theirs = bed.frame_of(vm), bed.frame_of(host)
    had_no_room = bed.turned_away()
    heard = bed.fire([ours, theirs])
    points = heard[ours.frame_id].points
    lost = f"{when}: {points}; frames without room: {bed.turned_away() - had_no_room}"
    assert points.count(other.point.name) == 1, lost
    assert len({*points} & bed.ends.keys()) == 1, f"{when}: {points}"
    at_vms = heard[theirs.frame_id].points
    assert at_vms.count(vm.point.name) == at_vms.count(other.point.name) == 1, f"{when}: {at_vms}"
