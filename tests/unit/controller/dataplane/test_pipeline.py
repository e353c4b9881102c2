"""What holds of the whole pipeline, whatever the team: shown by reading its flows and groups."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import TRUNK, access
from controller.dataplane import pipeline, tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Learn, MatchValue, ToGroup
from controller.dataplane.tables import BROADCAST, OFPP_NORMAL, Register, openflow_port
from controller.dataplane.team import Team, VmPort
from policies.classifiers import Classifier
from policies.model import OFPORT_LOCAL, OfPort
from tests.unit.controller.dataplane.teams import TAGS, is_kind, teams
from tests.unit.controller.dataplane.walking import Copy, from_port, vlan_meant


def carrying(team: Team, vlan: int | None) -> set[Copy]:
    """The VM ports that carry a VLAN, and how they want its frames."""
    if vlan is None:
        return set()
    return {
        (openflow_port(p.ofport), p.vlans.tag_out(vlan))
        for p in team.vm_ports
        if vlan in p.vlans.carried
    }


def given_to_normal(team: Team, uplink: OfPort, vlan: int | None) -> set[Copy]:
    """NORMAL, given a frame in the form in which it takes one from that uplink."""
    if vlan is None or not team.over_normal:
        return set()
    return {(OFPP_NORMAL, vlan if team.uplink_vlans[uplink].takes_tagged else 0)}


def leaving(team: Team, port: VmPort, vlan: int | None, is_broadcast: bool = False) -> set[Copy]:
    """The uplinks by which a VM port's frames of a VLAN may leave, and their tag there."""
    if vlan is None or not port.order:
        return set()
    by_home, spread = set(port.order), set[OfPort]()
    if port.hashed == tables.ASSIGNED:
        behind = (s for s in team.addresses if (s.ofport, s.vlan) == (port.ofport, vlan))
        speaking = (s for s in behind if port.forges or s.mac in port.attached_macs)
        spread = {uplink for address in speaking for uplink in address.order}
    elif port.hashed is not None:
        made = next(made for made in team.hashes if made.number == port.hashed)
        spread = {uplink for order in made.buckets for uplink in order}
        by_transport = made.classifier is Classifier.TRANSPORT and not team.hears_everywhere
        if made.buckets and by_transport and is_broadcast:
            spread = set()
        elif (
            made.buckets
            and team.hears_everywhere
            # Then, what no bucket takes leaves by the home.
            and not team.dp_hash
            and made.classifier is not Classifier.IP_PAIR
            and all(vlan in team.uplink_vlans[u].carried for u in spread)
        ):
            by_home = set()
    if any(endpoint.ofport == port.ofport for endpoint in team.endpoints):
        # Learning packets for its off-home addresses, if nothing else.
        spread |= set(team.uplinks)
    ways = {uplink: team.uplink_vlans.get(uplink, TRUNK) for uplink in by_home | spread}
    copies: set[Copy] = {
        (u, vlans.tag_out(vlan)) for u, vlans in ways.items() if vlan in vlans.carried
    }
    if team.floods_to_normal and not port.is_confined(team.uplinks):
        # If none of the uplinks is there.
        copies.add((OFPP_NORMAL, vlan if port.vlans.takes_tagged else 0))
    return copies


def hears(team: Team, port: VmPort, uplink: OfPort) -> bool:
    """Whether a VM port may hear what an uplink broadcasts: on a LAG it is not asked by which."""
    return bool(port.order) if team.hears_everywhere else uplink in port.order


@given(teams(), st.sampled_from(TAGS))
def test_a_frame_reaches_only_ports_that_carry_its_vlan_and_never_from_uplink_to_uplink(
    team: Team, tag: int
) -> None:
    installed = build(team)
    somewhere = replace(team, vm_ports=tuple(p for p in team.vm_ports if p.order))
    for uplink in team.uplinks:
        vlan = vlan_meant(team.uplink_vlans[uplink], tag)
        expected = carrying(somewhere, vlan) | given_to_normal(team, uplink, vlan)
        assert from_port(installed, uplink, tag) == expected
    for port in team.vm_ports:
        vlan = vlan_meant(port.vlans, tag)
        expected = carrying(team, vlan) | leaving(team, port, vlan)
        assert from_port(installed, port.ofport, tag) == expected


@given(teams(), st.sampled_from(TAGS))
def test_a_broadcast_goes_to_all_vm_ports_of_its_vlan_that_hear_that_uplink(
    team: Team, tag: int
) -> None:
    installed = build(team)
    for index, uplink in enumerate(team.uplinks):
        hearing = [p for p in team.vm_ports if hears(team, p, uplink)]
        vlan = vlan_meant(team.uplink_vlans[uplink], tag)
        heard = carrying(replace(team, vm_ports=tuple(hearing)), vlan)
        if team.floods_to_normal:
            heard |= given_to_normal(team, uplink, vlan)
        assert from_port(installed, uplink, tag, eth_dst=BROADCAST) == heard, index
    for port in team.vm_ports:
        vlan = vlan_meant(port.vlans, tag)
        expected = carrying(team, vlan) | leaving(team, port, vlan, is_broadcast=True)
        assert from_port(installed, port.ofport, tag, eth_dst=BROADCAST) == expected


@given(teams())
def test_everything_is_recognizably_ours(team: Team) -> None:
    installed = build(team)
    assert all(group_id in tables.GROUP_IDS for group_id in installed.groups)
    assert all(tables.cookie_kind(f.cookie) is not None for f in installed.flows.values())
    for flow in installed.flows.values():
        for action in flow.actions:
            if isinstance(action, ToGroup):
                assert action.group_id in installed.groups
            if isinstance(action, Learn):
                learned = (tables.Kind.LEARNED, tables.Kind.OUTSIDE)
                assert tables.cookie_kind(action.cookie) in learned
    assert tables.cookie_kind(0) is None
    assert tables.cookie_kind(0xDEADBEEF) is None


@given(teams())
def test_every_group_of_a_team_has_an_id_of_its_own(team: Team) -> None:
    heard = {
        tuple(p.ofport for p in team.vm_ports if vlan in p.vlans.carried) for vlan in range(4096)
    }
    expected = len(team.vm_ports) * (2 + len(team.uplinks)) + len(heard)
    expected += sum(len(made.buckets) for made in team.hashes) + len(team.addresses)
    expected += sum(not set(team.uplinks) <= set(port.order) for port in team.vm_ports)
    # LOCAL has no group for its presence.
    expected -= OFPORT_LOCAL in {port.ofport for port in team.vm_ports}
    expected += team.dp_hash
    # The group that is always live.
    expected += team.over_normal
    if team.floods_to_normal and team.normal_takes_any:
        expected += len(team.uplinks)
    if team.endpoints:
        expected += len(team.uplinks) * (1 + len(team.uplinks))
    assert len(build(team).groups) == expected


@given(teams())
def test_every_vm_port_and_address_with_own_uplinks_is_counted_in_each_direction_by_one_flow(
    team: Team,
) -> None:
    ofports = [port.ofport for port in team.vm_ports]
    slots = [address.slot for address in team.addresses]
    flows = build(team).flows.values()
    for kind, units in (
        (tables.Kind.FROM_VM, ofports),
        (tables.Kind.TO_VM, ofports),
        (tables.Kind.FROM_ADDRESS, slots),
        (tables.Kind.TO_ADDRESS, slots),
    ):
        counted = [tables.cookie_ofport(f.cookie) for f in flows if is_kind(f, kind)]
        assert sorted(counted) == sorted(units)


def test_no_vm_port_no_uplink_nothing_but_look_ups() -> None:
    assert build(Team((), ())).groups.keys() == {tables.local_group_id(None)}


@given(teams())
def test_the_order_of_vm_ports_means_nothing(team: Team) -> None:
    turned = build(replace(team, vm_ports=tuple(reversed(team.vm_ports))))
    straight = build(team)
    assert turned.flows.keys() == straight.flows.keys()
    for group_id, group in straight.groups.items():
        other = turned.groups[group_id]
        if group.kind == "ff":
            assert other == group
        else:
            assert sorted(other.buckets, key=repr) == sorted(group.buckets, key=repr)


@given(teams(), st.data())
def test_a_move_changes_a_few_groups_and_no_flow(team: Team, data: st.DataObject) -> None:
    if not team.vm_ports:
        return
    index = data.draw(st.integers(0, len(team.vm_ports) - 1))
    order = tuple(data.draw(st.permutations(team.vm_ports[index].order)))
    ports = list(team.vm_ports)
    ports[index] = replace(ports[index], order=order)
    made = pipeline.changes(build(replace(team, vm_ports=tuple(ports))), build(team))
    assert len(made) == len(made.modify_groups) <= 1 + len(team.uplinks)


@given(teams(), teams(), st.randoms())
def test_a_pipeline_is_the_same_whatever_was_built_before_and_a_move_shares_its_flows(
    team: Team, other: Team, chance: random.Random
) -> None:
    def turned(order: tuple[OfPort, ...]) -> tuple[OfPort, ...]:
        return tuple(chance.sample(order, len(order)))

    moved = replace(
        team,
        vm_ports=tuple(replace(port, order=turned(port.order)) for port in team.vm_ports),
        hashes=tuple(
            replace(made, buckets=tuple(map(turned, made.buckets))) for made in team.hashes
        ),
        addresses=tuple(replace(made, order=turned(made.order)) for made in team.addresses),
    )
    built = build(team)
    shared = build(moved, (team, built))
    assert shared == build(moved)
    assert shared.flows is built.flows
    assert build(other, (team, built)) == build(other)


@given(teams((TRUNK, access(7), access(20))), st.data())
def test_re_tagging_a_port_changes_its_flows_and_those_of_the_two_vlans(
    team: Team, data: st.DataObject
) -> None:
    ports = [p for p in team.vm_ports if p.vlans != TRUNK]
    if not ports:
        return
    port = data.draw(st.sampled_from(ports))
    (old,) = port.vlans.carried
    new = data.draw(st.sampled_from((7, 20, 30)))
    anew = [replace(p, vlans=access(new)) if p is port else p for p in team.vm_ports]
    made = pipeline.changes(build(replace(team, vm_ports=tuple(anew))), build(team))
    own: set[tuple[str, MatchValue]] = {("in_port", openflow_port(port.ofport))}
    own |= {(r, port.ofport) for r in (Register.VM_PORT, Register.TARGET)}
    own |= {("eth_src", mac) for mac in port.attached_macs}
    for flow in (*made.add_flows, *made.delete_flows):
        in_vlan = dict(flow.match).get(Register.VLAN)
        assert set(flow.match) & own or in_vlan in (old, new), flow
    assert all(group_id >> 16 & 0xFF == 0xF0 for group_id in made.delete_groups)
    local = {tables.local_group_id(vlan) for vlan in (old, new)}
    assert {g.group_id for g in (*made.add_groups, *made.modify_groups)} <= local
