"""One VM with many connections gets the team, not one uplink of it, and no address flaps."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.switch import iperf, judging
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.judging import at_least, judges_time, repetitions
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
# What is promised: all that there is to do until connections are spread is part of it.
PROMISED_S = 30
ROUNDS_IN_BENCH = 3
POLICIES_IN_BENCH = ("dynamic", "adaptive")
# About 1.9 on a machine that does nothing else.
MORE_THAN_THE_BOND = 1.8
# Ports are the kernel's choice: one run in 128 has all 8 connections on one uplink to begin with,
# and a busy machine may not carry what two uplinks could. Elsewhere the last of some runs counts.
ATTEMPTS, TRIED_AGAIN_BELOW = 5, 1.6
# `dynamic` moves buckets at most every 3 s, `adaptive` a bucket at most every 5 s.
LOOKED_EVERY_S = 1.0


@dataclass(slots=True)
class Turns:
    """The first uplink of each group, in turn; "" while the group is not there.

    There is a group for what each VM port sends, and for each bucket of a hash.
    """

    uplinks: dict[str, list[str]] = field(default_factory=dict)

    def look(self, now: Mapping[str, str]) -> None:
        """Take the first uplink of each group, by the group."""
        for group in self.uplinks.keys() | now.keys():
            turns, uplink = self.uplinks.setdefault(group, []), now.get(group, "")
            if not turns or turns[-1] != uplink:
                turns.append(uplink)

    @property
    def flapped(self) -> dict[str, Sequence[str]]:
        """The groups that went back to an uplink, with their uplinks."""
        return {g: turns for g, turns in self.uplinks.items() if len(set(turns)) < len(turns)}

    @property
    def moved(self) -> int:
        """How many groups went from one uplink to another."""
        return sum(len(set(turns) - {""}) > 1 for turns in self.uplinks.values())


def first_uplinks(bed: Bed) -> dict[str, str]:
    """The uplink that each group prefers, as its port number, by the group."""
    shown = bed.ofctl("dump-groups")
    return dict(re.findall(r"group_id=(\d+),type=ff,bucket=watch_port:([^,]+)", shown))


@dataclass(frozen=True, slots=True)
class Sent:
    """What arrived of a VM's streams, and which uplinks bindings and buckets had meanwhile."""

    bps: float
    turns: Turns


@judges_time
def test_one_vm_gets_more_than_balance_slb_gives_it(
    ovs: PrivateOvs,
    tor: Upstream,
    service: Service,
    record_property: Callable[[str, object], None],
) -> None:
    policies = POLICIES_IN_BENCH if judging.benching else POLICIES_IN_BENCH[:1]
    bond_bps: list[float] = []
    ours: dict[str, list[Sent]] = {policy: [] for policy in policies}
    with Bed(ovs, tor, SPEC) as bed, iperf.server(bed.hosts[0]):
        bed.limit_uplinks(UPLINK_BPS / 1e6)
        for _ in range(repetitions(1, ROUNDS_IN_BENCH)):
            bed.introduce_to_normal()
            bond_bps.append(streams(bed, repetitions(PEER_S, PROMISED_S)).bps)
            for policy, sent in ours.items():
                service.attach(bed, "--policy", policy, "--teaming", "switch-independent")
                moves_before = address_moves(bed)
                sent.append(streams(bed, repetitions(OURS_S, PROMISED_S)))
                while not judging.benching and sent[-1].bps < TRIED_AGAIN_BELOW * bond_bps[-1]:
                    if len(sent) == ATTEMPTS:
                        break
                    sent.append(streams(bed, OURS_S))
                moves = address_moves(bed) - moves_before
                assert moves == 0, f"addresses moved {moves} times upstream"
                move_is_counted(bed, service)
                service.do("detach", bed.bridge)
    by_bond = statistics.median(bond_bps)
    print(f"balance-slb: {[round(bps / 1e6, 1) for bps in bond_bps]} Mbit/s")
    for policy, sent in ours.items():
        ratios = [one.bps / by_bond for one in (sent if judging.benching else sent[-1:])]
        seen = f"{[round(one.bps / 1e6, 1) for one in sent]} Mbit/s"
        print(f"{policy}: {seen}, buckets moved: {[one.turns.moved for one in sent]}")
        record_property(f"throughput, {policy}", seen)
        flapped = [one.turns.flapped for one in sent if one.turns.flapped]
        assert not flapped, f"{policy}: {flapped}"
        what = f"throughput over that of balance-slb, {policy}"
        at_least(what, min(ratios), MORE_THAN_THE_BOND, 1.0, ratios)


def streams(bed: Bed, seconds: int) -> Sent:
    """What a VM's streams bring to a host."""
    options = ["--parallel", str(STREAMS), "--window", WINDOW]
    turns = Turns()
    with iperf.client(bed.vms[0], bed.hosts[0], seconds, *options) as process:
        ends = iperf.end(process, seconds, lambda: turns.look(first_uplinks(bed)), LOOKED_EVERY_S)
    return Sent(float(ends["sum_received"]["bits_per_second"]), turns)


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
        bed.fire([bed.frame_of(vm)])
        return address_moves(bed) > before

    wait_until(counted, "the upstream switch counts a move")
