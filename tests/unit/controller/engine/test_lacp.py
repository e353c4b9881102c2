"""LACP: which member is left, what is done while it is not negotiated, what goes with what."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import DeliverFrame, SendFrame
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow
from controller.config.values import BridgeConfig
from controller.dataplane.frames import rarp
from controller.dataplane.tables import delivery_group_id
from tests.said import says
from tests.unit.controller.engine.told import shown
from tests.unit.fake_switch import World, done, moves, refusal, reports, world
from tests.unit.rows import (
    bond,
    bridge,
    host,
    interface,
    ours,
    port,
    two_uplinks,
    with_ids,
    with_interface,
    with_lacp,
    without_us,
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


def test_without_lacp_the_next_uplink_takes_over_when_the_first_fails() -> None:
    here = gives_up(started())
    here.set_link(1, up=False).run_for(1)
    assert set(here.bindings().values()) == {"eth2"}


def test_a_restart_of_the_service_meanwhile_loses_no_home() -> None:
    here = gives_up(started(negotiated("load-based", threshold="100")))
    here.run_for(10)
    stored = {name: home for name, home in here.stored_bindings().items() if home}
    assert stored == SPREAD
    here.restart_service().run_for(2)
    assert here.bindings() == ON_ONE
    hears_again(here).run_for(10)
    assert here.bindings() == SPREAD


def test_a_policy_set_meanwhile_counts_as_soon_as_lacp_is_back() -> None:
    here = gives_up(started(negotiated("explicit")))
    here.write_keys(policy="originating-port").run_for(1)
    assert here.bindings() == ON_ONE
    assert status(here)[0] == "originating-port"
    hears_again(here).run_for(10)
    assert here.bindings() == SPREAD


def test_a_bond_that_does_not_go_on_without_lacp_changes_nothing() -> None:
    here = started(with_lacp(host("originating-port"), "eth1", "eth2", falls_back=False))
    here.write(with_lacp(here.rows["br0"], falls_back=False))
    here.set_link(1, up=False).set_link(2, up=False).run_for(10)
    assert status(here) == ("originating-port", "lacp", False)


def test_an_observed_bond_is_left_alone() -> None:
    here = started(negotiated(mode="observe"))
    gives_up(here).run_for(10)
    assert here.applied() == [] and here.bindings() == SPREAD


def test_show_says_that_lacp_has_fallen_back() -> None:
    here = gives_up(started())
    assert "LACP is not negotiated" in done(here.ask("show", "br0"))
    asked = {"policy": "originating-port", "teaming": "lacp", "fallen_back": True}
    assert asked.items() <= shown(here).items()
    (warning,) = reports(here, "warning")
    assert says(warning, "br0: LACP is not negotiated", "; configure LACP on the upstream switch")


# ---- a member that loses it ------------------------------------------------------------


def test_a_member_that_loses_lacp_is_left_and_waits_when_it_is_back() -> None:
    here = started(negotiated(failback_delay_s="10"))
    here.set_link(2, up=False).run_for(5)
    assert here.bindings() == ON_ONE
    assert moves(here) == {"failover": 2}
    assert [u.up for u in here.status.uplinks] == [True, False]
    here.set_link(2, up=True).run_for(9)
    assert here.bindings() == ON_ONE
    here.run_for(2)
    assert here.bindings() == SPREAD


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


# ---- what goes with what ---------------------------------------------------------------

ETH1, ETH2 = interface("eth1", 1), interface("eth2", 2)
PLAIN_UPLINKS = bridge(*two_uplinks(), ids=ours(policy="explicit", uplinks="eth1,eth2"))
BOND = bridge(bond(ETH1, ETH2), ids=ours(policy="explicit"))
LACP_OFF = bridge(bond(ETH1, ETH2, lacp="off"), ids=ours(policy="explicit"))
LACP_ACTIVE = bridge(bond(ETH1, ETH2, lacp="active"), ids=ours(policy="explicit"))
LACP_PASSIVE = bridge(bond(ETH1, ETH2, lacp="passive"), ids=ours(policy="explicit"))
GOES = [
    (PLAIN_UPLINKS, "switch-independent"),
    (PLAIN_UPLINKS, "static"),
    (BOND, "switch-independent"),
    (BOND, "static"),
    (LACP_OFF, "static"),
    (LACP_ACTIVE, "lacp"),
    (LACP_PASSIVE, "lacp"),
]
NEEDS_LACP = "use a bond with lacp active or passive, or teaming switch-independent or static"
IS_ONE_LINK = "use lacp, because the upstream switch treats the members as one link"
GOES_NOT = [
    (PLAIN_UPLINKS, "lacp", "lacp is not possible on plain uplinks", NEEDS_LACP),
    (BOND, "lacp", "lacp is not possible on bond bond0 with lacp off", NEEDS_LACP),
    (LACP_OFF, "lacp", "lacp is not possible on bond bond0 with lacp off", NEEDS_LACP),
    (LACP_ACTIVE, "static", "static is not possible on bond bond0 with lacp active", IS_ONE_LINK),
    (
        LACP_PASSIVE,
        "switch-independent",
        "switch-independent is not possible on bond bond0 with lacp passive",
        IS_ONE_LINK,
    ),
]


def with_teaming(row: BridgeRow, teaming: str) -> BridgeConfig:
    return read_bridge(with_ids(row, teaming=teaming))


@pytest.mark.parametrize(("row", "teaming"), GOES)
def test_a_teaming_that_works(row: BridgeRow, teaming: str) -> None:
    config = with_teaming(row, teaming)
    assert (config.teaming, config.errors) == (teaming, ())


@pytest.mark.parametrize(("row", "teaming", "found", "expected"), GOES_NOT)
def test_a_teaming_that_cannot_work_is_refused_or_an_error_and_the_last_good_one_stays(
    row: BridgeRow, teaming: str, found: str, expected: str
) -> None:
    text = f"Bridge br0 ovs-lbt-teaming: {found}; {expected}"
    here = world(without_us(row)).start()
    uplinks = {"uplinks=eth1,eth2"} if row is PLAIN_UPLINKS else set()
    assert refusal(here.ask("attach", "br0", f"teaming={teaming}", *uplinks)) == text
    assert not here.rows["br0"].attached
    here = world(row).start()
    assert refusal(here.ask("set", "bridge", "br0", f"teaming={teaming}")) == text
    assert "ovs-lbt-teaming" not in here.rows["br0"].external_ids

    config = with_teaming(row, teaming)
    assert [str(e) for e in config.errors] == [text]
    assert config.teaming == read_bridge(row).teaming

    for good in ("static", "switch-independent"):
        before = with_teaming(row, good)
        if not before.errors:
            after = read_bridge(with_ids(row, teaming=teaming), before)
            assert after.teaming == good
            assert read_bridge(with_ids(row, teaming=teaming), after).teaming == good


def test_a_teaming_that_does_not_fit_the_bond_any_more_is_no_last_good_one() -> None:
    before = with_teaming(LACP_ACTIVE, "lacp")
    after = read_bridge(with_ids(LACP_OFF, teaming="lacp"), before)
    assert after.teaming == "switch-independent"
    assert len(after.errors) == 1
