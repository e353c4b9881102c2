"""plan, apply and explain on a real bridge with real traffic, as an operator types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.said import says
from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

CAPACITY_MBPS = 100
# A flow's rate is set by the size of its frames, so that few frames make much traffic.
FLOW_PPS = 500
FRAME_BYTES_MAX = 9000
# The policy by itself does nothing as long as these tests take.
WINDOW_S = 300
# The first VM is the busiest that the other uplink can take.
RATES_MBPS = (34, 26, 24)
# Loads are known some seconds after the last move.
KNOWN_WITHIN_S = 60.0

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 3, (None,), mtu_bytes=FRAME_BYTES_MAX))


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """Two uplinks of 100 Mbit/s, and three VMs that send all the time."""
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=200, failback_delay_s=1)
    host, flows = bed.hosts[0], []
    for vm, rate_mbps in zip(bed.vms, RATES_MBPS, strict=True):
        size = round(rate_mbps * 1e6 / 8 / FLOW_PPS)
        flows.append((vm.point, frames.udp(vm.mac, host.mac, frame_bytes=size)))
    with session_service.attached(bed, "--policy", "load-based"):
        bed.limit_uplinks(CAPACITY_MBPS)
        with Stream(flows, FLOW_PPS):
            yield bed


def plan(bed: Bed, service: Service) -> dict[str, Any]:
    """What `plan` shows once it knows the loads."""

    def known() -> dict[str, Any] | None:
        (found,) = json.loads(service.do("plan", bed.bridge, "--json"))["bridges"]
        (policy,) = found["policies"]
        return found if policy["rest"] != "loads-unknown" else None

    found = wait_until(known, "loads since the last move are known", KNOWN_WITHIN_S, 0.3)
    assert isinstance(found, dict)
    return found


def explain(service: Service, port: str) -> dict[str, Any]:
    found = json.loads(service.do("explain", port, "--json"))
    assert isinstance(found, dict)
    return found


def test_what_was_planned_is_applied_and_loads_follow(team: Bed, service: Service) -> None:
    bed = team
    # All VMs on the first uplink, 84 % of it.
    service.place(bed, 0, 0, 0, 1)
    first, second = (uplink.name for uplink in bed.uplinks)
    now, then = (0.84, 0.0), (0.50, 0.34)

    def as_loaded(within: float) -> dict[str, Any] | None:
        found, keys = plan(bed, service), ("transmit_ratio", "expected_transmit_ratio")
        seen = [[uplink[key] for uplink in found["uplinks"]] for key in keys]
        expected = [pytest.approx(now, abs=within), pytest.approx(then, abs=within)]
        return found if seen == expected else None

    story = f"loads are {now} and would be {then}"
    planned = wait_until(lambda: as_loaded(0.06), story, interval_s=0.3)
    assert isinstance(planned, dict)
    (moved,) = planned["moves"]
    port = moved["port"]
    assert port == bed.vms[0].port
    assert (moved["source"], moved["target"], moved["reason"]) == (first, second, "threshold")

    others = [vm.port for vm in bed.vms if vm.port != port]

    def is_explained() -> bool:
        before = explain(service, port)
        return (
            (before["uplink"], before["against"], before["target"]) == (first, "moves", second)
        ) and [explain(service, name)["against"] for name in others] == ["another-first"] * 2

    wait_until(is_explained, "one moves, and the others would after it", interval_s=0.3)
    assert set(service.bindings(bed).values()) == {first, second}, "LOCAL alone is on the second"

    # What was moved is judged by the loads of this moment.
    wait_until(lambda: as_loaded(0.1), story, interval_s=0.3)
    last, move = plan(bed, service)["id"], f"{port}: {first} -> {second}"
    assert f"--plan {last}" in service.do("plan", bed.bridge)
    other = service.command("apply", "--plan", "0123abcd")
    assert (other.returncode, other.stdout) == (1, "")
    assert says(other.stderr, "0123abcd", bed.bridge, last, f"ovs-lbt plan {bed.bridge}")
    assert says(service.do("apply", "--plan", last, "--dry-run"), "would move", move)
    assert service.bindings(bed)[port] == first
    assert move in service.do("apply", "--plan", last)
    assert service.bindings(bed)[port] == second

    def as_expected() -> bool:
        shown = [u["utilization_ratio"] for u in service.show_json(bed.bridge)["uplinks"]]
        return shown == [pytest.approx(0.50, abs=0.05), pytest.approx(0.34, abs=0.04)]

    wait_until(as_expected, "the loads of the uplinks are those that were expected")
    after = explain(service, port)
    assert (after["uplink"], after["reason"]) == (second, "threshold")
    assert after["last_move"]["before_ratio"][first] == pytest.approx(0.84, abs=0.1)
    assert after["last_move"]["expected_ratio"][first] == pytest.approx(0.50, abs=0.1)
    wait_until(lambda: plan(bed, service)["moves"] == [], "no move is planned", interval_s=0.3)
    wait_until(lambda: explain(service, port)["against"] == "below-threshold", "and that is why")
    again = service.command("apply", bed.bridge)
    assert again.returncode == 0 and says(again.stdout, bed.bridge, "no moves")
