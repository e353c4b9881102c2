"""What must hold of the pipeline whatever the team: shown by reading its flows and groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller import pipeline, reconcile
from controller.config import OFPORT_LOCAL
from controller.pipeline import (
    Action,
    CopyBits,
    FlowSpec,
    Learn,
    LearnLoad,
    LoadBits,
    Output,
    Pipeline,
    Register,
    Resubmit,
    SetField,
    Table,
    Team,
    ToGroup,
    VmPort,
    build,
    openflow_port,
)
from policies.model import OfPort

UPLINKS = (OfPort(1), OfPort(2), OfPort(3))


@st.composite
def teams(draw: st.DrawFn) -> Team:
    uplinks = UPLINKS[: draw(st.integers(2, 3))]
    numbers = draw(st.lists(st.sampled_from((10, 11, 12, OFPORT_LOCAL)), unique=True))
    vm_ports = tuple(
        VmPort(
            OfPort(number),
            tuple(draw(st.permutations(uplinks))),
            draw(st.none() | st.sampled_from((0, 7, 4094))),
            draw(st.none() | st.just(f"52:54:00:00:00:{number & 0xFF:02x}")),
        )
        for number in numbers
    )
    return Team(
        uplinks,
        vm_ports,
        hears_everywhere=draw(st.booleans()),
        over_normal=draw(st.booleans()),
        normal_takes_any=draw(st.booleans()),
        no_flood=frozenset(numbers) if draw(st.booleans()) else frozenset(),
    )


# ---- no frame goes from uplink to uplink -----------------------------------------------

Known = dict[str, int]


def contradicts(flow: FlowSpec, known: Known) -> bool:
    """Whether a frame of which that much is known cannot match."""
    for name, wanted in flow.match:
        if name not in known:
            continue
        if isinstance(wanted, tuple):
            value, mask = wanted
            assert isinstance(value, int) and isinstance(mask, int)
            if known[name] & mask != value:
                return True
        elif known[name] != wanted:
            return True
    return False


def outputs(installed: Pipeline, table: int, known: Known) -> Iterator[int]:
    """Every port that a frame may leave by, taking each flow that it might match.

    Nothing but ports and registers is known of the frame, and after a look-up nothing is
    known of the registers that it may have set.
    """
    for flow in installed.flows.values():
        if flow.table != table or contradicts(flow, known):
            continue
        after = dict(known)
        for action in flow.actions:
            yield from _acted(installed, action, after)
        if flow.goto is not None:
            assert flow.goto > flow.table, f"{flow} goes backwards"
            yield from outputs(installed, flow.goto, after)


def _acted(installed: Pipeline, action: Action, known: Known) -> Iterator[int]:
    match action:
        case Output(port=port):
            yield port
        case ToGroup(group_id=group_id):
            for bucket in installed.groups[group_id].buckets:
                for inner in bucket.actions:
                    yield from _acted(installed, inner, known)
        case SetField(field=field, value=value):
            known[field] = value
        case CopyBits(target=target) | LoadBits(target=target):
            known.pop(target, None)
        case Resubmit(table=table):
            yield from outputs(installed, table, dict(known))
            for set_there in _set_in(installed, table):
                known.pop(set_there, None)
        case Learn(table=table):
            assert table in (Table.LOCATION, Table.LOCAL_SOURCE, Table.LOCK), "only look-ups learn"


def _set_in(installed: Pipeline, table: int) -> set[str]:
    """The fields that flows of a table, or those learned into it, may set."""
    fields: set[str] = set()
    for flow in installed.flows.values():
        for action in flow.actions:
            if isinstance(action, Learn) and action.table == table:
                fields |= {s.target for s in action.specs if isinstance(s, LearnLoad)}
            if flow.table == table and isinstance(action, SetField):
                fields.add(action.field)
            if flow.table == table and isinstance(action, CopyBits | LoadBits):
                fields.add(action.target)
            if flow.table == table != Table.CLASSIFY and isinstance(action, Resubmit):
                fields |= _set_in(installed, action.table)
    return fields


def from_port(installed: Pipeline, ofport: int) -> set[int]:
    registers = {register.field: 0 for register in Register}
    return set(outputs(installed, Table.CLASSIFY, {"in_port": openflow_port(ofport), **registers}))


@given(teams())
def test_what_comes_from_an_uplink_never_leaves_by_an_uplink(team: Team) -> None:
    installed = build(team)
    for uplink in team.uplinks:
        assert not from_port(installed, uplink) & set(team.uplinks)


@given(teams())
def test_what_comes_from_an_uplink_can_reach_every_vm_port(team: Team) -> None:
    installed = build(team)
    everybody = {openflow_port(port.ofport) for port in team.vm_ports}
    beneath = {pipeline.OFPP_NORMAL} if team.over_normal else set()
    for uplink in team.uplinks:
        assert from_port(installed, uplink) == everybody | beneath


@given(teams())
def test_a_vm_port_reaches_every_other_and_the_uplinks_of_its_order(team: Team) -> None:
    installed = build(team)
    everybody = {openflow_port(port.ofport) for port in team.vm_ports}
    for port in team.vm_ports:
        assert from_port(installed, port.ofport) == everybody | set(port.order)


@given(teams())
def test_an_unknown_port_is_dropped_or_left_to_what_is_underneath(team: Team) -> None:
    installed = build(team)
    assert from_port(installed, 99) == set()
    fallbacks = [f for f in installed.flows.values() if f.table == 0 and f.match == ()]
    assert bool(fallbacks) is not team.over_normal
    assert all(flow.priority >= 1 for flow in installed.flows.values() if flow.table == 0)


# ---- names of things -------------------------------------------------------------------


@given(teams())
def test_everything_is_recognizably_ours(team: Team) -> None:
    installed = build(team)
    assert all(group_id in pipeline.GROUP_IDS for group_id in installed.groups)
    assert all(pipeline.cookie_kind(f.cookie) is not None for f in installed.flows.values())
    for flow in installed.flows.values():
        for action in flow.actions:
            if isinstance(action, ToGroup):
                assert action.group_id in installed.groups
            if isinstance(action, Learn):
                assert pipeline.cookie_kind(action.cookie) is pipeline.Kind.LEARNED
    assert pipeline.cookie_kind(0) is None
    assert pipeline.cookie_kind(0xDEADBEEF) is None


@given(teams())
def test_every_group_of_a_team_has_an_id_of_its_own(team: Team) -> None:
    vlans = {port.access_vlan for port in team.vm_ports} | {None}
    expected = len(team.vm_ports) * (1 + len(team.uplinks)) + len(vlans)
    if team.floods_beneath and team.normal_takes_any:
        expected += len(team.uplinks)
    assert len(build(team).groups) == expected


@given(teams())
def test_every_vm_port_is_counted_in_each_direction_by_one_flow(team: Team) -> None:
    flows = build(team).flows.values()
    for kind in (pipeline.Kind.FROM_VM, pipeline.Kind.TO_VM):
        counted = [f.cookie & 0xFFFFFFFF for f in flows if pipeline.cookie_kind(f.cookie) is kind]
        assert sorted(counted) == sorted(port.ofport for port in team.vm_ports)


def test_no_vm_port_no_uplink_nothing_but_look_ups() -> None:
    assert build(Team((), ())).groups.keys() == {pipeline.local_group_id(None)}


# ---- building again --------------------------------------------------------------------


@given(teams())
def test_the_same_team_has_the_same_pipeline(team: Team) -> None:
    assert build(team) == build(replace(team))
    assert not reconcile.changes(build(team), build(team))


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
    order = tuple(data.draw(st.permutations(team.uplinks)))
    ports = list(team.vm_ports)
    ports[index] = replace(ports[index], order=order)
    made = reconcile.changes(build(replace(team, vm_ports=tuple(ports))), build(team))
    assert len(made) == len(made.modify_groups) <= 1 + len(team.uplinks)


# ---- who hears a broadcast -------------------------------------------------------------


@given(teams())
def test_normal_gets_what_floods_only_while_it_floods_to_no_vm_port(team: Team) -> None:
    installed = build(team)
    floods = pipeline.no_flood(installed)
    if team.over_normal and team.uplinks and team.no_flood.issuperset(vm_numbers(team)):
        assert floods == frozenset(vm_numbers(team))
    else:
        assert floods is None


def vm_numbers(team: Team) -> set[int]:
    return {port.ofport for port in team.vm_ports}


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
        group = groups[pipeline.beneath_group_id(uplink)]
        live = next((b for b in group.buckets if b.watch_port in alive), None)
        if uplink in alive and live is not None and live.actions:
            taken_from.append(uplink)
    assert taken_from == [next(u for u in team.uplinks if u in alive)]


@given(teams())
def test_ports_that_nobody_knows_teach_anew_when_the_flags_change(team: Team) -> None:
    """With their cookie goes all that they taught: our own ports have learned it by then."""

    def taught(team: Team) -> set[int]:
        flows = (f for f in build(team).flows.values() if f.table == Table.CLASSIFY)
        found = {
            action.cookie
            for flow in flows
            if flow.priority == 1
            for action in flow.actions
            if isinstance(action, Learn)
        }
        assert all(cookie & pipeline.FROM_BENEATH for cookie in found)
        return found

    team = replace(team, over_normal=True)
    assert len(taught(team)) == 1
    assert taught(team).isdisjoint(taught(replace(team, no_flood=team.no_flood | {77})))


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
            group = groups[pipeline.delivery_group_id(port.ofport, index)]
            live = next((b for b in group.buckets if b.watch_port in alive), None)
            if uplink in alive and live is not None and live.actions:
                heard_from.append(uplink)
        assert heard_from == [next(u for u in port.order if u in alive)]


@given(teams())
def test_on_a_lag_a_broadcast_is_heard_from_any_member(team: Team) -> None:
    groups = build(replace(team, hears_everywhere=True)).groups
    for port in team.vm_ports:
        for index, uplink in enumerate(team.uplinks):
            (bucket,) = groups[pipeline.delivery_group_id(port.ofport, index)].buckets
            assert bucket.watch_port == uplink and bucket.actions
