"""What must hold of the pipeline whatever the team: shown by reading its flows and groups."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import TRUNK, PortVlans, access, port_vlans
from controller.dataplane import pipeline, reconcile, tables
from controller.dataplane.pipeline import build
from controller.dataplane.specs import (
    Action,
    CopyBits,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LoadBits,
    MatchValue,
    Multipath,
    Output,
    Pipeline,
    PopVlan,
    PushVlan,
    Resubmit,
    SetField,
    ToGroup,
    match,
)
from controller.dataplane.tables import (
    BROADCAST,
    OFPP_NORMAL,
    UNICAST,
    VLAN_PRESENT,
    Register,
    Table,
    openflow_port,
)
from controller.dataplane.team import Hash, Station, Team, VmPort
from policies.classifiers import Classifier
from policies.model import OFPORT_LOCAL, OfPort
from tests.unit.forwarding import as_number, frame, through_group, through_table

UPLINKS = (OfPort(1), OfPort(2), OfPort(3))
WAYS = (
    TRUNK,
    access(0),
    access(7),
    access(4094),
    port_vlans("trunk", None, (7, 20)),
    port_vlans("trunk", None, (0, 7, 4095)),
    port_vlans("native-untagged", 7, ()),
    port_vlans("native-untagged", 7, (7, 20)),
    port_vlans("native-untagged", 0, (0, 20)),
    port_vlans("native-tagged", 7, (20,)),
    port_vlans("native-tagged", 20, ()),
)
# VLANs that differ for some of these, as a frame may say them.
VLANS = (0, 7, 8, 20, 4094, 4095)
HASHED_BY = st.sampled_from([c for c in Classifier if c.hashed])
MACS = ("52:54:00:00:00:71", "52:54:00:00:00:72")
TAGS = (0, *(VLAN_PRESENT | vlan for vlan in VLANS))


def own_mac(ofport: int) -> str:
    return f"52:54:00:00:00:{ofport & 0xFF:02x}"


@st.composite
def teams(draw: st.DrawFn, ways: tuple[PortVlans, ...] = WAYS) -> Team:
    uplinks = UPLINKS[: draw(st.integers(2, 3))]
    numbers = draw(st.lists(st.sampled_from((10, 11, 12, OFPORT_LOCAL)), unique=True))
    hashes = tuple(
        Hash(number, draw(HASHED_BY), tuple(map(tuple, draw(buckets))))
        for buckets in [st.lists(st.lists(st.sampled_from(uplinks), unique=True), max_size=2)]
        for number in range(draw(st.integers(0, 2)))
    )
    vm_ports = tuple(
        VmPort(
            OfPort(number),
            tuple(draw(st.permutations(uplinks))[: draw(st.integers(0, len(uplinks)))]),
            draw(st.sampled_from(ways)),
            macs,
            forges=not macs or draw(st.booleans()),
            hashed=draw(
                st.sampled_from((None, tables.ASSIGNED, *(made.number for made in hashes)))
            ),
        )
        for number in numbers
        for macs in [draw(st.sampled_from(((), (own_mac(number),))))]
    )
    split = [p.ofport for p in vm_ports if p.hashed == tables.ASSIGNED and p.order]
    addresses = st.tuples(
        st.sampled_from(split or [OfPort(0)]), st.sampled_from(MACS), st.sampled_from((0, 7, 20))
    )
    # The switch learns an address on one port only.
    unique = st.lists(addresses, max_size=3, unique_by=lambda address: address[1:])
    stations = tuple(
        Station(
            slot,
            *address,
            tuple(draw(st.permutations(uplinks))[: draw(st.integers(1, len(uplinks)))]),
        )
        for slot, address in enumerate(draw(unique) if split else ())
    )
    uplink_vlans = {u: draw(st.just(TRUNK) | st.sampled_from(ways)) for u in uplinks}
    return Team(
        uplinks,
        vm_ports,
        hears_everywhere=draw(st.booleans()),
        over_normal=draw(st.booleans()),
        normal_takes_any=draw(st.booleans()),
        no_flood=frozenset(numbers) if draw(st.booleans()) else frozenset(),
        uplink_vlans=uplink_vlans,
        hashes=hashes,
        off_home_macs=draw(st.sampled_from(({}, {u: f"0a:00:00:00:00:0{u}" for u in uplinks}))),
        stations=stations,
    )


# ---- where a frame may go --------------------------------------------------------------

Known = dict[str, MatchValue]
Copy = tuple[int, int]


@dataclass(frozen=True)
class Walk:
    """A pipeline by tables, highest priority first, and what is known wherever one has been."""

    tables: Mapping[int, list[FlowSpec]]
    groups: Mapping[int, GroupSpec]
    been: set[tuple[int, frozenset[tuple[str, MatchValue]]]] = field(default_factory=set)
    set_in: dict[int, set[str]] = field(default_factory=dict)


def walk(installed: Pipeline) -> Walk:
    flows = sorted(installed.flows.values(), key=lambda f: (f.table, -f.priority))
    by_table = itertools.groupby(flows, key=lambda f: f.table)
    return Walk({table: list(found) for table, found in by_table}, installed.groups)


def number(name: str, value: MatchValue) -> int:
    assert not isinstance(value, tuple)
    return as_number(name, value)


def contradicts(flow: FlowSpec, known: Known) -> bool:
    """Whether a frame of which that much is known cannot match."""
    for name, wanted in flow.match:
        if name not in known:
            continue
        if isinstance(wanted, tuple):
            value, mask = wanted
            if number(name, known[name]) & number(name, mask) != number(name, value):
                return True
        elif number(name, known[name]) != number(name, wanted):
            return True
    return False


def outputs(installed: Walk, table: int, known: Known) -> Iterator[Copy]:
    """Every port that a frame may leave by, and the tag it then has; 0: none.

    It takes each flow that it might match, down to one that it must match. Of the frame
    only its tag, its way in and perhaps its destination are known, and after a look-up
    nothing is known of the registers that it may have set.
    """
    here = (table, frozenset(known.items()))
    if here in installed.been:
        return
    installed.been.add(here)
    # What one of them alone makes a frame take a flow above.
    taken: set[tuple[str, MatchValue]] = set()
    for flow in installed.tables.get(table, ()):
        if contradicts(flow, known) or not taken.isdisjoint(flow.match):
            continue
        open_ = [pair for pair in flow.match if pair[0] not in known]
        if len(open_) == 1:
            taken.update(open_)
        exactly = {name: v for name, v in flow.match if not isinstance(v, tuple)}
        after = {**known, **exactly}
        for action in flow.actions:
            yield from _acted(installed, action, after)
        if flow.goto is not None:
            assert flow.goto > flow.table, f"{flow} goes backwards"
            yield from outputs(installed, flow.goto, after)
        if known.keys() >= {name for name, _ in flow.match}:
            return


def _acted(installed: Walk, action: Action, known: Known) -> Iterator[Copy]:
    tag = number("vlan_vid", known["vlan_vid"])
    match action:
        case Output(port=port):
            yield port, tag & ~VLAN_PRESENT
        case ToGroup(group_id=group_id):
            for bucket in installed.groups[group_id].buckets:
                inside = dict(known)
                for inner in bucket.actions:
                    yield from _acted(installed, inner, inside)
        case SetField(field=field, value=value):
            assert field != "vlan_vid" or tag, "the switch sets only a tag that is there"
            known[field] = value
        case PushVlan():
            assert not tag, "two tags"
            known["vlan_vid"] = VLAN_PRESENT
        case PopVlan():
            assert tag, "no tag to take off"
            known["vlan_vid"] = 0
        case CopyBits(source="vlan_tci", target=target):
            known[target] = tag & ~VLAN_PRESENT
        case CopyBits(target=target) | LoadBits(target=target) | Multipath(target=target):
            known.pop(target, None)
        case Resubmit(table=table):
            yield from outputs(installed, table, dict(known))
            for set_there in _set_in(installed, table):
                known.pop(set_there, None)
        case Learn(table=table):
            assert table in (Table.LOCATION, Table.LOCAL_SOURCE, Table.LOCK), "only look-ups learn"


def _set_in(installed: Walk, table: int) -> set[str]:
    """The fields that flows of a table, or those learned into it, may set."""
    if table in installed.set_in:
        return installed.set_in[table]
    fields = installed.set_in[table] = set()
    for flow in itertools.chain.from_iterable(installed.tables.values()):
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


def from_port(installed: Pipeline, ofport: int, tag: int, **frame: str) -> set[Copy]:
    registers = {register.field: 0 for register in Register}
    known: Known = {"in_port": openflow_port(ofport), "vlan_vid": tag, **registers, **frame}
    return set(outputs(walk(installed), Table.CLASSIFY, known))


def vlan_meant(vlans: PortVlans, tag: int) -> int | None:
    """The VLAN of a frame that comes in by such a port; None: it is not taken."""
    if tag in (0, VLAN_PRESENT):
        return vlans.native
    vlan = tag & ~VLAN_PRESENT
    return vlan if vlans.takes_tagged and vlan in vlans.carried else None


def carrying(team: Team, vlan: int | None) -> set[Copy]:
    """The VM ports that carry a VLAN, and how they want its frames."""
    if vlan is None:
        return set()
    return {
        (openflow_port(p.ofport), p.vlans.tag_out(vlan))
        for p in team.vm_ports
        if vlan in p.vlans.carried
    }


def beneath(team: Team, uplink: OfPort, vlan: int | None) -> set[Copy]:
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
        behind = (s for s in team.stations if (s.ofport, s.vlan) == (port.ofport, vlan))
        speaking = (s for s in behind if port.forges or s.mac in port.attached_macs)
        spread = {uplink for station in speaking for uplink in station.order}
    elif port.hashed is not None:
        made = next(made for made in team.hashes if made.number == port.hashed)
        spread = {uplink for order in made.buckets for uplink in order}
        by_transport = made.classifier is Classifier.TRANSPORT and not team.hears_everywhere
        if made.buckets and by_transport and is_broadcast:
            spread = set()
        elif (
            made.buckets
            and team.hears_everywhere
            and made.classifier is not Classifier.IP_PAIR
            and all(vlan in team.uplink_vlans[u].carried for u in spread)
        ):
            by_home = set()
    ways = {uplink: team.uplink_vlans.get(uplink, TRUNK) for uplink in by_home | spread}
    return {(u, vlans.tag_out(vlan)) for u, vlans in ways.items() if vlan in vlans.carried}


def hears(team: Team, port: VmPort, uplink: OfPort) -> bool:
    """Whether a VM port may hear what an uplink broadcasts: on a LAG it is not asked by which."""
    return bool(port.order) if team.hears_everywhere else uplink in port.order


@given(teams(), st.sampled_from(TAGS))
def test_from_an_uplink_to_the_vm_ports_of_its_vlan_and_never_to_an_uplink(
    team: Team, tag: int
) -> None:
    installed = build(team)
    for uplink in team.uplinks:
        vlan = vlan_meant(team.uplink_vlans[uplink], tag)
        somewhere = replace(team, vm_ports=tuple(p for p in team.vm_ports if p.order))
        expected = carrying(somewhere, vlan) | beneath(team, uplink, vlan)
        assert from_port(installed, uplink, tag) == expected


@given(teams(), st.sampled_from(TAGS))
def test_from_a_vm_port_to_others_of_its_vlan_and_the_uplinks_of_its_order(
    team: Team, tag: int
) -> None:
    installed = build(team)
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
        if team.floods_beneath:
            heard |= beneath(team, uplink, vlan)
        assert from_port(installed, uplink, tag, eth_dst=BROADCAST) == heard, index
    for port in team.vm_ports:
        vlan = vlan_meant(port.vlans, tag)
        expected = carrying(team, vlan) | leaving(team, port, vlan, is_broadcast=True)
        assert from_port(installed, port.ofport, tag, eth_dst=BROADCAST) == expected


@pytest.mark.parametrize("vlans", WAYS, ids=str)
def test_what_a_vm_port_sends_in_a_vlan_is_what_it_gets_back(vlans: PortVlans) -> None:
    """So a frame of ours takes the form that the VM's own have."""
    for vlan in VLANS:
        tag = vlans.tag_in(vlan)
        if vlan in vlans.carried:
            assert vlan_meant(vlans, tag and VLAN_PRESENT | tag) == vlan


@given(teams())
def test_an_unknown_port_is_dropped_or_left_to_what_is_underneath(team: Team) -> None:
    installed = build(team)
    assert from_port(installed, 99, 0) == set()
    fallbacks = [f for f in installed.flows.values() if f.table == 0 and f.match == ()]
    assert bool(fallbacks) is not team.over_normal
    assert all(flow.priority >= 1 for flow in installed.flows.values() if flow.table == 0)


# ---- names of things -------------------------------------------------------------------


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
                assert tables.cookie_kind(action.cookie) is tables.Kind.LEARNED
    assert tables.cookie_kind(0) is None
    assert tables.cookie_kind(0xDEADBEEF) is None


@given(teams())
def test_every_group_of_a_team_has_an_id_of_its_own(team: Team) -> None:
    heard = {
        tuple(p.ofport for p in team.vm_ports if vlan in p.vlans.carried) for vlan in range(4096)
    }
    expected = len(team.vm_ports) * (1 + len(team.uplinks)) + len(heard)
    expected += sum(len(made.buckets) for made in team.hashes) + len(team.stations)
    expected += sum(not set(team.uplinks) <= set(port.order) for port in team.vm_ports)
    if team.floods_beneath and team.normal_takes_any:
        expected += len(team.uplinks)
    assert len(build(team).groups) == expected


@given(teams())
def test_every_vm_port_is_counted_in_each_direction_by_one_flow(team: Team) -> None:
    flows = build(team).flows.values()
    for kind in (tables.Kind.FROM_VM, tables.Kind.TO_VM):
        counted = [f.cookie & 0xFFFFFFFF for f in flows if tables.cookie_kind(f.cookie) is kind]
        assert sorted(counted) == sorted(port.ofport for port in team.vm_ports)


@given(teams())
def test_what_comes_for_a_vm_port_is_counted_by_uplink_unless_they_are_one_link(team: Team) -> None:
    """In a table that only counts, and in which all unicast from uplinks is looked up."""
    flows = build(team).flows.values()
    counting = [f for f in flows if f.table == Table.INBOUND]
    assert not any(flow.actions or flow.goto for flow in counting)
    ends = {tables.cookie_inbound(f.cookie): dict(f.match) for f in counting}
    assert len(ends) == len(counting)
    assert ends == {
        (port.ofport, uplink): {Register.TARGET.field: port.ofport, Register.UPLINK.field: uplink}
        for port in team.vm_ports
        for uplink in (() if team.hears_everywhere else team.uplinks)
    }
    unicast = match(eth_dst=UNICAST)
    (located,) = [f for f in flows if (f.table, f.match) == (Table.FROM_UPLINK, unicast)]
    assert (Resubmit(Table.INBOUND) in located.actions) is not team.hears_everywhere


@given(teams(), st.data())
def test_an_address_with_uplinks_of_its_own_leaves_once_by_the_first_that_lives(
    team: Team, data: st.DataObject
) -> None:
    """As it is; by its VM port's home where that uplink does not carry its VLAN."""
    installed = build(team)
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    for station in team.stations:
        (port,) = (p for p in team.vm_ports if p.ofport == station.ofport)
        sent = frame(
            eth_src=station.mac,
            eth_dst=BROADCAST,
            vlan_vid=station.vlan and VLAN_PRESENT | station.vlan,
            **{
                Register.VM_PORT.field: station.ofport,
                Register.VLAN.field: station.vlan,
                Register.LEARNED.field: 1,
            },
        )
        left = through_table(installed, Table.UPLINK_OUT, sent, alive)
        home = next((u for u in port.order if u in alive), None)
        own = next((u for u in station.order if u in alive), None)
        carriers = [
            u for u in (own, home) if u is not None and station.vlan in team.uplink_vlans[u].carried
        ]
        expected = carriers[:1] if home is not None and own is not None else []
        assert [copy.port for copy in left] == expected
        assert all(copy.frame["eth_src"] == as_number("eth_src", station.mac) for copy in left)


@given(teams(), st.data())
def test_unicast_to_a_forgotten_address_is_delivered_from_its_uplink_only(
    team: Team, data: st.DataObject
) -> None:
    """Where switches upstream have forgotten it, too, it comes by every uplink."""
    team = replace(team, hears_everywhere=False, over_normal=False)
    installed = build(team)
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    for station in team.stations:
        (port,) = (p for p in team.vm_ports if p.ofport == station.ofport)
        came_by = []
        for uplink in sorted(alive):
            sent = frame(
                eth_dst=station.mac,
                vlan_vid=station.vlan and VLAN_PRESENT | station.vlan,
                **{Register.UPLINK.field: uplink, Register.VLAN.field: station.vlan},
            )
            copies = through_table(installed, Table.EGRESS, sent, {*alive, *vm_numbers(team)})
            assert {copy.port for copy in copies} <= {openflow_port(port.ofport)}
            came_by += [uplink] * len(copies)
        in_force = [u for u in station.order if u in alive][:1]
        assert came_by == (in_force if station.vlan in port.vlans.carried else [])


@given(teams(), st.data())
def test_moving_an_address_changes_one_group(team: Team, data: st.DataObject) -> None:
    if not team.stations:
        return
    index = data.draw(st.integers(0, len(team.stations) - 1))
    anew = list(team.stations)
    order = tuple(data.draw(st.permutations(anew[index].order)))
    anew[index] = replace(anew[index], order=order)
    made = reconcile.changes(build(replace(team, stations=tuple(anew))), build(team))
    assert len(made) == len(made.modify_groups) <= 1


@given(teams())
def test_every_address_with_uplinks_of_its_own_is_counted_in_each_direction(team: Team) -> None:
    flows = build(team).flows.values()
    for kind in (tables.Kind.FROM_ADDRESS, tables.Kind.TO_ADDRESS):
        counted = [tables.cookie_ofport(f.cookie) for f in flows if is_kind(f, kind)]
        assert sorted(counted) == sorted(station.slot for station in team.stations)


def is_kind(flow: FlowSpec, kind: tables.Kind) -> bool:
    return tables.cookie_kind(flow.cookie) is kind


def test_no_vm_port_no_uplink_nothing_but_look_ups() -> None:
    assert build(Team((), ())).groups.keys() == {tables.local_group_id(None)}


# ---- whose address it is -----------------------------------------------------------------


def taken(flows: list[FlowSpec], port: VmPort, vlan: int, **fields: str | int) -> bool:
    """Whether a frame that a VM port sends is taken, by the flows that learn."""
    registers = {Register.VM_PORT.field: port.ofport, Register.VLAN.field: vlan}
    known: Known = dict(frame(**fields, **registers))
    flow = next((f for f in flows if not contradicts(f, known)), None)
    return flow is not None and flow.goto is not None


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


@given(teams(), st.sampled_from(VLANS))
def test_what_is_said_between_switches_is_no_vms_to_say(team: Team, vlan: int) -> None:
    hashed = bool(team.hashes) or any(port.hashed is not None for port in team.vm_ports)
    said: list[dict[str, str | int]] = [
        {"eth_dst": "01:00:0c:cc:cc:cd"},
        {"eth_type": 0x8808},
        {"eth_src": "00:00:00:00:00:00"},
    ]
    said += [{"eth_src": mac} for mac in team.off_home_macs.values() if hashed]
    flows = walk(build(team)).tables[Table.LEARN]
    for port in team.vm_ports:
        own: dict[str, str | int] = {"eth_src": own_mac(port.ofport), "eth_dst": BROADCAST}
        for other in said:
            assert not taken(flows, port, vlan, **{**own, **other})


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
    order = tuple(data.draw(st.permutations(team.vm_ports[index].order)))
    ports = list(team.vm_ports)
    ports[index] = replace(ports[index], order=order)
    made = reconcile.changes(build(replace(team, vm_ports=tuple(ports))), build(team))
    assert len(made) == len(made.modify_groups) <= 1 + len(team.uplinks)


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
    made = reconcile.changes(build(replace(team, vm_ports=tuple(anew))), build(team))
    own: set[tuple[str, MatchValue]] = {("in_port", openflow_port(port.ofport))}
    own |= {(r.field, port.ofport) for r in (Register.VM_PORT, Register.TARGET)}
    own |= {("eth_src", mac) for mac in port.attached_macs}
    for flow in (*made.add_flows, *made.delete_flows):
        in_vlan = dict(flow.match).get(Register.VLAN.field)
        assert set(flow.match) & own or in_vlan in (old, new), flow
    assert all(group_id >> 16 & 0xFF == 0xF0 for group_id in made.delete_groups)
    local = {tables.local_group_id(vlan) for vlan in (old, new)}
    assert {g.group_id for g in (*made.add_groups, *made.modify_groups)} <= local


@given(st.sampled_from(WAYS), st.sampled_from(WAYS))
def test_what_was_learned_on_a_port_goes_when_it_carries_something_else(
    old: PortVlans, new: PortVlans
) -> None:
    cookies = [tables.learned_cookie(OfPort(10), vlans) for vlans in (old, new)]
    assert (cookies[0] == cookies[1]) is (old == new)
    for value in cookies:
        assert tables.cookie_kind(value) is tables.Kind.LEARNED
        assert tables.cookie_ofport(value) == 10


@given(teams())
def test_what_the_switch_learns_is_bounded_for_each_vm_port(team: Team) -> None:
    for flow in build(team).flows.values():
        for action in flow.actions:
            if isinstance(action, Learn):
                ofport = tables.cookie_ofport(action.cookie)
                by_port = ofport or action.cookie & tables.FROM_BENEATH
                bound = tables.ADDRESSES_PER_PORT_MAX if by_port else tables.DEPARTED_MAX
                assert action.limit == bound


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
        group = groups[tables.beneath_group_id(uplink)]
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
        assert all(cookie & tables.FROM_BENEATH for cookie in found)
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
            group = groups[tables.delivery_group_id(port.ofport, index)]
            live = next((b for b in group.buckets if b.watch_port in alive), None)
            if uplink in alive and live is not None and live.actions:
                heard_from.append(uplink)
        assert heard_from == [u for u in port.order if u in alive][:1]


@given(teams(), st.data())
def test_on_a_lag_a_broadcast_is_heard_from_any_live_member(
    team: Team, data: st.DataObject
) -> None:
    """The switch upstream chooses the member; by which a VM port sends is another matter."""
    alive = data.draw(st.sets(st.sampled_from(team.uplinks), min_size=1))
    installed = build(replace(team, hears_everywhere=True))
    for port in team.vm_ports:
        for index, uplink in enumerate(team.uplinks):
            group_id = tables.delivery_group_id(port.ofport, index)
            heard = delivered_by(installed, group_id, port, alive)
            assert heard == (uplink in alive and bool(alive & set(port.order)))


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
        located = {Register.TARGET.field: port.ofport, Register.VLAN.field: vlan}
        tag = vlan and VLAN_PRESENT | vlan
        for uplink in alive:
            came = frame(vlan_vid=tag, **located, **{Register.UPLINK.field: uplink})
            copies = through_table(installed, Table.EGRESS, came, alive)
            expected = [openflow_port(port.ofport)] * bool(alive & set(port.order))
            assert [copy.port for copy in copies] == expected


def delivered_by(
    installed: Pipeline, group_id: int, port: VmPort, alive: Collection[OfPort]
) -> bool:
    """Whether a group delivers to a VM port a frame of a VLAN that it carries."""
    vlan = min(port.vlans.carried)
    tag = vlan and VLAN_PRESENT | vlan
    came = frame(vlan_vid=tag, **{Register.VLAN.field: vlan})
    copies = through_group(installed, group_id, came, alive)
    assert {copy.port for copy in copies} <= {openflow_port(port.ofport)} and len(copies) <= 1
    return bool(copies)


@pytest.mark.parametrize("vlans", WAYS, ids=str)
def test_what_vm_ports_teach_is_not_taken_for_what_unknown_ports_do(vlans: PortVlans) -> None:
    taught = tables.learned_cookie(OfPort(10), vlans)
    assert not taught & tables.FROM_BENEATH
    assert tables.cookie_ofport(taught) == 10
