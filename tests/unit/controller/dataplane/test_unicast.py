"""Unicast from uplinks: who gets it, and how it is counted."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Learn, LearnMatch, Output, Resubmit, SetField, ToGroup
from controller.dataplane.tables import UNICAST, VLAN_PRESENT, Register, Table, openflow_port
from controller.dataplane.team import Team, VmPort
from controller.dataplane.unicast import opens
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import is_kind, teams
from tests.unit.simulator import frame, through_table


@given(teams())
def test_what_comes_for_a_vm_port_is_counted_by_uplink_unless_they_are_one_link(team: Team) -> None:
    """In a table in which all unicast from uplinks is looked up."""
    flows = build(team).flows.values()
    counting = [f for f in flows if f.table == Table.INBOUND and is_kind(f, tables.Kind.INBOUND)]
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
def test_unicast_is_delivered_once_to_a_vm_port_that_is_known_on_its_uplink(
    team: Team, data: st.DataObject
) -> None:
    """From the first live uplink of its order, as broadcasts; from any, where it has sent since."""
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    installed = build(team)
    known = [port for port in team.vm_ports if port.known_on is not None]
    for port, uplink in itertools.product(known, team.uplinks):
        vlan = min(port.vlans.carried)
        located = {Register.TARGET: port.ofport, Register.VLAN: vlan}
        came = frame(vlan_vid=vlan and VLAN_PRESENT | vlan, **located, **{Register.UPLINK: uplink})
        copies = through_table(installed, Table.INBOUND, came, alive)
        expected = [openflow_port(port.ofport)] * bool(uplink == first_live(port, alive))
        assert [copy.port for copy in copies] == ([] if uplink == port.known_on else expected)
        ends = {Register.TARGET: int(port.ofport), Register.UPLINK: int(uplink)}
        looked_up = installed.flows[Table.INBOUND, 10, tuple(sorted(ends.items()))]
        done = SetField(Register.TARGET, tables.DONE) in looked_up.actions
        assert done is (uplink != port.known_on), "the others are not delivered again"
        drop = installed.flows[Table.EGRESS, 40, ((Register.TARGET, tables.DONE),)]
        assert not drop.actions and drop.goto is None


@given(teams())
def test_a_bucket_passes_a_frame_on_once(team: Team) -> None:
    """Open vSwitch carries out only the last of these actions, as those of an action set."""
    for group in build(team).groups.values():
        for bucket in group.buckets:
            ways = [a for a in bucket.actions if isinstance(a, Output | Resubmit | ToGroup)]
            assert len(ways) <= 1 and ways == [*bucket.actions[-1:]][: len(ways)]


def first_live(port: VmPort, alive: set[OfPort]) -> OfPort | None:
    return next((uplink for uplink in port.order if uplink in alive), None)


@given(teams())
def test_a_known_vm_port_opens_the_uplink_by_which_it_sends_else(team: Team) -> None:
    installed = build(team)
    for port in team.vm_ports:
        if port.known_on is None:
            continue
        assert installed.flows[opens(port.ofport, port.known_on).key].actions
        group = installed.groups[tables.Group.BINDING.id_of(port.ofport)]
        learning = [b.watch_port for b in group.buckets if Resubmit(Table.INBOUND) in b.actions]
        assert learning == [openflow_port(uplink) for uplink in port.order[1:]]


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
