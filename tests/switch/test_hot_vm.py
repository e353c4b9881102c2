"""One VM with many connections gets the team, not one uplink of it, and no address flaps."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.switch import frames, iperf
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.judging import at_least, judges_time
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

SPEC = BedSpec(BALANCE_SLB, 2, (None,), addresses=True)
UPLINK_BPS = 100e6
STREAMS = 8
# Open vSwitch's userspace datapath sends by one socket for all ports, whose buffer (some 90
# frames) all queues share: a long one at an uplink would have the others' frames dropped.
WINDOW = "16K"
PEER_S, OURS_S = 3, 5
# About 1.9 on a machine that does nothing else.
MORE_THAN_THE_BOND = 1.6
# Ports are the kernel's choice: one run in 128 has all 8 connections on one uplink to begin with.
# `dynamic` may move connections every 3 s.
ATTEMPTS = 5


@judges_time
def test_one_vm_gets_more_than_balance_slb_gives_it(
    ovs: PrivateOvs,
    tor: Upstream,
    service: Service,
    record_property: Callable[[str, object], None],
) -> None:
    with Bed(ovs, tor, SPEC) as bed, iperf.server(bed.hosts[0]):
        for uplink in bed.uplinks:
            bed.shape(uplink, UPLINK_BPS)
        bed.introduce_to_normal()
        bond_bps = throughput_bps(bed, PEER_S)
        service.attach(bed, "--policy", "dynamic", "--teaming", "switch-independent")
        moves_before = address_moves(bed)
        ours_bps = [throughput_bps(bed, OURS_S)]
        while ours_bps[-1] < MORE_THAN_THE_BOND * bond_bps and len(ours_bps) < ATTEMPTS:
            ours_bps.append(throughput_bps(bed, OURS_S))
        moves = address_moves(bed) - moves_before
        seen = f"balance-slb {bond_bps / 1e6:.1f} Mbit/s, dynamic {[b / 1e6 for b in ours_bps]}"
        print(f"{seen}, {moves} moves of addresses upstream")
        record_property("throughput", seen)
        assert moves == 0, f"addresses moved {moves} times upstream"
        move_is_counted(bed, service)
        service.do("detach", bed.bridge)
        at_least("throughput over the bond's", ours_bps[-1] / bond_bps, MORE_THAN_THE_BOND, 1.0)


def throughput_bps(bed: Bed, seconds: int) -> float:
    """What a VM's streams bring to a host."""
    options = ["--parallel", str(STREAMS), "--window", WINDOW]
    with iperf.client(bed.vms[0], bed.hosts[0], seconds, *options) as streams:
        return float(iperf.end(streams, seconds)["sum_received"]["bits_per_second"])


def address_moves(bed: Bed) -> int:
    """How often the upstream switch has seen an address on another port than before."""
    shown = bed.tor.ovs.run("ovs-appctl", "-t", "ovs-vswitchd", "fdb/stats-show", bed.upstream)
    found = re.search(r"moved.*: *(\d+)", shown)
    assert found, shown
    return int(found[1])


def move_is_counted(bed: Bed, service: Service) -> None:
    """The upstream switch counts a move that there is."""
    vm, before = bed.vms[0], address_moves(bed)
    home = service.bindings(bed)[vm.port]
    service.move(vm, next(u for u in bed.uplinks if u.name != home))

    def counted() -> bool:
        bed.fire([bed.shot(vm.point, frames.broadcast, vm.mac, 0, 0, "a word")])
        return address_moves(bed) > before

    wait_until(counted, "the upstream switch counts a move")
