"""LACP: who hears broadcasts while it is not negotiated, and when VMs are announced."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import DeliverFrame, SendFrame
from controller.config.rows import BridgeRow
from controller.dataplane.frames import rarp
from controller.dataplane.tables import delivery_group_id
from tests.said import says
from tests.unit.controller.engine.told import shown
from tests.unit.fake_switch import World, done, reports, world
from tests.unit.rows import (
    host,
    port,
    with_ids,
    with_interface,
    with_lacp,
)

MAC = "52:54:00:00:00:01"
VM_PORTS = range(10, 14)
SPREAD = {"vnet0": "eth1", "vnet1": "eth2", "vnet2": "eth1", "vnet3": "eth2"}
ON_ONE = dict.fromkeys(SPREAD, "eth1")


def negotiated(policy: str = "originating-port", **keys: str) -> BridgeRow:
    row = with_ids(host(policy, failback_delay_s="1"), **keys)
    return with_lacp(row, "eth1", "eth2", falls_back=True)


def started(row: BridgeRow | None = None) -> World:
    here = world(row or negotiated()).start()
    here.switch.learned = ((10, MAC, 0), (11, MAC, 0))
    here.run_for(10)
    here.log.clear()
    return here


def gives_up(here: World) -> World:
    """No member hears its partner any more: they are left, and used again without LACP."""
    here.set_link(1, up=False).set_link(2, up=False).run_for(3)
    here.write(with_lacp(here.rows["br0"], falls_back=True))
    return here.set_link(1, up=True).set_link(2, up=True)


def hears_again(here: World) -> World:
    here.write(with_lacp(here.rows["br0"], "eth1", "eth2", falls_back=True))
    here.set_link(1, up=False).set_link(2, up=False)
    return here.set_link(1, up=True).set_link(2, up=True)


def status(here: World) -> tuple[str, str, bool]:
    config = here.status.config
    return config.policy, config.teaming, here.status.fallen_back


def heard_from(here: World, uplink_index: int) -> set[int]:
    """The VM ports that hear broadcasts by an uplink while both are up."""
    groups = here.switch.groups
    first = {port: groups[delivery_group_id(port, uplink_index)].buckets[0] for port in VM_PORTS}
    return {port for port, bucket in first.items() if bucket.actions}


def bucket_homes(here: World) -> dict[str, str]:
    homes = here.bridge.placing.planned.by_unit()
    return {unit: uplink for unit, uplink in homes.items() if "/" in unit}


# ---- fallback --------------------------------------------------------------------------


def test_a_negotiated_lag_is_heard_by_every_member() -> None:
    here = started()
    assert here.bindings() == SPREAD
    assert heard_from(here, 0) == heard_from(here, 1) == {10, 11, 12, 13}
    assert status(here) == ("originating-port", "lacp", False)


def test_what_is_needed_without_lacp_is_there_before_members_are_used_again() -> None:
    here = started()
    here.set_link(1, up=False).set_link(2, up=False).run_for(0.1)
    assert heard_from(here, 0) == {10, 11, 12, 13}
    assert heard_from(here, 1) == set(), "they would hear each broadcast twice"


def test_a_member_that_is_up_is_not_believed_before_the_database_can_know() -> None:
    """It is up again as it goes on without its partner, and is still said to hear it."""
    here = started()
    here.set_link(1, up=False).set_link(2, up=False).run_for(3)
    here.set_link(1, up=True).set_link(2, up=True).run_for(0.5)
    assert (heard_from(here, 0), heard_from(here, 1)) == ({10, 11, 12, 13}, set())
    here.run_for(1)
    assert heard_from(here, 1) == {10, 11, 12, 13}, "it did hear its partner"


def test_a_member_that_is_down_and_hopes_for_its_partner_is_none_that_hears_it() -> None:
    here = gives_up(started()).run_for(10)
    here.set_link(1, up=False)
    here.write(with_lacp(here.rows["br0"], "eth1", falls_back=True)).run_for(10)
    assert status(here)[2]
    assert set(here.bindings().values()) == {"eth2"}


@pytest.mark.parametrize("policy", ["originating-port", "load-based"])
def test_without_lacp_all_vm_ports_share_the_first_uplink_and_go_home_afterwards(
    policy: str,
) -> None:
    here = gives_up(started(negotiated(policy)))
    assert here.bindings() == ON_ONE
    assert (heard_from(here, 0), heard_from(here, 1)) == ({10, 11, 12, 13}, set())
    assert status(here) == (policy, "lacp", True)

    hears_again(here).run_for(10)
    assert here.bindings() == SPREAD
    assert heard_from(here, 0) == heard_from(here, 1) == {10, 11, 12, 13}
    assert status(here) == (policy, "lacp", False)


def test_hashed_vm_ports_and_port_groups_share_it_too_and_their_buckets_are_as_before() -> None:
    row = with_interface(negotiated("ip-hash"), "vnet1", policy="source-mac")
    here = started(row)
    before = bucket_homes(here)
    assert len(set(before.values())) == 2
    gives_up(here)
    assert here.bindings() == ON_ONE
    assert bucket_homes(here) == {}
    policies = {p.port.name: p.port.policy for p in here.status.ports}
    assert (policies["vnet0"], policies["vnet1"]) == ("ip-hash", "source-mac")
    hears_again(here).run_for(10)
    assert bucket_homes(here) == before


def test_show_says_that_lacp_has_fallen_back() -> None:
    here = gives_up(started())
    assert "LACP is not negotiated" in done(here.ask("show", "br0"))
    asked = {"policy": "originating-port", "teaming": "lacp", "fallen_back": True}
    assert asked.items() <= shown(here).items()
    (warning,) = reports(here, "warning")
    assert says(warning, "br0: LACP is not negotiated", "; configure LACP, in active mode,")


# ---- learning packets ------------------------------------------------------------------


def test_all_vms_are_told_of_when_lacp_goes_and_when_it_is_back() -> None:
    """Members carry nothing in between, when a VM may have come that nobody has heard of."""
    here = gives_up(started()).run_for(10)
    assert {ofport for _, ofport in here.frames()} == {10, 11}
    here.log.clear()
    hears_again(here).run_for(10)
    sent = [(c.ofport, c.frame) for c in here.commands(SendFrame)]
    assert sent == [(10, rarp(MAC)), (11, rarp(MAC))] * 3
    assert not status(here)[2]


def test_learning_packets_of_single_members_end_when_lacp_is_back() -> None:
    here = gives_up(started()).run_for(10)
    here.set_link(1, up=False).run_for(0.5)
    here.log.clear()
    here.write(with_lacp(here.rows["br0"], "eth1", "eth2", falls_back=True)).run_for(10)
    assert here.frames() == []


@pytest.mark.parametrize("teaming", ["static", "lacp"])
def test_no_learning_packet_leaves_by_a_lag(teaming: str) -> None:
    """Neither at a move nor at a failover, nor when a VM is taken over or given back."""
    row = host("originating-port", teaming=teaming, failback_delay_s="1")
    lag = with_lacp(row, "eth1", "eth2", falls_back=False) if teaming == "lacp" else row
    here = started(lag)
    here.ask("move", "vnet0", "eth2")
    here.run_for(5)
    assert here.frames() == [] == here.commands(DeliverFrame)
    here.set_link(2, up=False).run_for(5).set_link(2, up=True).run_for(10)
    assert here.frames() == []

    here.switch.from_normal = ((14, MAC, 0),)
    here.add_port(port("vnet4", 14)).run_for(5)
    here.ask("set", "bridge", "br0", "mode=observe")
    here.run_for(5)
    sent = {c.frame for c in here.commands(SendFrame)}
    assert sent == {rarp(MAC, to_itself=True)}, "by these only our own switch learns"
