"""Over a bond, NORMAL floods to the ports that we do not deliver to, and to no others."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import Apply, SetPortFlags
from controller.api.events import PortRemoved, PortState
from controller.bridge.installation import AUDIT_INTERVAL_S
from controller.dataplane import flooding
from controller.dataplane.flooding import held, is_held
from controller.dataplane.specs import GroupSpec
from controller.dataplane.tables import Table, delivery_group_id
from controller.features.no_flood import CLEARED_FOR_S
from tests.unit.controller.story import Story
from tests.unit.fake_switch import World, world
from tests.unit.rows import bridge, host, port

VMS = {10, 11}


class NoFloodStory(Story):
    def do_floods(self, floods: str) -> None:
        """Whether NORMAL is given what uplinks flood."""
        assert (flooding.no_flood(self.switch.installed) is not None) is (floods == "yes")

    def do_cleared(self, *names: str) -> None:
        """The VM ports whose flag another program has cleared lately."""
        assert self.bridge.no_flood.cleared(self.now_s) == [*names]


TEAM = "policy=originating-port vms=2"
BOND = f"bond {TEAM}"
BETWEEN = "sent Apply/SetPortFlags Apply SetPortFlags Apply"
STORIES = {
    "set between two bundles, and never while NORMAL floods": f"""{BOND} | {BETWEEN} | flags vnet0 vnet1
        | floods yes""",
    "a service that restarts makes sure and changes nothing": f"""{BOND} | restart
        | sent Apply/SetPortFlags SetPortFlags | run 100 | unchanged""",
    "a flag that another program clears": f"""{BOND} | run 1 | watch | flagged vnet0
        | run {AUDIT_INTERVAL_S} | flags vnet0 vnet1 | unchanged | warned …no-flood on vnet1…
        | cleared vnet1 | run {CLEARED_FOR_S + 1} | cleared""",
    "a VM port that NORMAL has carried is announced before its address is forgotten": f"""{BOND} | watch
        | from-normal 12 52:54:00:00:00:01 | add vnet2 12 | run 0.1 | announced vnet2
        | sent Apply/SetPortFlags/ReadLearned/SendFrame Apply Apply SetPortFlags ReadLearned SendFrame
        Apply | flags vnet0 vnet1 vnet2""",
    "given back to NORMAL before the pipeline goes": f"""{BOND} | watch | do detach br0 | {BETWEEN}
        | flags | empty""",
    "a switch that refuses": """bond unattached vms=2 | refuse flags no | watch | do attach br0 | run 20
        | floods no | sent SetPortFlags SetPortFlags SetPortFlags | do detach br0 | empty | keys br0""",
    "plain uplinks": f"plain {TEAM} | del vnet0 | run 100 | sent SetPortFlags",
}


@pytest.mark.parametrize("story", STORIES)
def test_no_flood(story: str) -> None:
    NoFloodStory(STORIES[story]).tell()


def attached() -> World:
    return world(host("originating-port", vms=("vnet0", "vnet1"))).start()


def flooded(here: World) -> bool:
    """Whether NORMAL is given what uplinks flood."""
    return flooding.no_flood(here.switch.installed) is not None


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
