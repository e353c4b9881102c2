"""What VMs behind a patch port send is evened out under every policy, as that of ports is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import Bed
from tests.switch.service import Service
from tests.switch.test_late_counters import CAPACITY_MBPS, FLOW_PPS, bed_with_a_patch_port
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

# All by one uplink 84 Mbit/s; at best 46 and 38 by two.
RATES_MBPS = (30, 20, 18, 16)
SUM_BPS = 1e6 * sum(RATES_MBPS)
LEAST_BY_EACH_BPS = 25e6
IDLE_BPS = 1e6
SAME_RATIO = 0.15
# A move while all loads begin may be followed by another.
SETTLES_S = 3.0
WATCHED_S = 3.0


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    session_service.start()
    bed.set("bridge", bed.bridge, window_s=2, poll_interval_ms=100)
    with bed.integration_bridge(len(RATES_MBPS)):
        session_service.attach(bed, "--policy", "load-based")
        bed.limit_uplinks(CAPACITY_MBPS)
        bed.introduce()
        yield bed
        session_service.do("detach", bed.bridge)


@bed_with_a_patch_port
@pytest.mark.parametrize("unit", ["port", "source-mac"])
@pytest.mark.parametrize("policy", ["load-based", "dynamic", "adaptive"])
def test_the_port_is_shown_and_placed_as_what_it_sends(
    team: Bed, service: Service, policy: str, unit: str
) -> None:
    bed = team
    bed.set("interface", bed.patch, unit=unit)
    bed.set("bridge", bed.bridge, policy=policy)

    def tx_bps(kind: str) -> dict[str, float]:
        return {of["name"]: of["tx_bps"] for of in service.show_json(bed.bridge)[kind]}

    # One unit that fits stays whole, and by one uplink; what consists of some is evened out.
    parted = policy == "dynamic" or unit == "source-mac"

    def is_placed(least_bps: float) -> bool:
        return least_bps >= LEAST_BY_EACH_BPS if parted else least_bps <= IDLE_BPS

    def is_placed_and_shown() -> bool:
        shown_bps = tx_bps("ports")[bed.patch]
        return is_placed(min(tx_bps("uplinks").values())) and shown_bps > 0.8 * SUM_BPS

    host = bed.hosts[0]
    flows = []
    for number, (vm, mbps) in enumerate(zip(bed.nested, RATES_MBPS, strict=True), 1):
        size, address = round(mbps * 1e6 / 8 / FLOW_PPS), f"192.0.2.{number}"
        flow = frames.udp(vm.mac, host.mac, source_ip=address, frame_bytes=size)
        flows.append((vm.point, flow))

    def stays_so() -> bool:
        rows = []
        end_s = time.monotonic() + WATCHED_S
        while time.monotonic() < end_s:
            rows.append((tx_bps("ports")[bed.patch], *tx_bps("uplinks").values()))
            time.sleep(0.05)
        port_bps, *uplinks_bps = (statistics.median(column) for column in zip(*rows, strict=True))
        return (
            port_bps == pytest.approx(SUM_BPS, rel=SAME_RATIO)
            and sum(uplinks_bps) == pytest.approx(SUM_BPS, rel=SAME_RATIO)
            and is_placed(min(uplinks_bps))
        )

    with Stream(flows, FLOW_PPS):
        wait_until(is_placed_and_shown, "placed, and shown")
        time.sleep(SETTLES_S)
        # A sender that waits for a core sends less, or makes up for it.
        wait_until(stays_so, f"what is sent, for {WATCHED_S:g} s")
