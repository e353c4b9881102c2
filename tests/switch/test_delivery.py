"""Every frame that floods reaches each VM at most once, exactly once where it should.

And none goes back to the network. Where it should: a VM hears broadcast, multicast and
unknown unicast only from the uplink by which its own frames leave; in an LACP bond or a
static LAG, of which the upstream switch uses one member, from any.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.switch import frames, judging
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    LACP,
    PLAIN,
    STATIC_LAG,
    Bed,
    BedSpec,
    Shot,
    Station,
    Uplink,
    on_beds,
)
from tests.switch.judging import few_lost, few_twice, judges_time
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Ears, Stream

VLANS: tuple[int | None, ...] = (10, 10, 20)
UNTAGGED: tuple[int | None, ...] = (None, None, None)
BEDS = [
    BedSpec(PLAIN, 3, UNTAGGED),
    BedSpec(PLAIN, 3, VLANS),
    BedSpec(BALANCE_SLB, 2, VLANS),
    BedSpec(ACTIVE_BACKUP, 2, UNTAGGED),
    BedSpec(LACP, 2, VLANS),
    BedSpec(STATIC_LAG, 3, UNTAGGED),
]
OUTSIDER = "02:ee:00:00:00:01"
BROADCAST_PPS = 1000
# In a failover frames are lost until the switch sees the link down; how long that takes is
# measured in test_failover. This only tells a failover from an outage.
LOST_IN_FAILOVER_MAX = 100
# A move closes the old way before it opens the new one, and waits until cached flows agree.
MOVES_PER_VM = 4
LOST_IN_MOVES_MAX = 80
# Without the service nothing delays the return of a link: the switch opens the one way and
# closes the other in its cache flow by flow.
TWICE_AT_RETURN_MAX = 20
# A frame that is under way on the failing link as well as on the one that takes over.
TWICE_AT_FAILURE_MAX = 2

on_every_bed = on_beds(*BEDS)


def moved(bed: Bed, service: Service) -> None:
    """Move every station to the next uplink."""
    names = [u.name for u in bed.uplinks]
    before = service.bindings(bed)
    numbers = [(names.index(before[s.port]) + 1) % len(names) for s in bed.stations]
    service.place(bed, *numbers)


@contextlib.contextmanager
def failed(bed: Bed, service: Service, uplink: Uplink) -> Iterator[None]:
    """An uplink has no carrier and nobody uses it; afterwards all are back where they were."""
    before = bed.homes()
    live = {u.name for u in bed.uplinks if u is not uplink}

    def elsewhere() -> bool:
        homes = bed.homes()
        by_live = all(len(h) == 1 and h[0] in live for h in homes.values())
        return by_live and (not service.alive or shown(bed, service) == homes)

    def back() -> bool:
        return bed.homes() == before and (not service.alive or shown(bed, service) == before)

    with bed.cable_pulled(uplink):
        wait_until(elsewhere, f"every station's frames leave by a live uplink, {uplink} is down")
        yield
    wait_until(back, f"back to {before} after {uplink} has returned")


def shown(bed: Bed, service: Service) -> dict[str, list[str]]:
    """The uplink of each station as `show` has it, in the form of `homes`."""
    bindings = service.bindings(bed)
    return {str(s): [bindings[s.port]] for s in bed.stations}


@on_every_bed
def test_each_frame_comes_out_once(attached: Bed, service: Service) -> None:
    bed = attached
    check_as_shown(bed, service, "as attached")
    moved(bed, service)
    check_as_shown(bed, service, "after a move")
    with failed(bed, service, bed.uplinks[0]):
        bed.revalidated()
        check_as_shown(bed, service, "an uplink is down")
    bed.revalidated()
    check_as_shown(bed, service, "the uplink is back")


@on_every_bed
def test_each_frame_comes_out_once_without_the_service(attached: Bed, service: Service) -> None:
    bed = attached
    with service.dead():
        check_settled(bed, "service dead")
        with failed(bed, service, bed.uplinks[0]):
            bed.revalidated()
            check_settled(bed, "service dead, an uplink is down")
        bed.revalidated()
        check_settled(bed, "service dead, the uplink is back")


def check_as_shown(bed: Bed, service: Service, situation: str) -> None:
    wait_until(
        lambda: shown(bed, service) == bed.homes(),
        f"{situation}: frames leave by the uplinks that are shown",
    )
    check_settled(bed, situation)


def check_settled(bed: Bed, situation: str) -> None:
    try:
        check_everything(bed, settled_homes(bed))
    except AssertionError as wrong:
        raise AssertionError(f"{situation}: {wrong}") from wrong


@judges_time
@on_every_bed
def test_no_copy_twice_while_moves_and_failovers_happen(attached: Bed, service: Service) -> None:
    bed = attached
    failing = bed.uplinks if judging.benching else bed.uplinks[:1]
    with broadcast_from_upstream(bed) as (stream, ears):
        for number in [1, 0] * (MOVES_PER_VM // 2):
            service.move(bed.vms[0], bed.uplinks[number])
            service.move(bed.vms[1], bed.uplinks[1 - number])
        at_moves = next_frame(bed, stream, ears)
        failures, returns = fail_in_turn(bed, service, failing, (stream, ears), at_moves)
    lost, twice = check_stream(bed, stream, ears)
    in_moves = {n: [i for i in ids if i < at_moves] for n, ids in twice.items()}
    assert not any(in_moves.values()), f"heard twice in a move: {in_moves}"
    few_twice(worst_of_each(twice, cycles(failures, returns)), TWICE_AT_FAILURE_MAX)
    moved_lost = {n: sum(i < at_moves for i in ids) for n, ids in lost.items()}
    limit = MOVES_PER_VM * LOST_IN_MOVES_MAX
    few_lost(moved_lost, limit, BROADCAST_PPS, f"{MOVES_PER_VM} moves")
    of_each = worst_of_each(lost, failures)
    few_lost(of_each, LOST_IN_FAILOVER_MAX, BROADCAST_PPS, "each uplink fails")
    # A failback is a move, too.
    of_each = worst_of_each(lost, returns)
    few_lost(of_each, LOST_IN_MOVES_MAX, BROADCAST_PPS, "each uplink returns")


@judges_time
@on_every_bed
def test_no_copy_twice_in_a_failover_without_the_service(attached: Bed, service: Service) -> None:
    bed = attached
    service.place(bed, *(i % 2 for i in range(len(bed.stations))))
    with service.dead(), broadcast_from_upstream(bed) as (stream, ears):
        failures, returns = fail_in_turn(bed, service, bed.uplinks, (stream, ears))
    lost, twice = check_stream(bed, stream, ears)
    few_twice(worst_of_each(twice, failures), TWICE_AT_FAILURE_MAX, "each uplink fails")
    few_twice(worst_of_each(twice, returns), TWICE_AT_RETURN_MAX, "each uplink returns")
    of_each = worst_of_each(lost, cycles(failures, returns))
    few_lost(of_each, LOST_IN_FAILOVER_MAX, BROADCAST_PPS, "each uplink fails and returns")


def fail_in_turn(
    bed: Bed,
    service: Service,
    uplinks: Sequence[Uplink],
    broadcast: tuple[Stream, Ears],
    before: int = 0,
) -> tuple[list[range], list[range]]:
    """Each uplink fails and returns, from frame `before` on; the frames of each failure and each return."""
    failures, returns = [], []
    for uplink in uplinks:
        with failed(bed, service, uplink):
            returned = next_frame(bed, *broadcast)
        failures.append(range(before, returned))
        before = next_frame(bed, *broadcast)
        returns.append(range(returned, before))
    returns[-1] = range(returned, broadcast[0].stop().count)
    return failures, returns


def cycles(failures: Sequence[range], returns: Sequence[range]) -> list[range]:
    """Each failure together with the return after it."""
    pairs = zip(failures, returns, strict=True)
    return [range(failed.start, returned.stop) for failed, returned in pairs]


def worst_of_each(numbers: Numbers, phases: Sequence[range]) -> dict[str, int]:
    """How many of a stream's numbers are of each phase, of the station that has most."""
    return {
        f"phase {i}": max(sum(n in phase for n in ids) for ids in numbers.values())
        for i, phase in enumerate(phases)
    }


# ---- what is sent, and where it should come out -----------------------------------------


def settled_homes(bed: Bed) -> dict[str, list[str]]:
    homes = bed.homes()
    assert all(len(h) == 1 for h in homes.values()), f"not one copy by one uplink: {homes}"
    return homes


def check_everything(bed: Bed, homes: dict[str, list[str]]) -> None:
    """Send every kind of frame by every way in, and compare where copies came out."""
    check(
        bed,
        from_network(bed, homes),
        through_upstream(bed),
        from_stations(bed, homes),
        reflected(bed),
    )


def check(bed: Bed, *ways: Expected) -> None:
    """Send the frames of each way in, and compare where copies came out."""
    bed.settled()
    wrong: list[str] = []
    too_many: list[str] = []
    for shots in ways:
        expected = {shot.frame_id: (shot, where) for shot, where in shots}
        copies = bed.fire([shot for shot, _ in expected.values()])
        for frame_id, (shot, where) in expected.items():
            seen = copies[frame_id].at
            if seen != where:
                more = too_many if seen.total() > where.total() else wrong
                more.append(f"{shot.story}: {_story(seen)}, expected {_story(where)}")
    story = f"{len(wrong) + len(too_many)} frames went wrong:\n" + "\n".join(too_many + wrong)
    assert not too_many and not wrong, story


Expected = Iterator[tuple[Shot, Counter[tuple[str, int]]]]


def from_network(bed: Bed, homes: dict[str, list[str]]) -> Expected:
    """Frames put on each live uplink's cable by itself."""
    for uplink in bed.uplinks:
        if not bed.carrier(uplink):
            continue
        for vlan in bed.vlans:
            hearing = [s for s in bed.stations if bed.spec.is_lag or homes[str(s)] == [uplink.name]]
            for kind, build in {**frames.FLOODED, **frames.ANNOUNCEMENTS}.items():
                shot = bed.shot(uplink.upstream_end, build, OUTSIDER, vlan, vlan, kind)
                yield shot, _delivered(hearing, vlan)
            # Of copies that come by several uplinks of an active-backup bond, one is taken.
            known = bed.stations if bed.spec.team in (PLAIN, BALANCE_SLB) else []
            for station in [s for s in known if vlan == (s.vlan or bed.vlans[0])]:
                story, build = f"to {station}", frames.to(station.mac)
                shot = bed.shot(uplink.upstream_end, build, OUTSIDER, vlan, vlan, story)
                yield shot, _delivered([station], vlan)


def through_upstream(bed: Bed) -> Expected:
    """Frames of a host, which the upstream switch floods to every uplink."""
    host = bed.hosts[0]
    for vlan in bed.vlans:
        for kind, build in frames.FLOODED.items():
            shot = bed.frame_of(host, build, story=kind, vlan=vlan)
            yield shot, _delivered(bed.stations, vlan)


def from_stations(bed: Bed, homes: dict[str, list[str]]) -> Expected:
    """Frames of the VMs and of the host itself."""
    ends = {u.name: str(u.upstream_end) for u in bed.uplinks}
    for station in bed.stations:
        (home,) = homes[str(station)]
        for kind, build in {**frames.FLOODED, **frames.ANNOUNCEMENTS}.items():
            shot = bed.frame_of(station, build, story=kind)
            where = Counter({(ends[home], shot.vlan): 1})
            yield shot, where + _delivered([s for s in bed.stations if s != station], shot.vlan)
        yield bed.frame_of(station, frames.to(station.mac), story="to itself"), Counter()


def reflected(bed: Bed) -> Expected:
    """What VMs have flooded comes back by each uplink; announcements among it are locked."""
    for uplink in bed.uplinks:
        if not bed.carrier(uplink):
            continue
        for station in bed.stations:
            vlan = bed.vlans[0] if station.vlan is None else station.vlan
            for kind, build in {**frames.FLOODED, **frames.ANNOUNCEMENTS}.items():
                story, end = f"reflected {kind} of {station}", uplink.upstream_end
                yield bed.shot(end, build, station.mac, vlan, vlan, story), Counter()


def _delivered(stations: list[Station], vlan: int) -> Counter[tuple[str, int]]:
    return Counter({(str(s), s.sends(vlan)): 1 for s in stations if s.hears(vlan)})


def _story(where: Counter[tuple[str, int]]) -> str:
    copies = [
        f"{n} × {point}" + (f" tagged {tag}" if tag else "")
        for (point, tag), n in sorted(where.items())
    ]
    return ", ".join(copies) or "nowhere"


# ---- streams ----------------------------------------------------------------------------


@contextlib.contextmanager
def broadcast_from_upstream(bed: Bed) -> Iterator[tuple[Stream, Ears]]:
    """A steady broadcast of one host, in the first VLAN, which every station should hear."""
    host, vlan = bed.hosts[0], bed.vlans[0]
    frame = frames.broadcast(host.mac, host.sends(vlan), 0)
    with bed.ears() as ears, Stream([(host.point, frame)], BROADCAST_PPS) as stream:
        next_frame(bed, stream, ears)
        yield stream, ears
        stream.stop()
        ears.until_quiet()


def next_frame(bed: Bed, stream: Stream, ears: Ears) -> int:
    """Wait until all stations in the VLAN hear the stream; the number it is at."""
    hearing = [s for s in bed.stations if s.hears(bed.vlans[0])]
    for station in hearing:
        ears[station.point].listen()
    since_s = time.time()

    def newest(station: Station) -> int:
        arrivals = stream.arrivals(ears[station.point], 0)
        return max((number for number, at_s in arrivals if at_s > since_s), default=0)

    wait_until(lambda: all(map(newest, hearing)), "every station hears the broadcast again")
    return max(map(newest, hearing))


Numbers = dict[str, list[int]]


def check_stream(bed: Bed, stream: Stream, ears: Ears) -> tuple[Numbers, Numbers]:
    """None back upstream or to other VLANs; the numbers lost and heard twice, by station."""
    count = stream.stop().count
    lost, twice = {}, {}
    for station in bed.stations:
        received = stream.received(ears[station.point], 0)
        twice[str(station)] = [number for number, n in received.items() if n > 1]
        if station.hears(bed.vlans[0]):
            lost[str(station)] = [number for number in range(count) if number not in received]
        else:
            assert not received, f"{station} heard another VLAN's frames"
    for uplink in bed.uplinks:
        back = stream.received(ears[uplink.upstream_end], 0)
        assert not back, f"{len(back)} frames went back to the network by {uplink}"
    return lost, twice
