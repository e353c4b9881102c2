"""What the switch learns, and from which addresses a VM port may send."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import PortVlans
from controller.dataplane import tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Learn, SetField
from controller.dataplane.tables import BROADCAST, SAME_VLAN, Table
from controller.dataplane.team import Team
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import VLANS, WAYS, own_mac, teams
from tests.unit.controller.dataplane.walking import taken, walk


@given(teams(), st.sampled_from(VLANS), st.sampled_from((BROADCAST, "52:54:00:00:00:99")))
def test_a_vm_sends_from_its_own_address_and_from_no_other_ones(
    team: Team, vlan: int, destination: str
) -> None:
    flows = walk(build(team)).tables[Table.LEARN]
    for port in team.vm_ports:
        for mac in (*(own_mac(p.ofport) for p in team.vm_ports), "52:54:00:00:00:98"):
            owners = [p for p in team.vm_ports if mac in p.attached_macs]
            anothers = any(vlan in owner.vlans.carried for owner in owners)
            expected = port in owners or (port.forges and not anothers)
            sent = {"eth_src": mac, "eth_dst": destination}
            assert taken(flows, port, vlan, **sent) == expected


@given(st.sampled_from(WAYS), st.sampled_from(WAYS))
def test_what_was_learned_on_a_port_goes_when_it_carries_something_else(
    old: PortVlans, new: PortVlans
) -> None:
    cookies = [tables.learned_cookie(OfPort(10), vlans) for vlans in (old, new)]
    assert (cookies[0] == cookies[1]) is (old == new)
    for value in cookies:
        assert tables.cookie_kind(value) is tables.Kind.LEARNED
        assert tables.cookie_ofport(value) == 10
        assert not value & tables.FROM_NORMAL, "not taken for what unknown ports teach"


@given(teams())
def test_what_the_switch_learns_is_bounded_for_each_vm_port(team: Team) -> None:
    for flow in build(team).flows.values():
        for action in flow.actions:
            if isinstance(action, Learn) and action.table == tables.Table.SPOKEN:
                # Only addresses of ours: the flow matches or sets the one that it teaches.
                sets = {a.field for a in flow.actions if isinstance(a, SetField)}
                assert "eth_src" in sets | dict(flow.match).keys()
            elif isinstance(action, Learn):
                ofport = tables.cookie_ofport(action.cookie)
                by_port = ofport or action.cookie & tables.FROM_NORMAL
                bound = tables.ADDRESSES_PER_PORT_MAX if by_port else tables.DEPARTED_MAX
                # A VM port is a router or not, and has one flow for each uplink that it is accepted on.
                few = action.table in (tables.Table.MEMBERSHIP, tables.Table.INBOUND)
                assert few or 0 < action.limit <= bound
                assert action.table != tables.Table.PORT_OUT or ofport


@given(teams())
def test_a_vm_port_teaches_nothing_about_vlans_that_are_not_its_own(team: Team) -> None:
    """What is learned in no VLAN concerns those of all VM ports."""
    carried = [port.vlans.carried for port in team.vm_ports]
    for flow in build(team).flows.values():
        sender = dict(flow.match).get(tables.Register.VM_PORT)
        senders = [port for port in team.vm_ports if sender in (None, port.ofport)]
        for action in flow.actions if flow.table in (Table.LEARN, Table.DESTINATION) else ():
            if isinstance(action, Learn) and SAME_VLAN not in action.specs:
                its_own = all(vlans <= port.vlans.carried for port in senders for vlans in carried)
                assert its_own or action.table in (Table.MEMBERSHIP, Table.SPOKEN)
