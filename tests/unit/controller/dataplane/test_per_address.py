"""Addresses behind a VM port that have uplinks of their own."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import pipeline
from controller.dataplane.pipeline import build
from controller.dataplane.tables import BROADCAST, VLAN_PRESENT, Register, Table, openflow_port
from controller.dataplane.team import Team
from tests.unit.controller.dataplane.teams import teams, vm_numbers
from tests.unit.simulator import as_number, frame, through_table


@given(teams(), st.data())
def test_an_address_with_uplinks_of_its_own_leaves_once_by_the_first_that_lives(
    team: Team, data: st.DataObject
) -> None:
    """As it is; by its VM port's home where that uplink does not carry its VLAN."""
    installed = build(team)
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    for address in team.addresses:
        (port,) = (p for p in team.vm_ports if p.ofport == address.ofport)
        sent = frame(
            eth_src=address.mac,
            eth_dst=BROADCAST,
            vlan_vid=address.vlan and VLAN_PRESENT | address.vlan,
            **{Register.VM_PORT: port.ofport, Register.VLAN: address.vlan, Register.LEARNED: 1},
        )
        left = through_table(installed, Table.UPLINK_OUT, sent, alive)
        home = next((u for u in port.order if u in alive), None)
        own = next((u for u in address.order if u in alive), None)
        carriers = [
            u for u in (own, home) if u is not None and address.vlan in team.uplink_vlans[u].carried
        ]
        expected = carriers[:1] if home is not None and own is not None else []
        assert [copy.port for copy in left] == expected
        assert all(copy.frame["eth_src"] == as_number("eth_src", address.mac) for copy in left)


@given(teams(), st.data())
def test_unicast_to_a_forgotten_address_is_delivered_from_its_uplink_only(
    team: Team, data: st.DataObject
) -> None:
    """Where switches upstream have forgotten it, too, it comes by every uplink."""
    team = replace(team, hears_everywhere=False, over_normal=False)
    installed = build(team)
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    for address in team.addresses:
        (port,) = (p for p in team.vm_ports if p.ofport == address.ofport)
        came_by = []
        for uplink in sorted(alive):
            sent = frame(
                eth_dst=address.mac,
                vlan_vid=address.vlan and VLAN_PRESENT | address.vlan,
                **{Register.UPLINK: uplink, Register.VLAN: address.vlan},
            )
            copies = through_table(installed, Table.EGRESS, sent, {*alive, *vm_numbers(team)})
            assert {copy.port for copy in copies} <= {openflow_port(port.ofport)}
            came_by += [uplink] * len(copies)
        in_force = [u for u in address.order if u in alive][:1]
        assert came_by == (in_force if address.vlan in port.vlans.carried else [])


@given(teams(), st.data())
def test_moving_an_address_changes_one_group(team: Team, data: st.DataObject) -> None:
    if not team.addresses:
        return
    index = data.draw(st.integers(0, len(team.addresses) - 1))
    anew = list(team.addresses)
    order = tuple(data.draw(st.permutations(anew[index].order)))
    anew[index] = replace(anew[index], order=order)
    made = pipeline.changes(build(replace(team, addresses=tuple(anew))), build(team))
    assert len(made) == len(made.modify_groups) <= 1
