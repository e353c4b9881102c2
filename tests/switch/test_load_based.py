"""Load-Based Teaming on real traffic: exactly the moves that the rule asks for, and no other.

The rule: when the mean load of an uplink, sent or received, passes 75 % of its capacity over
the window, the busiest port that fits elsewhere moves; one move per window at most.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import Stream

CAPACITY_MBPS = 100
WINDOW_S = 2
POLL_INTERVAL_MS = 200
# A flow's rate is set by the size of its frames, so that few frames make much traffic.
FLOW_PPS = 500
FRAME_BYTES_MAX = 9000
# A decision comes at most a window and a poll after the load, another a window later.
DECIDES_WITHIN_S = 3 * WINDOW_S
# Whoever moves again does so a window, a poll and the lag of flow counters later: 3.2 s.
QUIET_S = 4.4
IDLE_RATIO = 0.02

BEDS = [
    BedSpec(team, 2, (None,) * 4, (None,), mtu_bytes=FRAME_BYTES_MAX)
    for team in (PLAIN, BALANCE_SLB)
]


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    session_service.start()
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=POLL_INTERVAL_MS)
    session_service.attach(bed, "--policy", "load-based")
    for uplink in bed.uplinks:
        bed.shape(uplink, CAPACITY_MBPS * 1e6)
    yield bed
    session_service.do("detach", bed.bridge)


@pytest.fixture
def collided(team: Bed, service: Service) -> Bed:
    """All VMs on the first uplink, no rule for any of them, and no load yet."""
    bed = team
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    for vm in bed.vms:
        bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "ovs-lbt-pin")

    def idle() -> bool:
        uplinks = service.show_json(bed.bridge)["uplinks"]
        return all(
            u["utilization_ratio"] < IDLE_RATIO and u["capacity_bps"] == CAPACITY_MBPS * 1e6
            for u in uplinks
        )

    wait_until(idle, f"both uplinks idle, {CAPACITY_MBPS} Mbit/s each")
    # With a move a window begins, which has nothing of the load of the test before.
    service.move(bed.local, bed.uplinks[0])
    service.place(bed, 0, 0, 0, 0, 1)
    wait_until(idle, "both uplinks idle")
    return bed


@judges_time
@pytest.mark.parametrize(
    ("bed", "direction"),
    [
        pytest.param(BEDS[0], "sends", id="sends-plain"),
        pytest.param(BEDS[1], "receives", id="receives-bond"),
    ],
    indirect=["bed"],
)
def test_two_moves_balance_four_equal_loads(
    collided: Bed, service: Service, direction: str
) -> None:
    bed = collided
    moves = Moves(bed, service)
    with traffic(bed, 22, direction):
        moves.come_to(1)  # 88 % of one uplink; then 66 % and 22 %
        moves.stay_at(1)
    with traffic(bed, 27, direction):
        moves.come_to(2)  # 81 % and 27 %; then 54 % each
        moves.stay_at(2)
        key = "tx_bps" if direction == "sends" else "rx_bps"

        def even() -> bool:
            uplinks = service.show_json(bed.bridge)["uplinks"]
            ratios = [u["utilization_ratio"] for u in uplinks]
            rates_bps = [u[key] for u in uplinks]
            is_even = ratios == [pytest.approx(0.54, abs=0.04)] * 2
            return is_even and rates_bps == [pytest.approx(54e6, rel=0.08)] * 2

        wait_until(even, "54 Mbit/s by either uplink, as shown")
    bindings = service.bindings(bed)
    assert sorted(Counter(bindings[vm.port] for vm in bed.vms).values()) == [2, 2]
    moved = [p for p in service.show_json(bed.bridge)["ports"] if p["reason"] == "threshold"]
    assert len(moved) == 2


class Moves:
    """Moves of one bridge for the sake of load, counted from now on."""

    def __init__(self, bed: Bed, service: Service) -> None:
        self._bed = bed
        self._service = service
        self._before = self._total()

    def come_to(self, count: int) -> None:
        since_s = time.monotonic()
        wait_until(lambda: self._made() >= count, f"{count} moves")
        soon(f"{count} moves", time.monotonic() - since_s, DECIDES_WITHIN_S)

    def stay_at(self, count: int) -> None:
        holds(lambda: self._made() == count, f"{count} moves and no more", QUIET_S)

    def _made(self) -> float:
        return self._total() - self._before

    def _total(self) -> float:
        name, bridge = "ovslbt_moves_applied_total", self._bed.bridge
        return self._service.metric(name, bridge=bridge, reason="threshold")


def traffic(bed: Bed, rate_mbps: float, direction: str) -> Stream:
    """Flows of this rate from each VM to the outside; `receives`: from there to each VM instead."""
    host, size = bed.hosts[0], round(rate_mbps * 1e6 / 8 / FLOW_PPS)
    ways = [(vm, host) if direction == "sends" else (host, vm) for vm in bed.vms]
    return Stream(
        [(a.point, frames.udp(a.mac, b.mac, frame_bytes=size)) for a, b in ways], FLOW_PPS
    )
