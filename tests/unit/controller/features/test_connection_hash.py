"""The hash of connections: dp_hash once the switch has the group for it, multipath until then."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.engine_commands import AddSelectGroup, Apply, Report
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import EMPTY, Multipath, ToGroup
from controller.features.connection_hash import OFFLOADED
from controller.features.feature import RETRY_AFTER_S
from tests.said import says
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import host, ours, with_ids

GROUP_ID = SELECT_GROUP.group_id
REFUSAL = "the switch does not support OpenFlow15; add OpenFlow15 to the bridge's protocols"


def on_a_bond(
    policy: str = "dynamic", connection_hash: str | None = None, hw_offload: bool = False
) -> World:
    row = host(policy, vms=("vnet0", "vnet1"), teaming="switch-independent")
    if connection_hash is not None:
        row = with_ids(row, connection_hash=connection_hash)
    return world(replace(row, hw_offload=hw_offload))


def asked(here: World) -> int:
    return len(here.commands(AddSelectGroup))


def uses_group(here: World) -> bool:
    """Whether flows send connections to the group. Fragments are hashed by multipath either way."""
    installed = here.switch.installed
    users = [f for f in installed.flows.values() if ToGroup(GROUP_ID) in f.actions]
    assert bool(users) <= (GROUP_ID in installed.groups)
    return bool(users)


def uses_multipath(here: World) -> bool:
    flows = here.switch.installed.flows.values()
    return any(isinstance(action, Multipath) for flow in flows for action in flow.actions)


def shown(here: World) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(text(here, "--json"))["bridges"][0]
    return found


def told(here: World) -> dict[str, str]:
    return shown(here)["connection_hash"]


def text(here: World, *options: str) -> str:
    return done(here.ask("show", "br0", *options))


def assert_multipath(here: World, why: str, silent: str = "328 ms in emulation") -> None:
    """Multipath is in use, and people and programs are told why and what it costs."""
    found = told(here)
    assert (found["used"], found["why"]) == ("multipath", why)
    cost = f"interrupts traffic for {silent} (docs/guide/datapaths.md, Many connections)"
    assert cost in found["cost"]
    shown_once = " ".join(text(here).split())
    assert f"connections are hashed by multipath: {why}; {found['cost']}" in shown_once


def test_without_the_key_nothing_changes() -> None:
    here = on_a_bond().start().run_for(100)
    assert asked(here) == 0 and not uses_group(here)
    assert_multipath(here, "connection-hash is multipath")


def test_the_cost_is_that_of_the_datapath() -> None:
    row = replace(on_a_bond().rows["br0"], in_userspace=True)
    assert_multipath(world(row).start().run_for(5), "connection-hash is multipath", "48 ms")


def test_attach_and_check_tell_what_multipath_costs() -> None:
    row = on_a_bond(connection_hash="multipath").rows["br0"]
    here = world(replace(row, external_ids=ours(connection_hash="multipath"))).start()
    attached = done(here.ask("attach", "br0", "policy=dynamic"))
    cost = told(here)["cost"]
    expected = f"connections are hashed by multipath: connection-hash is multipath; {cost}"
    assert f"note: {expected}" in attached.splitlines()
    checked = json.loads(done(here.ask("check", "--json")))
    found = [one for one in checked["findings"] if one["text"] == expected]
    assert [(one["check"], one["severity"]) for one in found] == [("connection-hash", "note")]


def test_nothing_is_said_of_a_cost_that_goes_with_the_next_change() -> None:
    here = on_a_bond(connection_hash="auto")
    here.switch.holds_answers = True
    here.start().run_for(1)
    why = "the switch does not have the select group for dp_hash yet"
    assert told(here) == {"used": "multipath", "why": why}


@pytest.mark.parametrize("wanted", ["auto", "dp_hash"])
def test_the_group_comes_behind_our_flows_and_before_those_that_use_it(wanted: str) -> None:
    here = on_a_bond(connection_hash=wanted).start().run_for(5)
    order = [type(c) for _, c in here.log if isinstance(c, Apply | AddSelectGroup)]
    at = order.index(AddSelectGroup)
    assert Apply in order[:at] and Apply in order[at:] and asked(here) == 1
    assert uses_group(here) and uses_multipath(here)
    assert told(here) == {"used": "dp_hash", "why": f"connection-hash is {wanted}"}, "and no cost"
    expected = f"connections are hashed by dp_hash: connection-hash is {wanted}"
    assert expected in text(here)


def test_no_bundle_has_the_group() -> None:
    here = on_a_bond(connection_hash="dp_hash").start().run_for(30)
    for _, changes in here.applied():
        groups = (*changes.add_groups, *changes.modify_groups)
        assert SELECT_GROUP not in groups


def test_a_restarted_service_only_gives_the_group_its_method_again() -> None:
    """OpenFlow 1.3 does not show whether it has one, and Open vSwitch's scripts restore it without."""
    here = on_a_bond(connection_hash="dp_hash").start().run_for(5).restart_service()
    here.run_for(30)
    assert asked(here) == 1 and here.commands(Apply) == [] and uses_group(here)


def test_where_the_method_is_refused_to_a_group_that_is_there_multipath_is_used() -> None:
    here = on_a_bond(connection_hash="dp_hash").start().run_for(5)
    here.switch.refuse_select = REFUSAL
    here.restart_service().run_for(5)
    assert not uses_group(here) and uses_multipath(here)
    assert_multipath(here, REFUSAL)


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "group deleted"])
def test_a_switch_that_lost_the_group_gets_it_again(restarted: bool) -> None:
    here = on_a_bond(connection_hash="dp_hash").start().run_for(5)
    if restarted:
        here.restart_switch()
    else:
        del here.switch.groups[GROUP_ID]
        # So does Open vSwitch, with the flows that use a group.
        for key, flow in list(here.switch.flows.items()):
            if ToGroup(GROUP_ID) in flow.actions:
                del here.switch.flows[key]
    here.run_for(15)
    assert asked(here) == 2 and uses_group(here)


def test_a_switch_that_refuses_is_asked_again_and_told_of_once() -> None:
    here = on_a_bond(connection_hash="auto")
    here.switch.refuse_select = REFUSAL
    here.start().run_for(5)
    assert not uses_group(here) and uses_multipath(here) and asked(here) == 1
    assert_multipath(here, REFUSAL)
    here.run_for(2 * RETRY_AFTER_S)
    assert 1 < asked(here) <= 4
    reports = [r for r in here.commands(Report) if REFUSAL in r.text]
    assert len(reports) == 1
    here.switch.refuse_select = None
    here.run_for(2 * RETRY_AFTER_S)
    assert uses_group(here) and told(here)["used"] == "dp_hash"


def test_offload_rules_it_out_unless_it_is_asked_for_by_name() -> None:
    here = on_a_bond(hw_offload=True, connection_hash="auto").start().run_for(30)
    assert asked(here) == 0
    assert_multipath(here, OFFLOADED)
    here = on_a_bond(hw_offload=True, connection_hash="dp_hash").start().run_for(30)
    assert uses_group(here) and told(here)["used"] == "dp_hash"


def test_offload_is_no_reason_where_no_card_can_forward() -> None:
    row = on_a_bond(hw_offload=True, connection_hash="auto").rows["br0"]
    veths = row.with_interfaces(lambda interface: replace(interface, offloads=False))
    here = world(veths).start().run_for(30)
    assert uses_group(here) and told(here)["used"] == "dp_hash"
    assert says(str(told(here)["why"]), "connection-hash is auto", "hw-offload", "eth1, eth2")
    here = world(replace(veths, external_ids=ours(policy="dynamic", connection_hash="dp_hash")))
    assert told(here.start().run_for(5))["why"] == "connection-hash is dp_hash"


def test_only_policies_that_spread_connections_need_it() -> None:
    here = on_a_bond("originating-port", connection_hash="dp_hash").start().run_for(30)
    assert asked(here) == 0
    assert "connection_hash" not in shown(here)


def test_a_policy_that_splits_has_the_group_before_anything_is_split() -> None:
    here = on_a_bond("adaptive", connection_hash="dp_hash").start().run_for(5)
    assert GROUP_ID in here.switch.groups and not uses_group(here)
    assert told(here)["used"] == "dp_hash"


def test_the_key_is_obeyed_while_the_bridge_is_attached() -> None:
    here = on_a_bond().start().run_for(5)
    for wanted in ("dp_hash", "multipath"):
        here.write_keys(connection_hash=wanted).run_for(5)
        there = wanted == "dp_hash"
        assert uses_group(here) is there
        assert (GROUP_ID in here.switch.groups) is there


def test_detach_removes_the_group() -> None:
    here = on_a_bond(connection_hash="dp_hash").start().run_for(5)
    here.ask("detach", "br0")
    here.run_for(5)
    assert here.switch.installed == EMPTY
