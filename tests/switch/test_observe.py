"""A bridge that is only observed: what is planned is told, and the switch is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.judging import few_lost, judges_time
from tests.switch.service import Service
from tests.switch.traffic import Traffic
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import CATCH_UP_S, Stream

FOREIGN_COOKIE = 0xF0E2
FLOW_PPS = 500
WINDOW_S = 1
# 500 frames a second of 1000 bytes are 4 Mbit/s: each of two flows 40 % of this.
CAPACITY_MBPS = 10
BEDS = [BedSpec(team, 2, (None, None), (None,)) for team in (BALANCE_SLB, ACTIVE_BACKUP, PLAIN)]
on_bonds = on_beds(*BEDS[:2])
on_every_bed = on_beds(*BEDS)


@pytest.fixture
def observed(bed: Bed, service: Service) -> Iterator[Bed]:
    """The bed under load-based, observed, with a short window."""
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=200)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    with service.attached(bed, "--policy", "load-based", "--observe"):
        yield bed


@on_bonds
def test_an_observed_bond_is_untouched_and_told_what_would_move(
    observed: Bed, service: Service
) -> None:
    bed = observed
    bed.ofctl("add-flow", f"cookie={FOREIGN_COOKIE},table=200,priority=1,actions=drop")
    before = flows_and_groups(bed)
    assert len(before[0]) == 2, f"NORMAL and the foreign flow: {before}"
    # Both VMs would be on one uplink, as far as the service knows.
    for vm in bed.vms:
        bed.set("interface", vm.port, pin=bed.uplinks[0].name)
    wait_until(
        lambda: {service.bindings(bed)[vm.port] for vm in bed.vms} == {bed.uplinks[0].name},
        "both VMs are shown where they would be",
    )
    for vm in bed.vms:
        bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "ovs-lbt-pin")
    host = bed.hosts[0]
    flows = [(vm.point, frames.udp(vm.mac, host.mac, frame_bytes=1000)) for vm in bed.vms]
    with Stream(flows, FLOW_PPS, catch_up_s=CATCH_UP_S):
        wait_until(lambda: planned(bed, service, "threshold") >= 1, "a move is planned")
        holds(
            lambda: planned(bed, service, "threshold") == 1,
            "one move suffices, as it counts as made",
            3 * WINDOW_S,
        )
    assert len({service.bindings(bed)[vm.port] for vm in bed.vms}) == 2
    refused = service.command("move", bed.vms[0].port, bed.uplinks[1].name)
    assert refused.returncode == 1 and "is in observe mode; " in refused.stderr
    with bed.cable_pulled(bed.uplinks[0]):
        wait_until(lambda: planned(bed, service, "failover") >= 1, "a failover is planned")
    assert flows_and_groups(bed) == before
    assert service.metric("ovslbt_moves_applied_total", bridge=bed.bridge) == 0
    assert service.metric("ovslbt_moves_refused_total", bridge=bed.bridge) == 1
    assert "observe mode" in service.do("show", bed.bridge)
    bed.ofctl("del-flows", f"cookie={FOREIGN_COOKIE}/-1,table=200")


@judges_time
@on_every_bed
def test_from_observe_to_enforce_and_back(observed: Bed, service: Service) -> None:
    bed = observed
    before = flows_and_groups(bed)
    lost: dict[str, int] = {}
    for mode in ("enforce", "observe"):
        with Traffic(bed) as traffic:
            traffic.go_on()
            service.do("set", "bridge", bed.bridge, f"mode={mode}")
            wait_until(
                lambda: (
                    flows_and_groups(bed) == before
                    if bed.spec.team == PLAIN or mode == "observe"  # noqa: B023
                    else len(flows_and_groups(bed)[1]) > 0
                ),
                f"the switch has what {mode} asks for",
            )
            traffic.go_on()
        lost |= {f"{mode}: {flow}": count for flow, count in traffic.lost().items()}
    few_lost(lost, 0, FLOW_PPS)


@on_bonds
def test_normal_knows_the_vms_when_it_takes_over(observed: Bed, service: Service) -> None:
    bed = observed
    service.do("set", "bridge", bed.bridge, "mode=enforce")
    wait_until(lambda: flows_and_groups(bed)[1], "the switch has what enforce asks for")
    service.wait_ready(bed)
    bed.introduce()
    # What NORMAL had learned is forgotten with it.
    wait_until(lambda: not bed.normal_knows_vms(), "what is to tell it: the test or the service")
    service.do("set", "bridge", bed.bridge, "mode=observe")
    wait_until(bed.normal_knows_vms, "NORMAL knows where the VMs are")


def flows_and_groups(bed: Bed) -> tuple[list[str], list[str]]:
    """All there is on the bridge, without statistics, and without what the switch learned."""
    flows = bed.ofctl("dump-flows", "--no-stats").splitlines()
    groups = bed.ofctl("dump-groups").splitlines()[1:]
    learned = "cookie=0x6c627403"
    return sorted(f.strip() for f in flows if learned not in f), sorted(g.strip() for g in groups)


def planned(bed: Bed, service: Service, reason: str) -> float:
    return service.metric("ovslbt_moves_planned_total", bridge=bed.bridge, reason=reason)
