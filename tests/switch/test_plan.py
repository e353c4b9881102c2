"""plan, apply and explain on a real bridge with real traffic, as an operator types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.said import says
from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import Stream

CAPACITY_MBPS = 100
POLL_INTERVAL_MS = 200
# A flow's rate is set by the size of its frames, so that few frames make much traffic.
FLOW_PPS = 500
FRAME_BYTES_MAX = 9000
# The policy by itself does nothing as long as these tests take.
WINDOW_S = 300
# The first VM is the busiest that the other uplink can take.
RATES_MBPS = (34, 26, 24)
# Loads are known some seconds after the last move.
KNOWN_WITHIN_S = 60.0
SPEC = BedSpec(PLAIN, 2, (None,) * 3, (None,), mtu_bytes=FRAME_BYTES_MAX)

pytestmark = pytest.mark.parametrize("bed", [SPEC], ids=str, indirect=True)


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """Two uplinks of 100 Mbit/s, and three VMs that send all the time."""
    session_service.start()
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=POLL_INTERVAL_MS)
    bed.set("bridge", bed.bridge, failback_delay_s=1)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    session_service.attach(bed, "--policy", "load-based")
    for uplink in bed.uplinks:
        bed.shape(uplink, CAPACITY_MBPS * 1e6)
    host, flows = bed.hosts[0], []
    for vm, rate_mbps in zip(bed.vms, RATES_MBPS, strict=True):
        size = round(rate_mbps * 1e6 / 8 / FLOW_PPS)
        flows.append((vm.point, frames.udp(vm.mac, host.mac, frame_bytes=size)))
    with Stream(flows, FLOW_PPS):
        yield bed
    session_service.do("detach", bed.bridge)


@pytest.fixture
def crowded(team: Bed, service: Service) -> Bed:
    """All VMs on the first uplink, 84 % of it, and the loads since then are known."""
    bed = team
    service.place(bed, 0, 0, 0, 1)
    return bed


def plan(bed: Bed, service: Service) -> dict[str, Any]:
    """What `plan` shows once it knows the loads."""

    def known() -> dict[str, Any] | None:
        (found,) = json.loads(service.do("plan", bed.bridge, "--json"))["bridges"]
        (policy,) = found["policies"]
        return found if policy["rest"] != "loads-unknown" else None

    found = wait_until(known, "loads since the last move are known", KNOWN_WITHIN_S, 0.3)
    assert isinstance(found, dict)
    return found


def planned_moves(bed: Bed, service: Service) -> list[dict[str, Any]]:
    """The moves of the first plan that has any: on a busy machine, less may have been sent before."""
    return wait_until(lambda: plan(bed, service)["moves"], "moves are planned", interval_s=0.3)


def explain(service: Service, port: str) -> dict[str, Any]:
    found = json.loads(service.do("explain", port, "--json"))
    assert isinstance(found, dict)
    return found


def ratios(bed: Bed, service: Service) -> list[float]:
    return [u["utilization_ratio"] for u in service.show_json(bed.bridge)["uplinks"]]


def test_what_was_planned_is_applied_and_loads_follow(crowded: Bed, service: Service) -> None:
    bed = crowded
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
    print(service.do("plan", bed.bridge), service.do("explain", port), sep="\n")
    assert set(service.bindings(bed).values()) == {first, second}, "LOCAL alone is on the second"

    # What was moved is judged by the loads of this moment.
    wait_until(lambda: as_loaded(0.1), story, interval_s=0.3)
    assert service.do("apply", bed.bridge) == (
        f"{bed.bridge}: 1 move made\n  {port}: {first} -> {second} (threshold)\n"
    )
    assert service.bindings(bed)[port] == second
    story = "the loads of the uplinks are those that were expected"
    wait_until(
        lambda: (
            ratios(bed, service) == [pytest.approx(0.50, abs=0.05), pytest.approx(0.34, abs=0.04)]
        ),
        story,
    )
    after = explain(service, port)
    assert (after["uplink"], after["reason"]) == (second, "threshold")
    assert after["last_move"]["before_ratio"][first] == pytest.approx(0.84, abs=0.1)
    assert after["last_move"]["expected_ratio"][first] == pytest.approx(0.50, abs=0.1)
    wait_until(lambda: plan(bed, service)["moves"] == [], "no move is planned", interval_s=0.3)
    wait_until(lambda: explain(service, port)["against"] == "below-threshold", "and that is why")
    print(service.do("plan", bed.bridge), service.do("explain", port), sep="\n")
    again = service.command("apply", bed.bridge)
    assert again.returncode == 0 and says(again.stdout, bed.bridge, "no moves")


def test_another_situation_refuses_the_plan(crowded: Bed, service: Service) -> None:
    bed = crowded
    first, second = bed.uplinks
    (moved,) = planned_moves(bed, service)
    other = next(vm for vm in bed.vms if vm.port != moved["port"])

    with bed.cable_pulled(second):
        wait_until(
            lambda: not service.show_json(bed.bridge)["uplinks"][1]["up"], f"{second} shown down"
        )
        found = f"uplink {second}: link down since the plan"
        assert refused(bed, service) == found
    wait_until(
        lambda: service.bindings(bed)[bed.local.port] == second.name, "LOCAL is back on its uplink"
    )

    (again,) = planned_moves(bed, service)
    assert again["port"] == moved["port"], "the same is planned again"
    service.move(other, second)
    found = f"{other.port}: moved from {first} to {second} since the plan"
    assert refused(bed, service) == found
    bindings = service.bindings(bed)
    holds(lambda: service.bindings(bed) == bindings, "nothing moves", 1.0)
    assert bindings[moved["port"]] == first.name
    assert service.metric("ovslbt_moves_refused_total", bridge=bed.bridge, reason="threshold") == 2


def test_an_observed_bridge_is_planned_for_and_left_alone(crowded: Bed, service: Service) -> None:
    bed = crowded
    service.do("set", "bridge", bed.bridge, "mode=observe")

    # Flow counters, which are all there is to go by here, may be half a second behind.
    def observed() -> dict[str, Any] | None:
        found = plan(bed, service)
        return found if found["observed"] and len(found["moves"]) == 1 else None

    planned = wait_until(observed, "a move is planned, on a bridge that is observed")
    assert planned
    done = service.command("apply", bed.bridge)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"ovs-lbt: bridge {bed.bridge}: mode observe -> mode enforce\n",
    )
    port = planned["moves"][0]["port"]
    wait_until(
        lambda: explain(service, port)["said"]["now"].startswith("it would be moved to "),
        "it is explained",
    )
    assert service.bindings(bed)[port] == bed.uplinks[0].name
    service.do("set", "bridge", bed.bridge, "mode=enforce")


def refused(bed: Bed, service: Service) -> str:
    """Why `apply` does nothing: what was found."""
    done = service.command("apply", bed.bridge)
    assert (done.returncode, done.stdout) == (1, ""), f"applied: {done.stdout}"
    found, arrow, expected = done.stderr.partition(" -> ")
    assert (arrow, expected) == (" -> ", f"a new plan: ovs-lbt plan {bed.bridge}\n")
    return found.removeprefix("ovs-lbt: ")
