"""A move costs a running connection nothing, and what comes in follows it."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.switch import frames, iperf
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, Uplink, on_beds, run
from tests.switch.judging import at_least, at_most, judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Ear, Heard, Stream

VLAN = 10
BEDS = [
    BedSpec(team, 2, (VLAN, None), (VLAN, None), addresses=True) for team in (PLAIN, BALANCE_SLB)
]
TCP_BPS = 10_000_000
# The moves are over by then, on a busy machine, too.
TCP_S = 10
# Not in bursts: while a switch with a userspace datapath does something else, each of its ports
# has room for some 90 frames.
SMOOTHLY = ("--fq-rate", str(TCP_BPS), "--length", "4K")
MOVES = 4
CARRIED_BYTES = 50_000
# A switch may take up first what came last, by the other link; if it is slow, several at once.
# TCP takes a segment for lost when three have overtaken it (RFC 5681).
OVERTAKEN_BY_MAX = 2
# A pause makes it less.
SENT_MIN_RATIO = 0.8
# In an IPv4 frame.
IP_PROTOCOL_AT = 14 + 9
PORTS = slice(14 + 20, 14 + 20 + 4)
FOLLOWS_WITHIN_S = 2.0
# Cached flows may be up to a second old, so a switch may not see what is sent at once.
REPEATED_AFTER_S = 0.5

on_both_beds = on_beds(*BEDS)


@judges_time
@on_both_beds
def test_tcp_segments_arrive_once_and_in_order_across_moves(
    attached: Bed, service: Service
) -> None:
    """Of streams both ways, what left and what arrived.

    Retransmissions would not tell: on a busy machine TCP repeats what is only late. Nor is a
    segment lost by a move that a switch had no room for because it stood still.
    """
    bed = attached
    vm, host = bed.vms[0], bed.hosts[0]
    service.place(bed, 0)
    turned_away_before = bed.turned_away()
    with (
        iperf.server(host),
        iperf.server(vm),
        bed.ears(vm.point, host.point) as ears,
        iperf.client(vm, host, TCP_S, *SMOOTHLY) as outwards,
        iperf.client(host, vm, TCP_S, *SMOOTHLY) as inwards,
    ):
        for i in range(MOVES):
            wait_until(carried(bed.uplinks[i % 2]), "the streams run by the uplink")
            service.move(vm, bed.uplinks[(i + 1) % 2])
        sent = [iperf.end(client, TCP_S)["sum_sent"] for client in (outwards, inwards)]
        # What is still under way arrives before this does.
        bed.introduce()
        ears.until_quiet()
        segments = {at: tcp_segments(ears[at.point]) for at in (vm, host)}
    no_room = bed.turned_away() - turned_away_before
    for (sender, receiver), stream in zip([(vm, host), (host, vm)], sent, strict=True):
        (left, _), (_, came) = segments[sender], segments[receiver]
        way = f"of {len(left)} segments from {sender} to {receiver}"
        lost = (Counter(left) - Counter(came)).total()
        twice = (Counter(came) - Counter(left)).total()
        assert not twice, f"{way} {twice} came twice"
        assert lost <= no_room, f"{way} {lost} were lost"
        overtaken = overtaken_by(left, came)
        bps = stream["bytes"] * 8 / stream["seconds"]
        print(f"{way} {lost} had no room, one was overtaken by {overtaken}, {bps:.0f} bit/s")
        at_most(f"segments {sender} to {receiver} that had no room", lost, 0, len(left) / 2)
        at_most(f"segments that overtook one to {receiver}", overtaken, OVERTAKEN_BY_MAX, len(left))
        at_least(f"bit/s to {receiver}", bps, SENT_MIN_RATIO * TCP_BPS, 0)


def tcp_segments(ear: Ear) -> tuple[list[bytes], list[bytes]]:
    """What left by an interface, and what came."""
    heard = [
        h
        for h in ear.frames()
        if h.ethertype == frames.ETH_IPV4 and h.data[IP_PROTOCOL_AT] == socket.IPPROTO_TCP
    ]
    return [h.data for h in heard if h.outgoing], [h.data for h in heard if not h.outgoing]


def overtaken_by(left: Sequence[bytes], came: Sequence[bytes]) -> int:
    """How many of its connection that left later came before a segment, at most."""
    worst = 0
    for ports in {segment[PORTS] for segment in left}:
        numbers = {s: number for number, s in enumerate(s for s in left if s[PORTS] == ports)}
        arrivals = enumerate(s for s in came if s[PORTS] == ports)
        worst = max(worst, *(arrival - numbers[s] for arrival, s in arrivals))
    return worst


@judges_time
@on_both_beds
def test_inbound_follows_a_silent_vm(attached: Bed, service: Service) -> None:
    bed = attached
    vm, host = bed.vms[0], bed.hosts[0]
    service.place(bed, 0)
    ends = [u.upstream_end for u in bed.uplinks]
    frame = frames.udp(host.mac, vm.mac)
    with bed.ears(*ends, vm.point) as ears, Stream([(host.point, frame)], pps=200) as stream:
        wait_until(lambda: to_vm(ears[ends[0]].frames(), vm), "frames for the VM on uplink 0")
        ears.forget()
        service.move(vm, bed.uplinks[1])
        moved_s = time.monotonic()
        wait_until(lambda: to_vm(ears[ends[1]].frames(), vm), "frames for the VM on its new uplink")
        soon("inbound follows", time.monotonic() - moved_s, FOLLOWS_WITHIN_S)
        learning = wait_until(
            lambda: repeated(ears[ends[1]].frames(), vm),
            "the learning packet is sent, and again when cached flows are renewed",
        )
        assert {h.vlan for h in learning} == {VLAN}, "learning packets are in the VM's VLAN"
        # Repetitions of an earlier move's learning packets may come before that.
        since_s = learning[0].at_s
        old = [h for h in ears[ends[0]].frames() if not h.outgoing and h.at_s > since_s]
        assert not old, "something of the VM's still leaves by its old uplink"
        ears[ends[0]].forget()
        wait_until(lambda: len(to_vm(ears[ends[1]].frames(), vm)) > 300, "more frames")
        assert not to_vm(ears[ends[0]].frames(), vm), "frames still come by the old uplink"
        stream.stop()
        ears.until_quiet()
        twice = [n for n in stream.received(ears[vm.point], 0).values() if n > 1]
        assert not twice, f"the VM heard {len(twice)} frames more than once"


def to_vm(heard: list[Heard], vm: Station) -> list[Heard]:
    """Frames that the upstream switch sends to a VM."""
    return [h for h in heard if h.outgoing and h.destination == vm.mac]


def repeated(heard: list[Heard], vm: Station) -> list[Heard]:
    """The VM's learning packets, once they have been repeated."""
    packets = [
        h for h in heard if h.ethertype == frames.ETH_RARP and h.source == vm.mac and not h.outgoing
    ]
    if not packets or packets[-1].at_s - packets[0].at_s < REPEATED_AFTER_S:
        return []
    return packets


def carried(uplink: Uplink) -> Callable[[], bool]:
    """Whether an uplink has carried a part of both streams from now on."""

    def total_bytes() -> list[int]:
        end = uplink.upstream_end
        shown = run("ip", "-j", "-s", "link", "show", end.interface, netns=end.netns)
        (link,) = json.loads(shown)
        return [int(link["stats64"][way]["bytes"]) for way in ("rx", "tx")]

    start_bytes = total_bytes()
    return lambda: all(
        now - start > CARRIED_BYTES for now, start in zip(total_bytes(), start_bytes, strict=True)
    )
