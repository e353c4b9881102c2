"""Connections stay where they are: through a failure of another uplink, and through ours."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.switch import frames, judging
from tests.switch.bed import LACP, PLAIN, STATIC_LAG, Bed, BedSpec, Uplink, on_beds
from tests.switch.judging import few_lost, few_twice, judges_time
from tests.switch.sendings import Sending, fire, udp
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import Stream

BEDS = [BedSpec(PLAIN, 3, (None, 10))]
LAGS = [BedSpec(LACP, 2, (None, 10)), BedSpec(STATIC_LAG, 3, (None, 10))]
CAPACITIES_MBPS = (100, 100, 200)
CONNECTIONS_PER_VM = 120
# Of each VM: IPv4 and IPv6.
IPS = [
    (("10.77.1.1", "198.51.100.1"), ("fd77::1", "2001:db8::1")),
    (("10.77.1.2", "198.51.100.1"), ("fd77::2", "2001:db8::1")),
]
FAILBACK_DELAY_S = 3
# What returns too soon does so at once.
WATCHED_BEFORE_RETURN_S = 0.5
# After a start, the service reads what there is, and decides for the first time.
WATCHED_AFTER_START_S = 1.5
DEVIATIONS_MAX = 5
STREAM_PPS = 100
# Every so manieth connection.
STREAMED_OF = 10
MORE_FRAMES = 30
# 100 ms, for a failover, and for a return.
LOST_MAX = 10
# A broadcast that is under way on the failing link as well as on the one that takes over.
TWICE_AT_FAILURE_MAX = 2
# Without the service the switch opens the one way and closes the other in its cache flow by flow.
TWICE_AT_RETURN_MAX = 20

on_plain_uplinks = on_beds(*BEDS)
# What fails on a LAG is elsewhere in test_presets and test_delivery.
beds = BEDS + (LAGS if judging.benching else [])
on_plain_uplinks_and_lags = on_beds(*beds)
both_static_and_dynamic = pytest.mark.parametrize("preset", ["address-hash", "dynamic"])
any_of_both = pytest.mark.parametrize("preset", ["dynamic"])

LOST = "lost"
Ways = Mapping[str, str]


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """Uplinks of unequal capacity."""
    session_service.start()
    for uplink, capacity_mbps in zip(bed.uplinks, CAPACITIES_MBPS, strict=False):
        bed.set("interface", uplink.name, capacity_mbps=capacity_mbps)
    # The ways of connections are asked of ofproto/trace, which cannot tell them with dp_hash.
    bed.set("bridge", bed.bridge, failback_delay_s=FAILBACK_DELAY_S, connection_hash="multipath")
    session_service.attach(bed, "--policy", "originating-port")
    yield bed
    session_service.start()
    session_service.do("detach", bed.bridge)


@pytest.fixture
def flows(team: Bed, service: Service, preset: str) -> Sequence[Sending]:
    """Connections of two VMs, spread by the policy."""
    made = [
        udp(team, vm, IPS[number][i % 2], 20000 + i)
        for number, vm in enumerate(team.vms)
        for i in range(CONNECTIONS_PER_VM)
    ]
    # To unknown addresses, frames would be flooded.
    team.introduce(team.hosts[0].mac)
    names = {u.name for u in team.uplinks}
    # The policy of the test before may spread them as well, otherwise.
    service.do("set", "bridge", team.bridge, "policy=originating-port")
    wait_until(lambda: set(ways(team, made).values()) < names, "connections by their VM's uplink")
    service.do("set", "bridge", team.bridge, f"policy={preset}")
    wait_until(lambda: set(ways(team, made).values()) == names, "connections by every uplink")
    team.settled()
    return made


@on_plain_uplinks
@both_static_and_dynamic
def test_a_failure_moves_the_connections_of_that_uplink_and_no_other(
    team: Bed, service: Service, flows: Sequence[Sending]
) -> None:
    bed, (failing, *live) = team, team.uplinks
    usual = ways(bed, flows)
    by_capacity(usual, dict(zip([u.name for u in bed.uplinks], CAPACITIES_MBPS, strict=True)))
    with bed.cable_pulled(failing):
        failed_over = without(bed, flows, usual, failing.name)
        heirs = {name: failed_over[name] for name, by in usual.items() if by == failing.name}
        by_capacity(heirs, {u.name: CAPACITIES_MBPS[1 + i] for i, u in enumerate(live)})
        wait_until(lambda: demoted(bed, failing), "the switch is told to stay with the others")
        due_s = time.monotonic() + FAILBACK_DELAY_S
    holds(
        # What a busy machine has looked at later may have returned in time.
        lambda: ways(bed, flows) == failed_over or time.monotonic() > due_s,
        "no connection returns before the delay is over",
        WATCHED_BEFORE_RETURN_S,
    )
    wait_until(lambda: ways(bed, flows) == usual, "all connections are back")


@on_plain_uplinks
@both_static_and_dynamic
def test_a_restart_of_the_service_moves_nothing(
    team: Bed, service: Service, flows: Sequence[Sending]
) -> None:
    bed, failing = team, team.uplinks[2]
    usual, groups = ways(bed, flows), bed.ofctl("dump-groups")
    with service.dead():
        assert ways(bed, flows) == usual
    stay(bed, flows, usual)
    assert bed.ofctl("dump-groups") == groups
    with bed.cable_pulled(failing):
        failed_over = without(bed, flows, usual, failing.name)
        with service.dead():
            assert ways(bed, flows) == failed_over
        stay(bed, flows, failed_over)
    wait_until(lambda: ways(bed, flows) == usual, "all connections are back")


@on_plain_uplinks
@any_of_both
def test_without_the_service_the_switch_does_the_same(
    team: Bed, service: Service, flows: Sequence[Sending]
) -> None:
    bed, failing = team, team.uplinks[1]
    usual = ways(bed, flows)
    with service.dead():
        with bed.cable_pulled(failing):
            without(bed, flows, usual, failing.name)
        wait_until(lambda: ways(bed, flows) == usual, "all connections are back")
    stay(bed, flows, usual)


@judges_time
@on_plain_uplinks_and_lags
@any_of_both
def test_nothing_is_heard_twice_while_connections_move(
    team: Bed, service: Service, flows: Sequence[Sending]
) -> None:
    """Connections with a host, and its broadcasts, through a failure and the return.

    In the bench each uplink fails in turn, with the service and without it.
    """
    lost_and_twice(team, service, flows, "service alive")
    if judging.benching:
        with service.dead():
            lost_and_twice(team, service, flows, "service dead")


def lost_and_twice(bed: Bed, service: Service, flows: Sequence[Sending], who: str) -> None:
    host, failing = bed.hosts[0], bed.uplinks if judging.benching else bed.uplinks[:1]
    usual, streamed = ways(bed, flows), flows[::STREAMED_OF]
    sent = [(flow.station.point, flow.frame()) for flow in streamed]
    sent.append((host.point, frames.broadcast(host.mac, bed.vlans[0], 0)))
    # When each uplink had failed and had returned, as numbers of frames.
    failed, returned = [], [0]
    with bed.ears(host.point, *(s.point for s in bed.stations)) as ears:
        with Stream(sent, STREAM_PPS) as stream:
            at_host = [ears[host.point]] * len(streamed)
            for uplink in failing:
                with bed.cable_pulled(uplink):
                    without(bed, flows, usual, uplink.name)
                    failed.append(stream.more(at_host, MORE_FRAMES))
                wait_until(lambda: ways(bed, flows) == usual, "all connections are back")
                returned.append(stream.more(at_host, MORE_FRAMES))
        count = stream.stop().count
        ears.until_quiet()
    phases = {
        "fails": [range(*ends) for ends in zip(returned[:-1], failed, strict=True)],
        "returns": [range(*ends) for ends in zip(failed, [*returned[1:-1], count], strict=True)],
    }
    lost: dict[str, Counter[str]] = {}
    twice: dict[str, Counter[str]] = {}
    for number, flow in enumerate([*map(str, streamed), "broadcast"]):
        for receiver in [host] if number < len(streamed) else bed.stations:
            received = stream.received(ears[receiver.point], number)
            at = f"{flow} at {receiver}"
            lost[at], twice[at] = Counter(), Counter()
            for what, ranges in phases.items():
                for uplink, numbers in zip(failing, ranges, strict=True):
                    key = f"{uplink} {what}"
                    lost[at][key] = sum(n not in received for n in numbers)
                    twice[at][key] = sum(received.get(n, 0) > 1 for n in numbers)
    for station in bed.stations:
        for number, flow in enumerate(map(str, streamed)):
            assert not stream.received(ears[station.point], number), f"{flow} came to {station}"
    for at, of in lost.items():
        if of.total():
            print(f"lost of {bed}, {who}, {at}: {dict(+of)}")
    for what in phases:
        keys, when = [f"{uplink} {what}" for uplink in failing], f"each uplink {what}, {who}"
        at_return = what == "returns" and not service.alive
        most_twice = TWICE_AT_RETURN_MAX if at_return else TWICE_AT_FAILURE_MAX
        few_twice({k: max(of[k] for of in twice.values()) for k in keys}, most_twice, when)
        few_lost({k: max(of[k] for of in lost.values()) for k in keys}, LOST_MAX, STREAM_PPS, when)


def ways(bed: Bed, flows: Sequence[Sending]) -> Ways:
    """The uplink that a frame of each connection leaves by; of one that is lost, none.

    For whose frame a busy switch had no room sends another one.
    """
    found = ways_of_one_frame(bed, flows)
    lost = [flow for flow in flows if found[str(flow)] == LOST]
    return found | ways_of_one_frame(bed, lost) if lost else found


def ways_of_one_frame(bed: Bed, flows: Sequence[Sending]) -> dict[str, str]:
    found = {}
    for flow, landing in zip(flows, fire(bed, flows), strict=True):
        assert len(landing.left) <= 1, f"{flow} left more than once: {landing.left}"
        assert not landing.heard, f"{flow} came back to {landing.heard}"
        found[str(flow)] = landing.left[0][0] if landing.left else LOST
    return found


def without(bed: Bed, flows: Sequence[Sending], usual: Ways, down: str) -> Ways:
    """Wait until connections of an uplink that is down leave by others; how all leave then.

    Those of other uplinks leave as usual all the time.
    """

    def failed_over() -> Ways | None:
        now = ways(bed, flows)
        moved = {n: (by, now[n]) for n, by in usual.items() if now[n] not in (by, LOST)}
        needless = {name: ways for name, ways in moved.items() if ways[0] != down}
        assert not needless, f"moved without need: {needless}"
        return now if not {down, LOST} & set(now.values()) else None

    found = wait_until(failed_over, f"nothing by {down}")
    assert found is not None
    return found


def demoted(bed: Bed, uplink: Uplink) -> bool:
    """Whether no group prefers an uplink: the switch uses it at once when its link returns."""
    ofport = bed.ovs.vsctl("get", "interface", uplink.name, "ofport")
    preferred = re.findall(
        r"type=ff,bucket=watch_port:(\d+),actions=set_field", bed.ofctl("dump-groups")
    )
    return bool(preferred) and ofport not in preferred


def stay(bed: Bed, flows: Sequence[Sending], usual: Ways) -> None:
    holds(lambda: ways(bed, flows) == usual, "the connections' uplinks", WATCHED_AFTER_START_S)


def by_capacity(placed: Ways, capacities_mbps: Mapping[str, int]) -> None:
    """Assert that connections are spread by the capacity of uplinks, as a hash spreads them."""
    counts, total = Counter(placed.values()), sum(capacities_mbps.values())
    for name, capacity_mbps in capacities_mbps.items():
        share = capacity_mbps / total
        mean = len(placed) * share
        off = DEVIATIONS_MAX * math.sqrt(mean * (1 - share))
        assert abs(counts[name] - mean) <= off, f"{name}: {counts}, expected {mean:.0f}±{off:.0f}"
