"""A VM port with several addresses, each a unit of its own: the switch counts their flows late."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service
from tests.switch.test_history import entries
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import CATCH_UP_S, Stream

CAPACITY_MBPS = 100
FLOW_PPS = 500
# The policy places an address by its number: every other one is on the same uplink.
MACS = [f"02:77:00:00:00:{number:02x}" for number in range(6)]
BUSY = MACS[::2]
# All busy ones by one uplink need 90 Mbit/s; 65 and 40 are left if one of them moves.
HOT_MBPS, COLD_MBPS = 30, 5
FULL_RATIO, MOST_RATIO = 0.85, 0.75
STAYS_S = 3.0
# On a busy machine rates waver, so that a first move may be wrong.
MOST_MOVES = 2


@on_beds(BedSpec(PLAIN, 2, (None,), mtu_bytes=9000))
def test_a_jump_of_load_moves_addresses_and_not_their_port(bed: Bed, service: Service) -> None:
    port = bed.vms[0].port
    bed.set("bridge", bed.bridge, poll_interval_ms=100)
    bed.set("interface", port, unit="source-mac")
    service.attach(bed, "--policy", "adaptive")
    bed.limit_uplinks(CAPACITY_MBPS)
    with sending(bed, [COLD_MBPS] * len(MACS)):
        wait_until(lambda: addresses(bed, service) >= len(MACS), "all addresses are known")
        holds(lambda: fullest(bed, service) <= MOST_RATIO, "uplinks are not full", STAYS_S)
    before, moves_before = len(entries(service, bed)), moves(bed, service)
    with sending(bed, [HOT_MBPS if mac in BUSY else COLD_MBPS for mac in MACS]):
        # It may be over before this looks.
        wait_until(
            lambda: fullest(bed, service) >= FULL_RATIO or moves(bed, service) > moves_before,
            "one uplink is full",
        )
        wait_until(lambda: stays_low(bed, service), "no uplink is full any more")
    moved = [
        move["port"] for entry in entries(service, bed)[before:] for move in entry.get("moves", [])
    ]
    assert moved
    assert port not in moved, "the port carries nothing of its own"
    assert max(Counter(moved).values()) <= MOST_MOVES, "a wrong move is corrected once"
    service.do("detach", bed.bridge)


def moves(bed: Bed, service: Service) -> float:
    return service.metric("ovslbt_moves_applied_total", bridge=bed.bridge)


def sending(bed: Bed, mbps: Sequence[float]) -> Stream:
    """Each address of the VM sends that to the outside."""
    host, point = bed.hosts[0], bed.vms[0].point
    return Stream(
        [
            (point, frames.udp(mac, host.mac, frame_bytes=round(rate * 1e6 / 8 / FLOW_PPS)))
            for mac, rate in zip(MACS, mbps, strict=True)
        ],
        FLOW_PPS,
        catch_up_s=CATCH_UP_S,
    )


def addresses(bed: Bed, service: Service) -> int:
    return sum((service.port(bed, bed.vms[0]).get("units") or {}).values())


def stays_low(bed: Bed, service: Service) -> bool:
    end_s = time.monotonic() + STAYS_S
    while time.monotonic() < end_s:
        if fullest(bed, service) > MOST_RATIO:
            return False
        time.sleep(0.1)
    return True


def fullest(bed: Bed, service: Service) -> float:
    uplinks = service.show_json(bed.bridge)["uplinks"]
    return max(float(uplink["utilization_ratio"]) for uplink in uplinks)
