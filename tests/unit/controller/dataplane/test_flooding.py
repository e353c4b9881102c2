"""What uplinks flood reaches each VM port once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import flooding, tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Pipeline
from controller.dataplane.tables import VLAN_PRESENT, Register, openflow_port
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import teams, vm_numbers
from tests.unit.simulator import frame, through_group


@given(teams(), st.data())
def test_a_broadcast_is_delivered_once_whichever_uplinks_live(
    team: Team, data: st.DataObject
) -> None:
    """The upstream network sends it down every uplink; each VM port hears it from one."""
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    groups = build(replace(team, hears_everywhere=False)).groups
    for port in team.vm_ports:
        heard_from = []
        for index, uplink in enumerate(team.uplinks):
            group = groups[tables.delivery_group_id(port.ofport, index)]
            live = next((b for b in group.buckets if b.watch_port in alive), None)
            if uplink in alive and live is not None and live.actions:
                heard_from.append(uplink)
        assert heard_from == [u for u in port.order if u in alive][:1]


@given(teams(), st.data())
def test_on_a_lag_a_broadcast_is_heard_from_any_member(team: Team, data: st.DataObject) -> None:
    """The switch upstream chooses the member; by which a VM port sends is another matter.

    Without LACP, the two ends may differ on whether a member is live.
    """
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    lag = replace(team, hears_everywhere=True)
    installed = build(lag)
    for port in team.vm_ports:
        for index, uplink in enumerate(team.uplinks):
            group_id = tables.delivery_group_id(port.ofport, index)
            heard = delivered_by(installed, group_id, port, alive)
            comes = uplink in alive or lag.is_static_lag
            assert heard == (comes and bool(alive & set(port.order)))


def delivered_by(
    installed: Pipeline, group_id: int, port: VmPort, alive: Collection[OfPort]
) -> bool:
    """Whether a group delivers to a VM port a frame of a VLAN that it carries."""
    vlan = min(port.vlans.carried)
    tag = vlan and VLAN_PRESENT | vlan
    came = frame(vlan_vid=tag, **{Register.VLAN: vlan})
    copies = through_group(installed, group_id, came, alive)
    assert {copy.port for copy in copies} <= {openflow_port(port.ofport)} and len(copies) <= 1
    return bool(copies)


@given(teams())
def test_normal_gets_what_floods_only_while_it_floods_to_no_vm_port(team: Team) -> None:
    installed = build(team)
    floods = flooding.no_flood(installed)
    if team.over_normal and team.uplinks and team.no_flood.issuperset(vm_numbers(team)):
        assert floods == frozenset(vm_numbers(team))
    else:
        assert floods is None
