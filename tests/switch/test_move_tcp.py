"""A move costs a running connection nothing, and what comes in follows it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.switch import frames, iperf
from tests.switch.bench import (
    BALANCE_SLB,
    PLAIN,
    Bed,
    BedSpec,
    Service,
    Station,
    Uplink,
    run,
    wait_until,
)
from tests.switch.wire import Heard, Stream

VLAN = 10
BEDS = [
    BedSpec(team, 2, (VLAN, None), (VLAN, None), addresses=True) for team in (PLAIN, BALANCE_SLB)
]
TCP_BPS = 40_000_000
TCP_S = 4
MOVES = 4
# A busy machine delays packets, which TCP takes for a loss, in some runs without any move too.
# What moves cost is in every run.
ATTEMPTS = 3
CARRIED_BYTES = 100_000
FOLLOWS_WITHIN_S = 2.0
# Cached flows may be up to a second old, so a switch may not see what is sent at once.
REPEATED_AFTER_S = 0.5

on_both_beds = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)


@on_both_beds
@pytest.mark.parametrize("direction", ["sends", "receives"])
def test_tcp_runs_across_moves_without_retransmission(
    attached: Bed, service: Service, direction: str
) -> None:
    bed = attached
    service.place(bed, 0)
    retransmissions: list[float] = []
    with iperf.server(bed.hosts[0]):
        while len(retransmissions) < ATTEMPTS and 0 not in retransmissions:
            sent = stream_across_moves(bed, service, direction)
            assert sent["bytes"] * 8 / sent["seconds"] == pytest.approx(TCP_BPS, rel=0.1)
            retransmissions.append(sent["retransmits"])
    print(f"retransmissions in {MOVES} moves: {retransmissions}")
    assert 0 in retransmissions, f"retransmissions in {MOVES} moves, run by run: {retransmissions}"


def stream_across_moves(bed: Bed, service: Service, direction: str) -> dict[str, float]:
    """A TCP stream while its VM moves to and fro; what its sender says of it."""
    vm, host = bed.vms[0], bed.hosts[0]
    reverse = ["--reverse"] if direction == "receives" else []
    client = iperf.client(vm, host, TCP_S, "--bitrate", str(TCP_BPS), *reverse)
    for i in range(MOVES):
        wait_until(carried(bed.uplinks[i % 2], direction), "the stream runs by the uplink")
        service.move(vm, bed.uplinks[(i + 1) % 2])
        assert client.poll() is None, "the stream ended before the moves did"
    sent: dict[str, float] = iperf.end(client, TCP_S)["sum_sent"]
    return sent


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
        wait_until(
            lambda: to_vm(ears[ends[1]].frames(), vm),
            "frames for the VM on its new uplink",
            FOLLOWS_WITHIN_S,
        )
        learning = wait_until(
            lambda: repeated(ears[ends[1]].frames(), vm),
            "the learning packet is sent, and again when cached flows are renewed",
            3.0,
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


def carried(uplink: Uplink, direction: str) -> Callable[[], bool]:
    """Whether an uplink has carried a part of the stream from now on."""
    # Seen from the upstream end.
    counter = "rx" if direction == "sends" else "tx"

    def total_bytes() -> int:
        end = uplink.upstream_end
        shown = run("ip", "-j", "-s", "link", "show", end.interface, netns=end.netns)
        (link,) = json.loads(shown)
        return int(link["stats64"][counter]["bytes"])

    start_bytes = total_bytes()
    return lambda: total_bytes() - start_bytes > CARRIED_BYTES
