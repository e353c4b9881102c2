"""Counters tell whether inbound follows a move; while it does not, it is announced again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from controller.features.inbound_check import ANSWERED_AFTER_S
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Uplink
from tests.switch.judging import at_most, few_lost, judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

BEDS = [BedSpec(team, 2, (None,)) for team in (PLAIN, BALANCE_SLB)]
FRAMES_PER_S = 200
# It does within half a second, is counted up to half a second later, and read twice a second.
SEEN_WITHIN_S = 2.0
# Four times learning packets in vain, each waited for, and as many readings.
GIVEN_UP_WITHIN_S = 30.0
RARP = f"dl_type=0x{frames.ETH_RARP:04x}"

on_both_beds = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)
on_one_bed = pytest.mark.parametrize("bed", BEDS[:1], ids=str, indirect=True)


@judges_time
@on_both_beds
def test_inbound_that_follows_is_seen_to(attached: Bed, service: Service) -> None:
    with inbound(attached, service) as told:
        service.move(attached.vms[0], attached.uplinks[1])
        wait_until(lambda: told.followed() == 1, "inbound is seen to follow")
        soon("inbound is seen to follow", told.took_s(), SEEN_WITHIN_S)
        at_most("announced again", told.again(), 0, 3)
        assert told.astray() == 0


@judges_time
@on_one_bed
def test_inbound_that_does_not_follow_is_announced_again_until_it_does(
    attached: Bed, service: Service
) -> None:
    """The upstream switch hears no learning packet for a while; the VM itself says nothing."""
    with inbound(attached, service) as told:
        with deaf_to_learning_packets(attached, attached.uplinks[1]):
            service.move(attached.vms[0], attached.uplinks[1])
            wait_until(lambda: told.again() >= 1, "it is announced again")
            assert told.followed() == 0, "inbound was seen to follow by an uplink it never used"
        wait_until(lambda: told.followed() == 1, "inbound follows in the end")
        assert told.took_s() > ANSWERED_AFTER_S
        assert told.astray() == 0


@judges_time
@on_one_bed
def test_inbound_that_never_follows_is_told_of(attached: Bed, service: Service) -> None:
    vm, (old, new) = attached.vms[0], attached.uplinks
    with inbound(attached, service) as told, deaf_to_learning_packets(attached, new):
        service.move(vm, new)
        wait_until(lambda: told.astray() == 1, "it is given up", GIVEN_UP_WITHIN_S)
        assert (told.again(), told.followed()) == (3, 0)
        line = f"inbound traffic of {vm.port}: still arrives by {old.name}"
        wait_until(lambda: line in service.log_tail(), "the log says so")


@contextlib.contextmanager
def inbound(bed: Bed, service: Service) -> Iterator[Told]:
    """A host sends to a VM, which says nothing; none of it is lost, whatever the block does.

    The VM is on the first uplink, and so is what comes.
    """
    vm, host, before = bed.vms[0], bed.hosts[0], Told(bed, service)
    moves = service.bindings(bed)[vm.port] != bed.uplinks[0].name
    service.place(bed, 0)
    flow = host.point, frames.udp(host.mac, vm.mac)
    with bed.ears(vm.point) as ears, Stream([flow], FRAMES_PER_S) as stream:
        wait_until(lambda: before.followed() == int(moves), "inbound comes by the first uplink")
        yield Told(bed, service)
        stream.stop()
        ears.until_quiet()
        few_lost([stream.lost(ears[vm.point], 0)], 0, FRAMES_PER_S)


@contextlib.contextmanager
def deaf_to_learning_packets(bed: Bed, uplink: Uplink) -> Iterator[None]:
    """The upstream switch drops what would tell it of a VM on this uplink."""
    ofctl, port = ["ovs-ofctl", "-O", "OpenFlow13"], uplink.upstream_end.interface
    match = f"in_port={port},{RARP}"
    bed.tor.ovs.run(*ofctl, "add-flow", bed.upstream, f"priority=100,{match},actions=drop")
    try:
        yield
    finally:
        bed.tor.ovs.run(*ofctl, "del-flows", bed.upstream, match)


class Told:
    """What metrics say of a bridge since this was made."""

    def __init__(self, bed: Bed, service: Service) -> None:
        self._bed, self._service = bed, service
        self._before = {name: self._metric(name) for name in NAMES}

    def followed(self) -> float:
        return self._since("inbound_follow_seconds_count")

    def took_s(self) -> float:
        return self._since("inbound_follow_seconds_sum")

    def again(self) -> float:
        return self._since("inbound_reannounced_total")

    def astray(self) -> float:
        return self._since("inbound_not_followed_total")

    def _since(self, name: str) -> float:
        return self._metric(name) - self._before[name]

    def _metric(self, name: str) -> float:
        return self._service.metric(f"ovslbt_{name}", bridge=self._bed.bridge)


NAMES = (
    "inbound_follow_seconds_count",
    "inbound_follow_seconds_sum",
    "inbound_reannounced_total",
    "inbound_not_followed_total",
)
