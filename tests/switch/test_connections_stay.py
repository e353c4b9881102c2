"""Connections that a hash spreads: an uplink fails and returns, and nothing is heard twice.

That other connections stay, also without the service: test_hashing.py. Shares, delays and restarts:
tests/unit/controller/teaming/test_buckets.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.switch import frames, judging
from tests.switch.bed import LACP, PLAIN, STATIC_LAG, Bed, BedSpec, on_beds
from tests.switch.judging import few_lost, few_twice, judges_time
from tests.switch.sendings import Sending, fire, udp
from tests.switch.service import Service
from tests.switch.waiting import wait_until
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

# What fails on a LAG is elsewhere in test_presets and test_delivery.
on_plain_uplinks_and_lags = on_beds(*BEDS, *(LAGS if judging.benching else []))

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
def flows(team: Bed, service: Service) -> Sequence[Sending]:
    """Connections of two VMs, spread over all uplinks."""
    made = [
        udp(team, vm, IPS[number][i % 2], 20000 + i)
        for number, vm in enumerate(team.vms)
        for i in range(CONNECTIONS_PER_VM)
    ]
    # To unknown addresses, frames would be flooded.
    team.introduce(team.hosts[0].mac)
    names = {u.name for u in team.uplinks}

    def together() -> bool:
        """Whether each VM's connections use the same uplink."""
        used = [*ways(team, made).values()]
        parts = (used[n : n + CONNECTIONS_PER_VM] for n in range(0, len(used), CONNECTIONS_PER_VM))
        return LOST not in used and all(len({*part}) == 1 for part in parts)

    wait_until(together, "connections by their VM's uplink")
    service.do("set", "bridge", team.bridge, "policy=dynamic")
    wait_until(lambda: set(ways(team, made).values()) == names, "connections by every uplink")
    team.settled()
    return made


@judges_time
@on_plain_uplinks_and_lags
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
