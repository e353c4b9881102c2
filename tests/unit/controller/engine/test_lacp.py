"""LACP: hashed VM ports while it is not negotiated, and what LAGs need no learning packets for."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import DeliverFrame, SendFrame
from controller.dataplane.frames import rarp
from tests.unit.controller.engine.test_scenarios import LACP, LACP_AGAIN, NO_LACP
from tests.unit.controller.story import Story, tell


def bucket_homes(here: Story) -> dict[str, str]:
    homes = here.bridge.placing.planned.by_unit()
    return {unit: uplink for unit, uplink in homes.items() if "/" in unit}


def test_hashed_vm_ports_and_port_groups_share_it_too_and_their_buckets_are_as_before() -> None:
    here = tell(f"{LACP} policy=ip-hash vnet1.policy=source-mac | run 10")
    before = bucket_homes(here)
    assert len(set(before.values())) == 2
    for step in f"{NO_LACP} | bound 1111".split(" | "):
        here.carry_out(step)
    assert bucket_homes(here) == {}
    policies = {p.port.name: p.port.policy for p in here.status.ports}
    assert (policies["vnet0"], policies["vnet1"]) == ("ip-hash", "source-mac")
    for step in f"{LACP_AGAIN} | run 10".split(" | "):
        here.carry_out(step)
    assert bucket_homes(here) == before


@pytest.mark.parametrize("teaming", ["static", "lacp"])
def test_no_learning_packet_leaves_by_a_lag(teaming: str) -> None:
    """Neither at a move nor at a failover, nor when a VM is taken over or given back."""
    mac = "52:54:00:00:00:01"
    here = tell(
        f"""{teaming} policy=originating-port failback-delay-s=1 | unlearn | learn vnet0 {mac} 0
        | run 10 | watch | do move vnet0 eth2 | run 5 | down eth2 | run 5 | up eth2 | run 10
        | packets 0 | from-normal 14 {mac} | add vnet4 14 | run 5 | do set bridge br0 mode=observe
        | run 5"""
    )
    sent = {c.frame for c in here.commands(SendFrame)}
    assert sent == {rarp(mac, to_itself=True)}, "by these only our own switch learns"
    assert not here.commands(DeliverFrame)
