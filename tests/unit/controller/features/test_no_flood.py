"""Over a bond, NORMAL floods to the ports that we do not deliver to, and to no others."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import (
    Apply,
    Command,
    ReadLearned,
    Report,
    SendFrame,
    SetPortFlags,
)
from controller.api.events import PortRemoved, PortState
from controller.bridge.installation import AUDIT_INTERVAL_S
from controller.dataplane import flooding
from controller.dataplane.flooding import held, is_held
from controller.dataplane.specs import EMPTY, GroupSpec
from controller.dataplane.tables import Table, delivery_group_id
from controller.features.no_flood import CLEARED_FOR_S
from tests.unit.fake_switch import World, world
from tests.unit.rows import bridge, host, port

MAC = "52:54:00:00:00:01"
VMS = {10, 11}


def on_a_bond() -> World:
    return world(host("originating-port", vms=("vnet0", "vnet1")))


def attached() -> World:
    return on_a_bond().start()


def flooded(here: World) -> bool:
    """Whether NORMAL is given what uplinks flood."""
    return flooding.no_flood(here.switch.installed) is not None


def flags_and_bundles(here: World) -> list[Command]:
    return here.commands(SetPortFlags) + here.commands(Apply)


def test_flags_are_set_between_two_bundles_and_never_while_normal_floods() -> None:
    here = attached()
    order = [type(c) for _, c in here.log if isinstance(c, Apply | SetPortFlags)]
    assert order == [Apply, SetPortFlags, Apply]
    assert here.switch.no_flood == VMS
    assert flooded(here)


def test_a_restarted_service_makes_sure_and_changes_nothing() -> None:
    here = attached().restart_service()
    assert [type(c) for c in flags_and_bundles(here)] == [SetPortFlags]
    here.run_for(100)
    assert {type(c) for c in flags_and_bundles(here)} == {SetPortFlags}


@pytest.mark.parametrize("table", [Table.DELIVERY, Table.UPLINK_OUT])
def test_a_restarted_service_restores_only_the_flows_that_are_missing(table: Table) -> None:
    here = attached()
    missing = [key for key in here.switch.flows if key[0] == table]
    for key in missing:
        del here.switch.flows[key]
    here.restart_service()
    (bundle,) = here.commands(Apply)
    assert isinstance(bundle, Apply) and flooded(here)
    added, deleted = bundle.changes.add_flows, bundle.changes.delete_flows
    assert {flow.key for flow in added} == {*missing} and not deleted


def test_a_flag_that_another_program_clears_is_set_again_and_reported() -> None:
    here = attached().run_for(1)
    here.log.clear()
    here.switch.no_flood.remove(11)
    here.run_for(AUDIT_INTERVAL_S)
    assert here.switch.no_flood == VMS
    assert not here.commands(Apply), "the pipeline stays"
    told = [str(report) for report in here.commands(Report) if "warning" in str(report)]
    assert len(told) == 1 and "no-flood on vnet1" in told[0]
    no_flood = here.bridge.no_flood
    assert no_flood.cleared(here.now_s) == ["vnet1"]
    here.run_for(CLEARED_FOR_S + 1)
    assert no_flood.cleared(here.now_s) == []


def test_a_vm_port_that_normal_has_carried_is_announced_before_its_address_is_forgotten() -> None:
    here = attached()
    here.log.clear()
    here.switch.from_normal = ((12, MAC, None), (77, MAC, None))
    here.add_port(port("vnet2", 12))
    here.run_for(0.1)
    kinds = Apply | SetPortFlags | ReadLearned | SendFrame
    order = [type(c) for _, c in here.log if isinstance(c, kinds)]
    assert order == [Apply, Apply, SetPortFlags, ReadLearned, SendFrame, Apply]
    assert here.frames()[0][1] == 12, "port 77 is nobody's we know"
    assert here.switch.no_flood == VMS | {12}


def test_a_vm_port_that_is_new_hears_broadcasts_of_us_when_normal_has_stopped() -> None:
    here = attached()
    here.log.clear()
    here.add_port(port("vnet2", 12))
    here.run_for(0.1)
    applied = [command.changes for _, command in here.log if isinstance(command, Apply)]
    stopping, opening, beginning = applied
    delivering = {delivery_group_id(12, index) for index in range(2)}
    delivers = [g for g in stopping.add_groups if g.group_id in delivering and _delivers(g)]
    closed = {flow for flow in stopping.add_flows if is_held(flow)}
    assert delivers and closed == {held(group) for group in delivers}, "not yet"
    assert set(opening.delete_flows) == closed and len(opening) == len(closed)
    assert not beginning.add_groups + beginning.modify_groups


def _delivers(group: GroupSpec) -> bool:
    return any(bucket.actions for bucket in group.buckets)


def test_the_number_of_a_port_that_went_says_nothing_of_the_next_with_it() -> None:
    here = attached()
    here.switch.no_flood.remove(11)
    here.say(PortRemoved("br0", 11))
    here.run_for(1)
    assert here.switch.no_flood == VMS


def test_a_port_the_switch_does_not_have_yet_is_asked_for_when_it_comes() -> None:
    here = attached()
    row = here.rows["br0"]
    here.write(bridge(*row.ports, port("vnet2", 12), ids=row.external_ids))
    here.run_for(100)
    assert not flooded(here), "a copy too many is worse than one too few"
    audits = 100 / AUDIT_INTERVAL_S
    assert len(here.commands(SetPortFlags)) == 2 + audits, "it is not asked again and again"
    here.switch.ports[12] = PortState(12, "vnet2", up=True, speed_bps=0)
    here.set_link(12, up=True)
    assert flooded(here) and here.switch.no_flood == VMS | {12}


def test_detach_gives_the_ports_back_to_normal_before_the_pipeline_goes() -> None:
    here = attached()
    here.log.clear()
    here.ask("detach", "br0")
    order = [type(c) for _, c in here.log if isinstance(c, Apply | SetPortFlags)]
    assert order == [Apply, SetPortFlags, Apply]
    assert here.switch.no_flood == set()
    assert here.switch.installed == EMPTY


def test_a_switch_that_refuses_costs_late_vms_their_broadcasts_and_nobody_else_anything() -> None:
    here = on_a_bond()
    here.switch.refuse_flags = "no OpenFlow 1.0"
    here.start().run_for(20)
    assert not flooded(here)
    assert len(here.commands(SetPortFlags)) == 1
    here.ask("detach", "br0")
    assert here.switch.installed == EMPTY
    assert here.rows["br0"].external_ids == {}


def test_plain_uplinks_need_no_flags() -> None:
    here = world(host("explicit", plain=True)).start()
    here.remove_port("vnet0").run_for(100)
    assert here.commands(SetPortFlags) == []
