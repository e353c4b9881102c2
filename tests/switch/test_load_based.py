"""Load-Based Teaming on real traffic: exactly the moves that the rule asks for, and no other.

The rule: when the mean load of an uplink, sent or received, passes 75 % of its capacity over
the window, the busiest port that fits elsewhere moves; one move per window at most.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.judging import judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import Point, Stream

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
on_plain_uplinks = on_beds(*BEDS[:1])


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic of one VM with the outside, or with another VM on the same bridge."""

    vm: int
    rate_mbps: float
    to_vm: int | None = None


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
    with traffic(bed, [Load(vm, 22) for vm in range(4)], direction):
        moves.come_to(1)  # 88 % of one uplink; then 66 % and 22 %
        moves.stay_at(1)
    with traffic(bed, [Load(vm, 27) for vm in range(4)], direction):
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


@on_plain_uplinks
def test_traffic_between_local_vms_moves_nothing(collided: Bed, service: Service) -> None:
    bed = collided
    local = [Load(0, 30, to_vm=1), Load(2, 30, to_vm=3), Load(1, 30, to_vm=0)]
    moves = Moves(bed, service)
    with traffic(bed, [*local, Load(3, 5)]):
        wait_until(lambda: utilization(bed, service) > 0.04, "the rest of the traffic shows")
        moves.stay_at(0)
        # A switch that had no time for a moment sends at once what came meanwhile.
        wait_until(
            lambda: utilization(bed, service) < 0.1, "local traffic is not counted as an uplink's"
        )


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


def utilization(bed: Bed, service: Service) -> float:
    """Of the first uplink."""
    return float(service.uplink(bed, bed.uplinks[0])["utilization_ratio"])


def traffic(bed: Bed, loads: Sequence[Load], direction: str = "sends") -> Stream:
    """Flows of these loads; `receives`: from the outside to the VMs instead."""
    host = bed.hosts[0]
    flows: list[tuple[Point, bytes]] = []
    for load in loads:
        source = bed.vms[load.vm]
        target = host if load.to_vm is None else bed.vms[load.to_vm]
        if direction == "receives":
            source, target = target, source
        size = round(load.rate_mbps * 1e6 / 8 / FLOW_PPS)
        assert size < FRAME_BYTES_MAX, f"{load} needs more than one flow"
        flows.append((source.point, frames.udp(source.mac, target.mac, frame_bytes=size)))
    return Stream(flows, FLOW_PPS)
