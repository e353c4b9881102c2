"""Uplink roles under traffic: a drain that nobody notices, and a standby that steps in."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Uplink, on_beds
from tests.switch.judging import few_lost, judges_time
from tests.switch.service import Service
from tests.switch.traffic import FLOW_PPS, Traffic
from tests.switch.waiting import holds, wait_until

BEDS = [BedSpec(team, 2, (None, None), (None,)) for team in (PLAIN, BALANCE_SLB)]
on_both_beds = on_beds(*BEDS)
on_a_bond = on_beds(*BEDS[1:])
FAILBACK_DELAY_S = 3
# What returns too soon does so at once.
WATCHED_BEFORE_RETURN_S = 0.5
# To which the history tells time.
CLOCK_S = 0.01
# Of one flow: 100 ms, an outage. How little of it is lost is measured in test_failover, beside
# Open vSwitch's own bond: on a busy machine that may lose as much.
LOST_IN_FAILOVER_MAX = 50


@pytest.fixture
def team(attached: Bed, service: Service) -> Iterator[Bed]:
    """The bed with a VM on each uplink, both of them active."""
    bed = attached
    service.place(bed, 0, 1)
    yield bed
    for uplink in bed.uplinks:
        bed.ovs.vsctl("remove", "interface", uplink.name, "external_ids", "ovs-lbt-role")
    bed.set("bridge", bed.bridge, failback_delay_s=1)


@judges_time
@on_both_beds
def test_a_drain_its_maintenance_and_the_return_lose_nothing(team: Bed, service: Service) -> None:
    bed, (first, second) = team, team.uplinks
    with Traffic.of(bed) as traffic:
        traffic.go_on()
        on_first = [p for p, uplink in service.bindings(bed).items() if uplink == first.name]
        answer = service.do("drain", first.name)
        plural = "" if len(on_first) == 1 else "s"
        assert answer == f"{first}: idle, {len(on_first)} VM port{plural} moved\n"
        assert set(service.bindings(bed).values()) == {second.name}
        with bed.ears(first.upstream_end) as ears:
            traffic.go_on()
            carried = [h for h in ears[first.upstream_end].frames() if h.frame_id is not None]
            assert not carried, f"{len(carried)} frames by a drained uplink"
        with bed.cable_pulled(first):
            traffic.go_on()
        service.do("undrain", first.name)
        wait_until(
            lambda: sorted(service.bindings(bed).values()).count(first.name) == len(on_first),
            "those who were there return",
        )
        traffic.go_on()
    assert {p["reason"] for p in service.show_json(bed.bridge)["ports"]} >= {"failback"}
    few_lost(traffic.lost(), 0, FLOW_PPS)


@judges_time
@on_a_bond
def test_a_standby_steps_in_and_gives_back_after_the_delay(team: Bed, service: Service) -> None:
    bed, (active, standby) = team, team.uplinks
    bed.set("bridge", bed.bridge, failback_delay_s=FAILBACK_DELAY_S)
    service.do("set", "interface", standby.name, "role=standby")
    wait_until(lambda: everybody_by(bed, service, active), "all by the active uplink")
    with Traffic.of(bed) as failing:
        failing.go_on()
        bed.pull_cable(active)
        wait_until(lambda: everybody_by(bed, service, standby), "all by the standby uplink")
        failing.go_on()
    with Traffic.of(bed) as returning:
        before, plugged_s = len(service.history(bed)), time.monotonic()
        bed.plug_cable(active)
        wait_until(lambda: bed.carrier(active), f"{active} has its carrier again")

        def stays() -> bool:
            is_there = everybody_by(bed, service, standby)
            # If the machine had no time for this test, they have returned meanwhile.
            return is_there or time.monotonic() >= plugged_s + FAILBACK_DELAY_S

        holds(stays, "nobody returns before the delay is over", WATCHED_BEFORE_RETURN_S)
        wait_until(lambda: everybody_by(bed, service, active), "all by the active uplink again")
        returning.go_on()
    told = service.history(bed)[before:]
    (up_at,) = (entry["at"] for entry in told if entry["event"] == "link-up")
    returned_at = min(entry["at"] for entry in told if entry["event"] == "moved")
    assert returned_at - up_at >= FAILBACK_DELAY_S - CLOCK_S, "a snap-back"
    few_lost(returning.lost(), 0, FLOW_PPS)
    few_lost(failing.lost(), LOST_IN_FAILOVER_MAX, FLOW_PPS)


def everybody_by(bed: Bed, service: Service, uplink: Uplink) -> bool:
    shown = set(service.bindings(bed).values()) == {uplink.name}
    return shown and set(map(tuple, bed.homes().values())) == {(uplink.name,)}
