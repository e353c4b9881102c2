"""A bridge from take-over to the end, through the engine: links, operators, refusals, VM ports.

Tests of one subject are beside this file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.api.engine_commands import (
    Apply,
    ReadInstalled,
    ReadLearned,
)
from controller.api.events import (
    BundleDone,
    CommandFailed,
    InstalledRead,
    PortChanged,
    PortRemoved,
    PortState,
)
from controller.api.status import BridgeStatus
from controller.bridge import status
from controller.bridge.bridge import Bridge
from controller.bridge.installation import MOST_EXPECTED, REVALIDATED_AFTER_S
from controller.config.rows import PortRow
from controller.dataplane import tables
from controller.dataplane.specs import EMPTY, Changes
from tests.unit.controller.engine.told import desired, shown
from tests.unit.fake_switch import (
    PLACED,
    World,
    world,
)
from tests.unit.rows import bridge, host, interface, ours, port

# ---- taking a bridge over --------------------------------------------------------------


def test_a_bridge_that_is_attached_at_the_start_gets_the_whole_pipeline_at_once() -> None:
    here = world(host()).start()

    first, after_flags = here.applied()
    assert first[1].add_flows and first[1].add_groups
    assert not (first[1].modify_groups or first[1].delete_flows or first[1].delete_groups)
    assert len(after_flags[1]) == len(after_flags[1].add_flows)
    assert here.switch.installed == desired(here)
    placed = {"vnet0": "eth1", "vnet1": "eth2", "vnet2": "eth1", "vnet3": "eth2"}
    assert here.bindings() == placed
    assert here.stored_bindings() == {"bond0": None, **placed}


def test_a_flow_that_somebody_removed_is_put_back_and_nothing_else_is_touched() -> None:
    here = world(host()).start()
    here.log.clear()
    flows = here.switch.flows
    missing = flows.pop(next(key for key in flows if key[0] == 5))

    here.run_for(31)

    ((_, changes),) = here.applied()
    assert changes == Changes(add_flows=(missing,))


def test_what_a_vm_port_that_has_come_says_is_read_soon() -> None:
    here = world(host()).start()
    here.run_for(11)
    here.log.clear()
    here.add_port(port("vnet9", 19))
    here.run_for(2.1)
    read = [type(c) for _, c in here.log if isinstance(c, ReadInstalled | ReadLearned)]
    assert read[-2:] == [ReadInstalled, ReadLearned]
    here.log.clear()
    here.run_for(9)
    assert not here.commands(ReadInstalled), "and then as often as ever"


def test_ports_numbered_anew_are_not_taken_for_what_had_the_number_before() -> None:
    """The connection is back before the database says that eth1 and vnet0 are swapped."""
    here = world(host()).start()
    bindings = here.bindings()
    here.disconnect()
    here.switch.flows.clear()
    here.switch.groups.clear()
    eth1, vnet0 = here.switch.ports[1], here.switch.ports[10]
    here.switch.ports |= {1: replace(vnet0, ofport=1), 10: replace(eth1, ofport=10, up=False)}

    here.connect()
    assert here.switch.installed == EMPTY, "an uplink would have been taken for a VM port"

    numbers = {"eth1": 10, "vnet0": 1}
    here.write(
        here.rows["br0"].with_interfaces(lambda i: replace(i, ofport=numbers.get(i.name, i.ofport)))
    )
    assert here.switch.installed == desired(here) != EMPTY
    assert set(here.bindings().values()) == {"eth2"}, "eth1 is the one without a link"
    here.set_link(10, up=True).run_for(46)
    assert here.bindings() == bindings


# ---- failover --------------------------------------------------------------------------


def test_links_that_flap_while_the_switch_does_not_answer_leave_few_moves() -> None:
    here = world(host(failback_delay_s="0")).start()
    before, switch = here.bindings(), here.switch
    switch.holds_answers = True
    for number in range(700):
        here.set_link(1, up=bool(number % 2)).run_for(0.1)
    expected = here.bridge.installation.expected
    assert len(expected) <= MOST_EXPECTED + len(before)
    here.set_link(1, up=False).answer_held().run_for(1)
    assert {*here.bindings().values()} == {"eth2"}
    assert {switch.uplink_of(ofport) for ofport in range(10, 14)} == {2}
    here.set_link(1, up=True).run_for(60)
    assert here.bindings() == before


# ---- what operators ask ----------------------------------------------------------------


def test_who_asks_about_one_bridge_does_not_wait_for_the_status_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []
    as_it_is = status.status

    def look(bridge: Bridge, *told: Any) -> BridgeStatus:
        looked_at.append(bridge.config.name)
        return as_it_is(bridge, *told)

    monkeypatch.setattr(status, "status", look)
    here = World(host(), replace(host(), name="br1")).start()
    assert (shown(here, "br1")["name"], looked_at) == ("br1", ["br1"])


# ---- things that go wrong --------------------------------------------------------------


def test_an_answer_to_a_bundle_of_a_connection_before_is_ignored() -> None:
    here = world(host()).start()
    here.switch.holds_answers = True
    here.ask("move", "vnet0", "eth2")
    (bundle,) = here.commands(Apply)[PLACED:]
    here.disconnect().connect()
    here.say(BundleDone("br0", bundle.bundle_id))
    assert here.replies == {}
    here.answer_held()
    assert 1 in here.replies


def test_events_of_a_bridge_that_is_not_ours_are_ignored() -> None:
    here = world(host()).start()
    here.log.clear()
    here.say(PortRemoved("br9", 1), InstalledRead("br9", (), ()), BundleDone("br9", 1))
    here.say(CommandFailed("br9", ValueError("late")))
    assert here.log == []


def test_the_database_is_read_and_never_changed_in_place() -> None:
    row = host()
    before = repr(row)
    here = world(row).start()
    here.do("pin vnet0 eth2").run_for(40)
    assert repr(row) == before


# ---- VM ports come and go --------------------------------------------------------------


def test_a_port_number_used_again_does_not_inherit_the_traffic_of_another_vm() -> None:
    here = world(host()).start().run_until(40)
    here.remove_port("vnet0")
    here.switch.born_s[14] = here.switch.born_s[10] = here.now_s
    here.add_port(port("vnet4", 10)).run_for(3)
    assert here.port_status("vnet4").load.tx_bps == 0


# ---- capacity and time -----------------------------------------------------------------


def test_the_capacity_is_what_is_known_best() -> None:
    """The operator's value, then QoS, then the switch's current speed, then the database's."""
    ids = ours(policy="explicit", uplinks="eth1,eth2")
    slow = interface("eth1", 1, link_speed_bps=1e9)
    told = interface("eth1", 1, ours(capacity_mbps="500"), link_speed_bps=1e9)

    def capacity_bps(eth1: PortRow, speed_bps: float) -> float:
        here = world(bridge(eth1, port("eth2", 2), ids=ids), speed_bps=speed_bps).start()
        return here.bridge.placing.uplinks()[0].capacity_bps

    assert capacity_bps(PortRow("eth1", (told,), qos_max_rate_bps=2e9), 40e9) == 500e6
    assert capacity_bps(PortRow("eth1", (slow,), qos_max_rate_bps=2e9), 40e9) == 2e9
    assert capacity_bps(PortRow("eth1", (slow,)), 40e9) == 40e9
    assert capacity_bps(PortRow("eth1", (slow,)), 0) == 1e9
    assert capacity_bps(port("eth1", 1), 0) > 0, "something, so that ratios exist"


def test_the_engine_says_when_it_wants_to_be_woken() -> None:
    here = world(host(poll_interval_ms="500")).start()
    assert here.engine.deadline_s() == 0, "the first poll is due at once"
    here.run_until(0.1)
    assert here.engine.deadline_s() == 0.5
    here.disconnect()
    assert here.engine.deadline_s() == float("inf")


def test_a_new_vm_port_is_served_once_it_is_configured_though_not_live_yet() -> None:
    """The switch reports a new port as present first, and as live a moment later."""
    here = world(host()).start()
    here.log.clear()
    state = PortState(14, "vnet4", up=False, speed_bps=0)
    here.switch.ports[14] = state
    here.say(PortChanged("br0", state))
    assert here.applied() == []
    row = here.rows["br0"]
    ports = tuple(sorted((*row.ports, port("vnet4", 14)), key=lambda p: p.name))
    here.write(replace(row, ports=ports))
    assert tables.Group.BINDING.id_of(14) in here.switch.groups


def test_a_vm_that_turns_its_link_off_and_on_delays_no_change() -> None:
    """As the guest of a container can do it: faster than a pause after a failed link takes."""
    here = world(host()).start()
    here.log.clear()
    state = here.switch.ports[12]
    here.set_link(1, up=False)
    for turn in range(20):
        here.say(PortChanged("br0", replace(state, up=turn % 2 == 1)))
        here.run_for(REVALIDATED_AFTER_S / 6)
    assert here.applied(), "the bindings have followed the failed uplink"
