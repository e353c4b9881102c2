"""LACP: a member that loses it is left, and a bond that goes on without it delivers once."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.switch import frames, judging
from tests.switch.bed import LACP, Bed, BedSpec, Station, Uplink, on_beds
from tests.switch.judging import at_least, at_most, few_twice, judges_time, soon
from tests.switch.service import Service
from tests.switch.test_delivery import (
    OUTSIDER,
    Expected,
    broadcast_from_upstream,
    check,
    check_everything,
    from_stations,
    next_frame,
    reflected,
    settled_homes,
    shown,
    through_upstream,
)
from tests.switch.waiting import wait_until
from tests.switch.wire import Ears, Stream

FAILBACK_DELAY_S = 2
# LACP gives a silent partner up after 3 s; a bond that goes on without it does 3 s later
# (IEEE 802.1AX, short timeout).
# They may take longer where the machine is busy.
GIVEN_UP_S, GONE_ON_S = 20.0, 30.0
SILENT_S = 1.0
LACP_PERIOD_S = 1
FLOW_PPS = 100
LOST_MORE_MAX = 20
TWICE_AFTER_FALLBACK_MAX = 2
# For how long a link that is one again brings broadcasts by the other member than ours.
LOST_AFTER_LACP_MAX_S = 2.0
NOT_NEGOTIATED = "LACP is not negotiated"

pytestmark = on_beds(BedSpec(LACP, 2, (None, None)))


@judges_time
def test_loses_no_more_than_balance_tcp_when_lacp_is_withdrawn(
    bed: Bed, service: Service, record_property: Callable[[str, object], None]
) -> None:
    """Both notice by LACP's timer, which ends 2 to 3 s after the member was taken out.

    Each member in turn, in the bench. It is the first test here, as it wants the bond as it was before us.
    """
    bed.ovs.vsctl("set", "port", bed.bond, "bond_mode=balance-tcp")
    members = bed.uplinks if judging.benching else bed.uplinks[:1]
    lost = {"balance-tcp": [lost_when_withdrawn(bed, member) for member in members]}
    bed.ovs.vsctl("set", "port", bed.bond, "bond_mode=balance-slb")
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    service.attach(bed, "--policy", "originating-port")
    service.place(bed, 0, 1)
    lost["service alive"] = [lost_when_withdrawn(bed, member) for member in members]
    with service.dead():
        lost["service dead"] = [lost_when_withdrawn(bed, member) for member in members]
    service.do("detach", bed.bridge)
    for who, frames_lost in lost.items():
        record_property(f"most frames lost of a flow, {who}", frames_lost)
    print(f"most frames lost of a flow at {FLOW_PPS} pps: {lost}")
    for number in range(len(members)):
        limit = lost["balance-tcp"][number] + FLOW_PPS * LACP_PERIOD_S + LOST_MORE_MAX
        for who in ("service alive", "service dead"):
            what = f"frames lost of a flow, member {number}, {who}"
            at_most(what, lost[who][number], limit, GIVEN_UP_S * FLOW_PPS)


def lost_when_withdrawn(bed: Bed, member: Uplink) -> int:
    """The frames lost of the flow that loses most, of some over each member."""
    host = bed.hosts[0]
    flows = [
        (vm.point, frames.udp(vm.mac, host.mac, source_ip=f"192.0.2.{number}"))
        for vm in bed.vms
        for number in range(1, 5)
    ]
    bed.introduce()
    bed.revalidated()
    with bed.ears(host.point) as ears, Stream(flows, FLOW_PPS) as stream:
        ear = ears[host.point]
        at = [ear] * len(flows)
        stream.more(at, FLOW_PPS // 2)
        with bed.lacp_withdrawn(member):
            wait_until(lambda: not bed.lacp_is_negotiated(), "LACP is given up", GIVEN_UP_S)
            stream.more(at, FLOW_PPS // 4)
        stream.stop()
        ears.until_quiet()
        lost = max(stream.lost(ear, i) for i in range(len(flows)))
    wait_until(bed.lacp_is_negotiated, "LACP is negotiated again", GIVEN_UP_S)
    return lost


@judges_time
def test_a_member_that_loses_lacp_is_left_until_it_is_back(attached: Bed, service: Service) -> None:
    bed, (first, second) = attached, attached.uplinks
    service.do("set", "bridge", bed.bridge, f"failback-delay-s={FAILBACK_DELAY_S}")
    service.place(bed, 0, 1, 0)
    before = settled_homes(bed)
    failovers = service.metric("ovslbt_failovers_total", bridge=bed.bridge)
    with bed.lacp_withdrawn(first):
        wait_until(
            lambda: not service.uplink(bed, first)["up"], f"{first} is shown down", GIVEN_UP_S
        )
        assert bed.carrier(first), "its link is still there"
        everyone = {str(s): [second.name] for s in bed.stations}
        wait_until(lambda: bed.homes() == everyone == shown(bed, service), "all leave it")
        failed_over = service.metric("ovslbt_failovers_total", bridge=bed.bridge) - failovers
        assert failed_over == 2
        check(bed, *both_ways(bed, everyone), from_left_member(bed, first))
    wait_until(lambda: service.uplink(bed, first)["up"], f"{first} is shown up", GIVEN_UP_S)
    back_s = time.monotonic()
    wait_until(lambda: bed.homes() == before == shown(bed, service), f"back to {before}")
    delay_s = time.monotonic() - back_s
    back_for_good(bed, service, before)
    check_everything(bed, before)
    at_least("back after, s", delay_s, FAILBACK_DELAY_S / 2, 0)


@judges_time
def test_without_lacp_nothing_is_delivered_twice_and_everybody_is_reached(
    attached: Bed, service: Service
) -> None:
    bed, (first, _) = attached, attached.uplinks
    bed.ovs.vsctl("set", "port", bed.bond, "other_config:lacp-fallback-ab=true")
    service.do("set", "bridge", bed.bridge, "failback-delay-s=0")
    service.place(bed, 0, 1, 0)
    before = settled_homes(bed)
    with broadcast_from_upstream(bed) as (stream, ears):
        with bed.lacp_unknown_upstream():
            changed_s = time.time()
            wait_until(lambda: silence_ends(bed, stream, ears, changed_s), "goes on", GONE_ON_S)
            gone_on_s = silence_ends(bed, stream, ears, changed_s)
            on_one = {str(s): [first.name] for s in bed.stations}
            wait_until(lambda: shown(bed, service) == on_one, "all share the first uplink")
            next_frame(bed, stream, ears)
            said = service.do("show", bed.bridge)
            assert NOT_NEGOTIATED in said and f"originating-port  {LACP}" in said
            wait_until(lambda: bed.homes() == on_one, f"frames leave by {first}")
            check(bed, *both_ways(bed, on_one), reflected(bed), known_unicast(bed, on_one))
            with bed.cable_pulled(first):
                on_other = {str(s): [bed.uplinks[1].name] for s in bed.stations}
                wait_until(lambda: bed.homes() == on_other == shown(bed, service), "fails over")
                check(bed, *both_ways(bed, on_other), known_unicast(bed, on_other))
            wait_until(lambda: bed.homes() == on_one == shown(bed, service), "fails back")
            lacp_again_s = time.time()
        wait_until(
            lambda: NOT_NEGOTIATED not in service.do("show", bed.bridge), "LACP is negotiated"
        )
        back_for_good(bed, service, before)
        next_frame(bed, stream, ears)
        check(bed, *both_ways(bed, before), known_unicast(bed, before))
    gaps_s: dict[str, float] = {}
    twice_late: dict[str, int] = {}
    for station in bed.stations:
        twice = sorted(copies(stream, ears, station, 2))
        late = [at_s - gone_on_s for at_s in twice if at_s > gone_on_s]
        early_s = max((at_s - changed_s for at_s in twice if at_s < gone_on_s), default=0.0)
        print(
            f"{station}: twice for {early_s:.2f} s, until LACP gave its partner up; {len(late)}"
            f" times after members went on without it: {[round(at_s, 3) for at_s in late[:9]]}"
        )
        twice_late[str(station)] = len(late)
        gaps_s[str(station)] = longest_gap(stream, ears, station, lacp_again_s)
    check_everything(bed, before)
    bed.ovs.vsctl("remove", "port", bed.bond, "other_config", "lacp-fallback-ab")
    few_twice(twice_late, TWICE_AFTER_FALLBACK_MAX)
    soon("silence when LACP came back", max(gaps_s.values()), LOST_AFTER_LACP_MAX_S)


def back_for_good(bed: Bed, service: Service, before: dict[str, list[str]]) -> None:
    """Wait until all are where they were, and stay: a member that is back may go once more."""
    since_s = math.inf

    def stays() -> bool:
        nonlocal since_s
        is_so = bed.homes() == before == shown(bed, service) and bed.lacp_is_negotiated()
        since_s = min(since_s, time.monotonic()) if is_so else math.inf
        return time.monotonic() - since_s > 1.5 * LACP_PERIOD_S

    wait_until(stays, f"back to {before}")


# ---- what is sent, and where it should come out -----------------------------------------


def both_ways(bed: Bed, homes: dict[str, list[str]]) -> tuple[Expected, Expected]:
    """What the network floods, and what stations send, come out once each."""
    return through_upstream(bed), from_stations(bed, homes)


def from_left_member(bed: Bed, uplink: Uplink) -> Expected:
    """What is flooded by a member that is not part of the LAG comes by the others, too."""
    for kind, build in frames.FLOODED.items():
        yield bed.shot(uplink.upstream_end, build, OUTSIDER, 0, 0, kind), Counter()


def known_unicast(bed: Bed, homes: dict[str, list[str]]) -> Expected:
    """Between a host and each VM, either way."""
    host, ends = bed.hosts[0], {u.name: str(u.upstream_end) for u in bed.uplinks}
    for vm in bed.stations:
        yield bed.frame_of(host, frames.to(vm.mac)), Counter({(str(vm), 0): 1})
        (home,) = homes[str(vm)]
        yield bed.frame_of(vm, frames.to(host.mac)), Counter({(ends[home], 0): 1})


# ---- what is shown, and what was heard when ---------------------------------------------


def copies(stream: Stream, ears: Ears, station: Station, which: int) -> Iterator[float]:
    """When the second (third…) copy of a frame came to a station."""
    seen: Counter[int] = Counter()
    for number, at_s in stream.arrivals(ears[station.point], 0):
        seen[number] += 1
        if seen[number] == which:
            yield at_s


def gaps(
    stream: Stream, ears: Ears, station: Station, since_s: float
) -> Iterator[tuple[float, float]]:
    """From when to when nothing of the stream came to a station, one by one."""
    arrivals = stream.arrivals(ears[station.point], 0)
    at = [at_s for _, at_s in arrivals if at_s >= since_s]
    return itertools.pairwise(at)


def silence_ends(bed: Bed, stream: Stream, ears: Ears, since_s: float) -> float:
    """When members went on, after LACP had given its partner up; 0: not yet."""
    station = bed.stations[0]
    ends = [b for a, b in gaps(stream, ears, station, since_s) if b - a > SILENT_S]
    return ends[0] if ends else 0.0


def longest_gap(stream: Stream, ears: Ears, station: Station, since_s: float) -> float:
    return max(b - a for a, b in gaps(stream, ears, station, since_s))
