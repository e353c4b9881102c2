"""Counters tell whether inbound follows a move; while it does not, it is announced again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from controller.features.inbound_check import ANSWERED_AFTER_S
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Uplink, on_beds
from tests.switch.judging import at_most, few_lost, judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

BEDS = [BedSpec(team, 2, (None,)) for team in (PLAIN, BALANCE_SLB)]
FRAMES_PER_S = 200
# It does within half a second, is counted up to half a second later, and read twice a second.
SEEN_WITHIN_S = 2.0
FOLLOWED, TOOK_S = "ovslbt_inbound_follow_seconds_count", "ovslbt_inbound_follow_seconds_sum"
AGAIN, ASTRAY = "ovslbt_inbound_reannounced_total", "ovslbt_inbound_not_followed_total"
RARP = f"dl_type=0x{frames.ETH_RARP:04x}"

on_both_beds = on_beds(*BEDS)
on_one_bed = on_beds(*BEDS[:1])


@judges_time
@on_both_beds
def test_inbound_that_follows_is_seen_to(attached: Bed, service: Service) -> None:
    with inbound(attached, service) as told:
        service.move(attached.vms[0], attached.uplinks[1])
        wait_until(lambda: told(FOLLOWED) == 1, "inbound is seen to follow")
        soon("inbound is seen to follow", told(TOOK_S), SEEN_WITHIN_S)
        at_most("announced again", told(AGAIN), 0, 3)
        assert told(ASTRAY) == 0


@judges_time
@on_one_bed
def test_inbound_that_does_not_follow_is_announced_again_until_it_does(
    attached: Bed, service: Service
) -> None:
    """The upstream switch hears no learning packet for a while; the VM itself says nothing."""
    with inbound(attached, service) as told:
        with deaf_to_learning_packets(attached, attached.uplinks[1]):
            service.move(attached.vms[0], attached.uplinks[1])
            wait_until(lambda: told(AGAIN) >= 1, "it is announced again")
            assert told(FOLLOWED) == 0, "inbound was seen to follow by an uplink it never used"
        wait_until(lambda: told(FOLLOWED) == 1, "inbound follows in the end")
        assert told(TOOK_S) > ANSWERED_AFTER_S
        assert told(ASTRAY) == 0


@contextlib.contextmanager
def inbound(bed: Bed, service: Service) -> Iterator[Callable[[str], float]]:
    """A host sends to a VM, which says nothing; none of it is lost, whatever the block does.

    The VM is on the first uplink, and so is what comes. Yields what tells how much a metric has grown since.
    """
    vm, host, before = bed.vms[0], bed.hosts[0], counted(bed, service)
    moves = service.bindings(bed)[vm.port] != bed.uplinks[0].name
    service.place(bed, 0)
    flow = host.point, frames.udp(host.mac, vm.mac)
    with bed.ears(vm.point) as ears, Stream([flow], FRAMES_PER_S) as stream:
        wait_until(lambda: before(FOLLOWED) == int(moves), "inbound comes by the first uplink")
        yield counted(bed, service)
        stream.stop()
        ears.until_quiet()
        few_lost([stream.lost(ears[vm.point], 0)], 0, FRAMES_PER_S)


def counted(bed: Bed, service: Service) -> Callable[[str], float]:
    """What tells how much a metric of a bridge has grown since now."""

    def metric(name: str) -> float:
        return service.metric(name, bridge=bed.bridge)

    before = {name: metric(name) for name in (FOLLOWED, TOOK_S, AGAIN, ASTRAY)}
    return lambda name: metric(name) - before[name]


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
