"""What NORMAL gets on a bond, and what is learned from ports that only NORMAL knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Learn
from controller.dataplane.tables import OFPP_NORMAL, Register, Table
from controller.dataplane.team import Team
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import teams, vm_numbers
from tests.unit.controller.dataplane.walking import from_port
from tests.unit.simulator import frame, through_group, through_table


@given(teams())
def test_an_unknown_port_is_dropped_or_left_to_what_is_underneath(team: Team) -> None:
    installed = build(team)
    assert from_port(installed, 99, 0) == set()
    fallbacks = [f for f in installed.flows.values() if f.table == 0 and f.match == ()]
    assert bool(fallbacks) is not team.over_normal
    assert all(flow.priority >= 1 for flow in installed.flows.values() if flow.table == 0)


@given(teams(), st.data())
def test_normal_gets_flooded_unicast_from_one_live_uplink(team: Team, data: st.DataObject) -> None:
    """A bond that takes unicast from any member would deliver it once for each."""
    team = replace(
        team, over_normal=True, normal_takes_any=True, no_flood=frozenset(vm_numbers(team))
    )
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    groups = build(team).groups
    taken_from = []
    for uplink in team.uplinks:
        group = groups[tables.Group.NORMAL.id_of(uplink)]
        live = next((b for b in group.buckets if b.watch_port in alive), None)
        if uplink in alive and live is not None and live.actions:
            taken_from.append(uplink)
    assert taken_from == [next(u for u in team.uplinks if u in alive)]


@pytest.mark.parametrize(
    ("destination", "left"),
    [
        ("ff:ff:ff:ff:ff:ff", True),
        ("01:00:5e:01:02:03", False),
        ("01:00:5e:00:00:12", True),
        ("33:33:00:00:47:11", False),
        ("33:33:00:00:00:01", True),
        ("33:33:ff:00:00:63", True),
    ],
)
@given(team=teams())
def test_groups_that_normal_snoops_are_not_left_to_it(
    team: Team, destination: str, left: bool
) -> None:
    """It would bring a second copy to the members that it knows. It floods all else."""
    uplink = team.uplinks[0]
    numbers = frozenset(vm_numbers(team))
    team = replace(team, over_normal=True, strangers=False, no_flood=numbers)
    for snoops in (True, False):
        installed = build(replace(team, snoops=snoops, uplink_vlans={}))
        flooded = frame(eth_dst=destination, **{Register.UPLINK: uplink})
        copies = through_table(installed, Table.DELIVERY, flooded, team.uplinks)
        to_normal = [copy for copy in copies if copy.port == OFPP_NORMAL]
        assert len(to_normal) == (left or not snoops)


@given(teams())
def test_normal_gets_nothing_for_a_vm_port_that_has_none_of_its_uplinks(team: Team) -> None:
    """NORMAL would deliver it by the uplinks that the VM port may not use."""
    numbers = frozenset(vm_numbers(team))
    team = replace(
        team, hears_everywhere=False, over_normal=True, strangers=False, no_flood=numbers
    )
    installed = build(team)
    for port in team.vm_ports:
        if not port.is_confined(team.uplinks):
            continue
        alive = set(team.uplinks) - set(port.order)
        for uplink in team.uplinks:
            ends = {Register.UPLINK: uplink, Register.TARGET: port.ofport}
            group_id = tables.Group.UNICAST.id_of(port.ofport)
            assert not through_group(installed, group_id, frame(**ends), alive)


@given(teams())
def test_ports_that_nobody_knows_teach_anew_when_flags_or_uplinks_change(team: Team) -> None:
    """With their cookie goes all that they taught: our own ports have learned it by then."""

    def taught(team: Team) -> set[int]:
        flows = (f for f in build(team).flows.values() if f.table == Table.UNKNOWN_PORT)
        found = {
            action.cookie for flow in flows for action in flow.actions if isinstance(action, Learn)
        }
        assert all(cookie & tables.FROM_NORMAL for cookie in found)
        return found

    team = replace(team, over_normal=True)
    assert len(taught(team)) == 1
    assert taught(team).isdisjoint(taught(replace(team, no_flood=team.no_flood | {77})))
    assert taught(team).isdisjoint(taught(replace(team, uplinks=(*team.uplinks, OfPort(78)))))
