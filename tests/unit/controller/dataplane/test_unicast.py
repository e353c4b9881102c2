"""Unicast from uplinks: who gets it, and how it is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Learn, LearnMatch, Resubmit
from controller.dataplane.tables import UNICAST, VLAN_PRESENT, Register, Table, openflow_port
from controller.dataplane.team import Team
from tests.unit.controller.dataplane.teams import teams
from tests.unit.forwarding import frame, through_table


@given(teams())
def test_what_comes_for_a_vm_port_is_counted_by_uplink_unless_they_are_one_link(team: Team) -> None:
    """In a table that only counts, and in which all unicast from uplinks is looked up."""
    flows = build(team).flows.values()
    counting = [f for f in flows if f.table == Table.INBOUND]
    assert not any(flow.actions or flow.goto for flow in counting)
    ends = {tables.cookie_inbound(f.cookie): dict(f.match) for f in counting}
    assert len(ends) == len(counting)
    assert ends == {
        (port.ofport, uplink): {Register.TARGET: port.ofport, Register.UPLINK: uplink}
        for port in team.vm_ports
        for uplink in (() if team.hears_everywhere else team.uplinks)
    }
    unicast = (("eth_dst", UNICAST),)
    (located,) = [f for f in flows if (f.table, f.match) == (Table.FROM_UPLINK, unicast)]
    assert (Resubmit(Table.INBOUND) in located.actions) is not team.hears_everywhere


@given(teams(), st.data())
def test_a_vm_port_gets_unicast_while_an_uplink_lives_that_it_may_use(
    team: Team, data: st.DataObject
) -> None:
    """By whichever it comes. One that can send by none cannot say where it is, so that switches
    upstream flood what is for it: that would come by each of the others, for ever.
    """
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    installed = build(team)
    for port in team.vm_ports:
        vlan = min(port.vlans.carried)
        located = {Register.TARGET: port.ofport, Register.VLAN: vlan}
        tag = vlan and VLAN_PRESENT | vlan
        for uplink in alive:
            came = frame(vlan_vid=tag, **located, **{Register.UPLINK: uplink})
            copies = through_table(installed, Table.EGRESS, came, alive)
            expected = [openflow_port(port.ofport)] * bool(alive & set(port.order))
            assert [copy.port for copy in copies] == expected


@given(teams())
def test_an_uplink_that_a_vm_port_may_not_use_is_closed_while_it_is_cut_off(
    team: Team,
) -> None:
    """The switch learns that, not on a LAG. It forgets it when the VM port may use it."""
    installed = build(team)
    closing = {
        (f.match, action)
        for f in installed.flows.values()
        if f.table == Table.NO_UPLINK
        for action in f.actions
        if isinstance(action, Learn)
    }
    expected = {
        (port.ofport, uplink)
        for port in team.vm_ports
        for uplink in team.uplinks
        if uplink not in port.order and not team.hears_everywhere
    }
    to_from = Register.TARGET, Register.UPLINK
    assert {tuple(dict(ends)[r] for r in to_from) for ends, _ in closing} == expected
    for _, learn in closing:
        assert learn.table == Table.PORT_OUT and learn.delete_learned
        assert learn.specs == tuple(LearnMatch(r, r, 16) for r in to_from)
    cookies = {learn.cookie for _, learn in closing}
    assert len(cookies) == len(expected), "each goes with its own flow only"
    for port in team.vm_ports:
        others = [u for u in team.uplinks if (port.ofport, u) in expected]
        if others:
            group = installed.groups[tables.Group.UNICAST.id_of(port.ofport)]
            ways = [b.watch_port for b in group.buckets if Resubmit(Table.NO_UPLINK) in b.actions]
            assert ways == others
