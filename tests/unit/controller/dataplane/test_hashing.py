"""What hashed VM ports send: once, by the uplink of its bucket, and as switches upstream want it.

Flows and groups are carried out here frame by frame; tests/switch/test_presets.py and test_hashing.py ask a switch.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import TRUNK, PortVlans, access, port_vlans
from controller.dataplane import pipeline, tables
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.pipeline import build
from controller.dataplane.specs import FlowSpec, Pipeline, ToGroup
from controller.dataplane.tables import VLAN_PRESENT, Register, Table
from controller.dataplane.team import Hash, Team, VmPort
from policies.classifiers import BUCKETS, Classifier
from policies.model import OfPort
from tests.ip_hash import ip_hash
from tests.unit.simulator import Copy, as_number, frame, matches, through_group, through_table

UPLINKS = tuple(OfPort(n) for n in (1, 2, 3, 4))
OFF_HOME_MACS = {uplink: f"0a:00:00:00:00:{uplink:02x}" for uplink in UPLINKS}
VM_MAC = "52:54:00:00:00:01"
PEER_MAC = "52:54:00:00:00:99"
ANY_MULTICAST = "01:00:5e:01:02:03"
HASH_TABLES = {Table.HASH, Table.BUCKET, Table.OFF_HOME, Table.IP_NIBBLE}
Addresses = tuple[int, int]


def to_peer(eth_type: int, **fields: int | str) -> dict[str, int]:
    return frame(eth_src=VM_MAC, eth_dst=PEER_MAC, eth_type=eth_type, **fields)


ENDS4 = {"ipv4_src": "192.0.2.1", "ipv4_dst": "198.51.100.3"}
TCP4 = to_peer(0x0800, ip_proto=6, **ENDS4, tcp_src=40001, tcp_dst=80)
ENDS6 = {"ipv6_src": "2001:db8::1", "ipv6_dst": "2001:db8::9"}
UDP6 = to_peer(0x86DD, ip_proto=17, **ENDS6, udp_src=40001, udp_dst=53)
CONNECTIONS = {"TCP over IPv4": TCP4, "UDP over IPv6": UDP6}
TO_A_GROUP = as_number("eth_dst", ANY_MULTICAST)
REPORTS = {
    "IGMP report": {**TCP4, "eth_dst": TO_A_GROUP, "ip_proto": 2},
    "MLD report": {**UDP6, "eth_dst": TO_A_GROUP, "ip_proto": 58, "icmpv6_type": 143},
}
ND_MESSAGE = {**UDP6, "ip_proto": 58, "icmpv6_type": 136}
# What no switch upstream may see from anywhere but the sender's home.
HOME_ONLY = {
    "ARP": frame(eth_src=VM_MAC, eth_dst=tables.BROADCAST, eth_type=0x0806),
    "ARP to one address": to_peer(0x0806),
    "IPv4 multicast": {**TCP4, "eth_dst": TO_A_GROUP},
    "IPv4 broadcast": {**TCP4, "eth_dst": as_number("eth_dst", tables.BROADCAST)},
    "ND advertisement to one address": ND_MESSAGE,
    "ND solicitation": {**ND_MESSAGE, "icmpv6_type": 135},
    "redirect": {**ND_MESSAGE, "icmpv6_type": 137},
    "not IP": to_peer(0x88B5),
    "two tags": to_peer(0x8100),
}
FRAMES = {**CONNECTIONS, **HOME_ONLY, **REPORTS}


def spread(
    classifier: Classifier,
    buckets: tuple[tuple[OfPort, ...], ...],
    order: tuple[OfPort, ...] = UPLINKS[:2],
    vlans: PortVlans = TRUNK,
    **others: Any,
) -> Team:
    """A team of one hashed VM port, number 10, by hash 3."""
    made = Hash(3, classifier, buckets)
    team = Team(UPLINKS, (VmPort(OfPort(10), order, vlans, hashed=3),), hashes=(made,))
    return replace(team, **others)


def sent_by(team: Team, what: dict[str, int], alive: set[OfPort] | None = None) -> list[Copy]:
    """The copies of what VM port 10, whose sources are learned, sends by uplinks."""
    known = {**what, Register.VM_PORT: 10, Register.LEARNED: 1}
    group_id = tables.Group.BINDING.id_of(10)
    return through_group(build(team), group_id, known, alive or set(UPLINKS))


def hash_flows(team: Team) -> list[FlowSpec]:
    return [f for f in build(team).flows.values() if f.table in HASH_TABLES]


# ---- VMware's IP hash ------------------------------------------------------------------


def ip_pair_team(uplinks: int) -> Team:
    """As many uplinks, each of them with a bucket of its own: uplink 1 has bucket 0."""
    numbers = tuple(OfPort(n + 1) for n in range(uplinks))
    made = Hash(3, Classifier.IP_PAIR, tuple((n,) for n in numbers))
    port = VmPort(OfPort(10), numbers, hashed=3)
    return Team(numbers, (port,), hears_everywhere=True, hashes=(made,))


TEAMS_OF = {n: ip_pair_team(n) for n in (*range(1, 10), 12, 16, 32, 33, 64)}
INSTALLED = {n: build(team) for n, team in TEAMS_OF.items()}


def bucket_of(uplinks: int, what: dict[str, int]) -> int:
    alive = set(TEAMS_OF[uplinks].uplinks)
    (copy,) = through_group(INSTALLED[uplinks], tables.Group.BINDING.id_of(10), what, alive)
    return copy.port - 1


@pytest.mark.parametrize(("destination", "bucket"), [(0x412001A0, 0), (0x412001C3, 1)])
def test_ip_hash_as_vmware_computes_it(destination: int, bucket: int) -> None:
    assert bucket_of(2, {**TCP4, "ipv4_src": 0x41200154, "ipv4_dst": destination}) == bucket


ADDRESS = st.integers(0, 2**32 - 1)


@given(st.sampled_from(sorted(TEAMS_OF)), ADDRESS, ADDRESS)
def test_ip_hash_for_any_number_of_uplinks(uplinks: int, source: int, destination: int) -> None:
    expected = ip_hash(IPv4Address(source), IPv4Address(destination), uplinks)
    assert bucket_of(uplinks, {**TCP4, "ipv4_src": source, "ipv4_dst": destination}) == expected
    high = 0x20010DB8 << 96
    over_ipv6 = {**UDP6, "ipv6_src": high | source, "ipv6_dst": destination}
    assert bucket_of(uplinks, over_ipv6) == expected


def test_what_is_not_ip_leaves_by_the_home_under_an_ip_hash() -> None:
    team = TEAMS_OF[4]
    for what in (HOME_ONLY["ARP"], HOME_ONLY["not IP"]):
        (copy,) = sent_by(team, what)
        assert copy.port == team.vm_ports[0].order[0]


# ---- every frame, whatever lives ------------------------------------------------------

CARRIED = (TRUNK, access(7), port_vlans("trunk", None, (0, 7)), port_vlans("trunk", None, (8,)))


@st.composite
def spread_teams(draw: st.DrawFn) -> Team:
    uplink_vlans = {u: draw(st.sampled_from(CARRIED)) for u in UPLINKS}
    vlan = draw(st.sampled_from((0, 7)))
    usable = [u for u in UPLINKS if vlan in uplink_vlans[u].carried]
    order = draw(st.permutations(usable))
    classifier = draw(st.sampled_from([c for c in Classifier if c.hashed]))
    buckets = tuple(
        tuple(draw(st.permutations(UPLINKS))[: draw(st.integers(1, len(UPLINKS)))])
        for _ in range(draw(st.integers(0, 4)))
    )
    dp_hash = draw(st.booleans())
    if dp_hash and classifier is Classifier.TRANSPORT and buckets:
        buckets = tuple(itertools.islice(itertools.cycle(buckets), BUCKETS))
    on_a_lag = draw(st.booleans())
    return spread(
        classifier,
        buckets,
        tuple(order),
        access(vlan),
        uplink_vlans=uplink_vlans,
        hears_everywhere=on_a_lag,
        off_home_macs={} if on_a_lag else draw(st.sampled_from(({}, OFF_HOME_MACS))),
        dp_hash=dp_hash,
    )


# The inner tag of a frame with two does not leave alone, whoever sends it.
WITH_ONE_TAG = sorted(FRAMES.keys() - {"two tags"})


@given(spread_teams(), st.sampled_from(WITH_ONE_TAG), st.booleans(), st.data())
def test_every_frame_leaves_once_by_an_uplink_that_lives_and_carries_its_vlan(
    team: Team, kind: str, learned: bool, data: st.DataObject
) -> None:
    (port,) = team.vm_ports
    (vlan,) = port.vlans.carried
    alive = data.draw(st.sets(st.sampled_from(UPLINKS)))
    what = {**FRAMES[kind], Register.VLAN: vlan, Register.LEARNED: int(learned)}
    what["vlan_vid"] = VLAN_PRESENT | vlan if vlan else 0
    copies = through_group(build(team), tables.Group.BINDING.id_of(10), what, alive)
    if not alive & set(port.order):
        assert copies == []
        return
    (made,) = team.hashes
    if not copies:
        dead = [order for order in made.buckets if not alive & set(order)]
        assert dead, "a bucket that could be carried"
        return
    (copy,) = copies
    assert copy.port in alive
    way = team.uplink_vlans[OfPort(copy.port)]
    assert vlan in way.carried
    assert copy.frame["vlan_vid"] & ~VLAN_PRESENT == way.tag_out(vlan)
    home = next(u for u in port.order if u in alive)
    if kind in HOME_ONLY and made.classifier is Classifier.TRANSPORT and not team.hears_everywhere:
        assert copy.port == home
    by_address = made.classifier.by_address and not team.hears_everywhere
    under_ours = made.classifier is Classifier.TRANSPORT and copy.port != home
    if by_address and made.buckets and kind in REPORTS:
        assert copy.port == home
        under_ours = True
    address = team.off_home_macs.get(OfPort(copy.port), VM_MAC) if under_ours else VM_MAC
    assert copy.frame["eth_src"] == as_number("eth_src", address)
    left_alone = ("eth_dst", "eth_type", "ipv4_src", "ipv6_dst", "tcp_dst")
    assert all(copy.frame.get(f) == what.get(f) for f in left_alone)


@pytest.mark.parametrize("what", CONNECTIONS.values(), ids=CONNECTIONS.keys())
def test_a_connection_off_its_home_has_the_address_of_the_uplink_it_uses(
    what: dict[str, int],
) -> None:
    buckets = tuple((u,) for u in UPLINKS)
    seen = {}
    for source in range(len(buckets)):
        name = "tcp_src" if "tcp_src" in what else "udp_src"
        team = spread(Classifier.TRANSPORT, buckets, off_home_macs=OFF_HOME_MACS)
        (copy,) = sent_by(team, {**what, name: source})
        seen[copy.port] = copy.frame["eth_src"]
    home = team.vm_ports[0].order[0]
    assert seen == {
        u: as_number("eth_src", VM_MAC if u == home else OFF_HOME_MACS[u]) for u in UPLINKS
    }


@pytest.mark.parametrize(
    ("kind", "on_a_lag"),
    [*((kind, False) for kind in HOME_ONLY | REPORTS), *((kind, True) for kind in FRAMES)],
)
def test_a_transport_hash_spreads_what_tells_where_the_sender_is_only_on_a_lag(
    kind: str, on_a_lag: bool
) -> None:
    away, what = ((UPLINKS[3],),) * 4, FRAMES[kind]
    macs = {} if on_a_lag else OFF_HOME_MACS
    team = spread(Classifier.TRANSPORT, away, hears_everywhere=on_a_lag, off_home_macs=macs)
    (copy,) = sent_by(team, what)
    assert copy.port == (UPLINKS[3] if on_a_lag else team.vm_ports[0].order[0])
    assert copy.frame["eth_src"] == what["eth_src"]


@pytest.mark.parametrize("on_a_lag", [False, True])
@pytest.mark.parametrize("kind", FRAMES)
def test_the_datapath_hashes_what_has_ports_and_is_whole(kind: str, on_a_lag: bool) -> None:
    buckets = tuple(itertools.islice(itertools.cycle((u,) for u in UPLINKS), BUCKETS))
    team = spread(Classifier.TRANSPORT, buckets, hears_everywhere=on_a_lag, dp_hash=True)
    installed = build(team)
    for fragment in (0, 1, 3):
        what = {**FRAMES[kind], Register.HASHED: 3, "ip_frag": fragment}
        chosen = [f for f in matching(installed, Table.HASH, what) if f.priority > 0][-1:]
        by_datapath = [ToGroup(tables.SELECT_GROUP_ID)] == [a for f in chosen for a in f.actions]
        has_ports = kind in CONNECTIONS or (kind.startswith("IPv4") and on_a_lag)
        assert by_datapath == (has_ports and fragment == 0), fragment
        assert len(sent_by(team, what)) == 1


def matching(installed: Pipeline, table: Table, what: dict[str, int]) -> list[FlowSpec]:
    """The flows of a table that a frame matches, the one that it takes at the end."""
    found = [f for f in installed.flows.values() if f.table == table and matches(f, what)]
    return sorted(found, key=lambda flow: flow.priority)


def test_a_hash_with_another_number_of_buckets_is_the_switchs() -> None:
    team = spread(Classifier.TRANSPORT, (UPLINKS,) * 4, dp_hash=True)
    users = [f for f in hash_flows(team) if ToGroup(tables.SELECT_GROUP_ID) in f.actions]
    assert not users


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("on_a_lag", [False, True])
def test_a_source_address_stays_on_one_uplink(kind: str, on_a_lag: bool) -> None:
    """But for reports of groups, which come to where the VM port hears them."""
    buckets = tuple((u,) for u in UPLINKS)
    macs = {} if on_a_lag else OFF_HOME_MACS
    team = spread(Classifier.SOURCE_MAC, buckets, hears_everywhere=on_a_lag, off_home_macs=macs)
    (copy,) = sent_by(team, FRAMES[kind])
    if kind in REPORTS and not on_a_lag:
        home = team.vm_ports[0].order[0]
        assert (copy.port, copy.frame["eth_src"]) == (home, as_number("eth_src", macs[home]))
        return
    assert copy.port == buckets[as_number("eth_src", VM_MAC) % len(buckets)][0]
    assert copy.frame["eth_src"] == FRAMES[kind]["eth_src"]


@pytest.mark.parametrize("classifier", [Classifier.SOURCE_MAC, Classifier.SOURCE_MAC_VLAN])
def test_an_address_in_many_vlans_uses_several_uplinks_only_where_vlans_count(
    classifier: Classifier,
) -> None:
    team = spread(classifier, tuple((uplink,) for uplink in UPLINKS))
    sent = (sent_by(team, {**TCP4, Register.VLAN: vlan}) for vlan in range(1, 17))
    used = {copy.port for copies in sent for copy in copies}
    assert (len(used) > 1) == (classifier is Classifier.SOURCE_MAC_VLAN)


@pytest.mark.parametrize(("on_a_lag", "port"), [(False, UPLINKS[0]), (True, UPLINKS[3])])
def test_a_source_address_that_was_not_learned_leaves_where_its_reflection_is_not_heard(
    on_a_lag: bool, port: OfPort
) -> None:
    team = spread(Classifier.SOURCE_MAC, ((UPLINKS[3],),), hears_everywhere=on_a_lag)
    what = {**HOME_ONLY["ARP"], Register.LEARNED: 0}
    (copy,) = through_group(build(team), tables.Group.BINDING.id_of(10), what, set(UPLINKS))
    assert copy.port == port


@pytest.mark.parametrize("eth_dst", [VM_MAC, "52:54:00:00:00:77", tables.BROADCAST])
def test_our_own_frames_that_come_back_are_dropped(eth_dst: str) -> None:
    team = spread(Classifier.TRANSPORT, ((UPLINKS[1],),), off_home_macs=OFF_HOME_MACS)
    came = frame(eth_src=OFF_HOME_MACS[UPLINKS[1]], eth_dst=eth_dst, reg1=int(UPLINKS[0]))
    assert through_table(build(team), Table.FROM_UPLINK, came, set(UPLINKS)) == []
    others = {**came, "eth_src": as_number("eth_src", PEER_MAC)}
    assert through_table(build(team), Table.FROM_UPLINK, others, set(UPLINKS))


# ---- what is installed -----------------------------------------------------------------


@given(spread_teams())
def test_a_hash_adds_its_own_and_changes_the_bindings_of_its_vm_ports_only(team: Team) -> None:
    other = VmPort(OfPort(11), UPLINKS)
    with_hash = replace(team, vm_ports=(*team.vm_ports, other))
    ports = (replace(team.vm_ports[0], hashed=None), other)
    made = pipeline.changes(build(with_hash), build(replace(team, vm_ports=ports, hashes=())))
    assert (SELECT_GROUP in build(with_hash).groups.values()) == team.dp_hash
    assert not made.delete_flows and not made.delete_groups
    assert {g.group_id for g in made.modify_groups} <= {tables.Group.BINDING.id_of(10)}
    ours = {tables.bucket_group_id(3, b) for b in range(len(team.hashes[0].buckets))}
    assert {g.group_id for g in made.add_groups} == ours
    for flow in made.add_flows:
        drops_ours = flow.table in (Table.FROM_UPLINK, Table.LEARN) and not flow.actions
        assert flow.table in HASH_TABLES or drops_ours


@given(spread_teams(), st.data())
def test_a_bucket_moves_by_one_group(team: Team, data: st.DataObject) -> None:
    (made,) = team.hashes
    if not made.buckets:
        return
    index = data.draw(st.integers(0, len(made.buckets) - 1))
    buckets = list(made.buckets)
    buckets[index] = tuple(data.draw(st.permutations(buckets[index])))
    moved = replace(team, hashes=(replace(made, buckets=tuple(buckets)),))
    changes = pipeline.changes(build(moved), build(team))
    assert len(changes) == len(changes.modify_groups) <= 1
