"""Replies: in parts, in several messages, and decoded only when they have changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest

from controller.api.events import (
    Event,
    InboundRead,
    InstalledRead,
    LearnedRead,
    PortStatsRead,
    Sample,
    UnitCountersRead,
)
from controller.dataplane import pipeline, tables
from controller.dataplane.specs import Changes, FlowSpec
from controller.dataplane.tables import Kind, Register, Table, cookie
from controller.dataplane.team import Address, Team, VmPort
from controller.openflow import codec, connections, framing, messages, replies
from controller.openflow.framework import ofproto
from controller.openflow.messages import Asked
from controller.openflow.replies import MOST_COUNTED, ROOM_PER_COUNTED, SHARED_FLOWS, Replies
from policies.model import OFPORT_LOCAL, OfPort
from tests.unit.controller.openflow.switch_bytes import (
    MAC,
    PIPELINE,
    UPLINKS,
    as_stats,
    group_description,
    learned,
    port_stats,
    reply,
    wrapped,
)
from tests.unit.rows import bridge, ours, port


def as_told(replies: Replies, asked: int, entries: Iterable[bytes]) -> Event | None:
    """What the last message of an answer says; it has these entries."""
    others = {Asked.PORTS: ofproto.OFPMP_PORT_STATS, Asked.GROUPS: ofproto.OFPMP_GROUP_DESC}
    kinds = {int(kind): number for kind, number in others.items()}
    kind = kinds.get(messages.asked_of(asked)[0], ofproto.OFPMP_FLOW)
    return replies.event("br0", reply(asked, kind, entries))


def installed(
    replies: Replies, flows: Iterable[bytes], groups: Iterable[bytes] = ()
) -> InstalledRead:
    assert as_told(replies, Asked.FLOWS, flows) is None
    read = as_told(replies, Asked.GROUPS, groups)
    assert isinstance(read, InstalledRead)
    return read


def test_an_answer_has_the_number_of_its_request() -> None:
    here = Replies()
    for number in (0, 7, 0xFFFF):
        of = messages.numbered(number)
        assert as_told(here, Asked.FLOWS + of, ()) is None
        read = as_told(here, Asked.GROUPS + of, ())
        assert isinstance(read, InstalledRead) and read.number == number


def test_what_is_installed_is_decoded_again_only_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded, decode = list[object](), codec.decode_flow

    def decode_and_count(flow: object) -> FlowSpec:
        decoded.append(flow)
        return decode(flow)

    monkeypatch.setattr(codec, "decode_flow", decode_and_count)
    first, second, *_ = sorted(PIPELINE.flows.values(), key=lambda f: f.table != Table.DELIVERY)
    replies = Replies()

    def read(*entries: bytes) -> InstalledRead:
        return installed(replies, entries)

    before = read(as_stats(first, 1, 1.0), learned(10, MAC, 7))
    decoded.clear()
    other = installed(Replies(), [as_stats(first)])
    assert other.flows[0] is before.flows[0] and not decoded, "connections share what is equal"
    same = read(as_stats(first, 2, 9.0))
    assert not decoded
    assert same.flows is before.flows and same.flows == (first,)
    assert read(as_stats(first), as_stats(second)).flows == (first, second)
    assert len(decoded) == 1, "only the new flow is decoded"
    assert read(as_stats(second)).flows == (second,)
    del before, same, other
    assert first not in SHARED_FLOWS.values(), "no connection has this flow any more"


def test_what_uplinks_flood_is_counted_for_each() -> None:
    flows = list(PIPELINE.flows.values())
    read = installed(Replies(), [as_stats(flow, packets=5) for flow in flows])
    counting = [dict(f.match).get(Register.UPLINK) for f in flows if f.table == Table.DELIVERY]
    assert read.flooded == {uplink: 5 * counting.count(uplink) for uplink in UPLINKS}
    assert all(read.flooded.values())


def test_a_reply_in_parts_is_one_answer() -> None:
    replies, kind = Replies(), ofproto.OFPMP_PORT_STATS
    for number in (1, 2):
        part = reply(Asked.PORTS, kind, [port_stats(number)], more=True)
        assert replies.event("br0", part) is None
    read = as_told(replies, Asked.PORTS, [port_stats(3)])
    assert isinstance(read, PortStatsRead)
    assert [port.ofport for port in read.ports] == [1, 2, 3]
    again = as_told(replies, Asked.PORTS, [port_stats(4)])
    assert isinstance(again, PortStatsRead) and len(again.ports) == 1


def test_an_answer_nobody_asked_for_is_ignored() -> None:
    stray = reply(0x1234, ofproto.OFPMP_PORT_STATS, [port_stats(1)])
    assert Replies().event("br0", stray) is None


def counted(value: int, count: int, packets: int = 1) -> bytes:
    """How a switch tells of a flow with this cookie, and of the bytes that it has counted."""
    return as_stats(FlowSpec(5, 10, (), cookie=value), count=count, age_s=2.25, packets=packets)


def test_what_units_exchanged_is_counted_by_a_flow_in_each_direction() -> None:
    replies = Replies()
    to_vm = [counted(cookie(Kind.TO_VM, 10), 111, packets=11)]
    from_vm = [
        counted(cookie(Kind.FROM_VM, 10), 222, packets=22),
        counted(cookie(Kind.FROM_VM, OFPORT_LOCAL), 333, packets=33),
    ]
    assert as_told(replies, Asked.TO_VM, to_vm) is None
    read = as_told(replies, Asked.FROM_VM, from_vm)
    assert read == UnitCountersRead(
        "br0", ((10, Sample(2.25, 222, 111, 22, 11)), (OFPORT_LOCAL, Sample(2.25, 333, 0, 33)))
    )


def test_what_buckets_and_addresses_exchanged_comes_with_what_units_did_once() -> None:
    replies = Replies()
    buckets = [counted(tables.bucket_cookie(*b), n) for b, n in (((0, 0), 111), ((15, 255), 222))]
    sent = [counted(cookie(Kind.FROM_ADDRESS, slot), 100 + slot) for slot in (7, 65535)]
    got = [counted(cookie(Kind.TO_ADDRESS, 7), 55)]
    of_buckets = (((0, 0), Sample(2.25, 111, 0, 1)), ((15, 255), Sample(2.25, 222, 0, 1)))
    of_addresses = ((7, Sample(2.25, 107, 55, 1, 1)), (65535, Sample(2.25, 65635, 0, 1)))
    for asked, flows in (
        (Asked.BUCKETS, buckets),
        (Asked.TO_ADDRESS, got),
        (Asked.FROM_ADDRESS, sent),
    ):
        assert as_told(replies, asked, flows) is None
    read = as_told(replies, Asked.FROM_VM, [])
    assert read == UnitCountersRead("br0", (), of_buckets, of_addresses)
    assert as_told(replies, Asked.FROM_VM, []) == UnitCountersRead("br0", ())


def test_what_uplinks_brought_comes_by_vm_port_and_uplink() -> None:
    highest = 0xFF00
    ends = (10, 1, 111), (OFPORT_LOCAL, highest, 222)
    flows = [counted(tables.inbound_cookie(ofport, uplink), n) for ofport, uplink, n in ends]
    assert as_told(Replies(), Asked.INBOUND, flows) == InboundRead("br0", ends)


# ---- long replies -----------------------------------------------------------------------------

FLOW = as_stats(next(iter(PIPELINE.flows.values())))
LEARNED_FLOW = learned(10, MAC, 7)


def send(taken: Replies, asked: Asked, entries: Sequence[bytes], ends: bool = True) -> Event | None:
    """A reply in messages of at most 500 entries."""
    kind = ofproto.OFPMP_PORT_STATS if asked is Asked.PORTS else ofproto.OFPMP_FLOW
    for at in range(0, len(entries), 500):
        taken.event("br0", reply(asked, kind, entries[at : at + 500], more=True))
    return as_told(taken, asked, []) if ends else None


def taken_before_refusal(taken: Replies, asked: Asked, part: Sequence[bytes]) -> int:
    """How many parts of a reply that does not end are taken."""
    for number in range(100):
        try:
            send(taken, asked, part, ends=False)
        except framing.Malformed:
            return number
    return 100


@pytest.mark.parametrize("room", [0, 10_000])
@pytest.mark.parametrize("asked", [Asked.FLOWS, Asked.FROM_VM, Asked.INBOUND])
def test_a_reply_is_refused_as_soon_as_it_is_too_long(
    asked: Asked, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "MOST_BYTES", 10_000)
    kept = len(FLOW) - 24 if asked is Asked.FLOWS else len(FLOW)
    most = (10_000 + room) // (10 * kept)
    taken = Replies(lambda: room)
    assert taken_before_refusal(taken, asked, [FLOW] * 10) == most


def test_all_unfinished_replies_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "MOST_BYTES", 10 * len(FLOW))
    taken = Replies()
    for asked in (Asked.TO_VM, Asked.FROM_VM):
        send(taken, asked, [FLOW] * 4, ends=False)
    with pytest.raises(framing.Malformed, match="the reply has more than"):
        send(taken, Asked.BUCKETS, [FLOW] * 4, ends=False)


@pytest.mark.parametrize("asked", [Asked.FLOWS, Asked.LEARNED])
def test_learned_flows_take_no_room_but_have_an_end(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "MOST_BYTES", 1000)
    monkeypatch.setattr(replies, "MOST_READ_BYTES", 50_000)
    most = 50_000 // (50 * len(LEARNED_FLOW))
    assert taken_before_refusal(Replies(), asked, [LEARNED_FLOW] * 50) == most


@pytest.mark.parametrize("ports", [0, 1000])
def test_more_counters_than_ports_can_have_are_refused(ports: int) -> None:
    taken = Replies(lambda: ports * ROOM_PER_COUNTED)
    most = MOST_COUNTED + ports
    entries = [port_stats(number) for number in range(most + 1)]
    assert send(taken, Asked.PORTS, entries[1:]) is not None
    with pytest.raises(framing.Malformed, match=f"{most + 1} counters; expected at most {most}"):
        send(taken, Asked.PORTS, entries)


def of_ports(addresses: Mapping[int, int]) -> Counter[int]:
    """How many addresses of each port are kept if it has that many."""
    flow, entries = bytearray(LEARNED_FLOW), []
    at = flow.index(bytes.fromhex(MAC.replace(":", "")))
    for ofport, count in addresses.items():
        flow[24:32] = cookie(Kind.LEARNED, ofport).to_bytes(8, "big")
        for number in range(count):
            flow[at + 2 : at + 6] = number.to_bytes(4, "big")
            entries.append(bytes(flow))
    found = send(Replies(), Asked.LEARNED, entries)
    assert isinstance(found, LearnedRead)
    return Counter(ofport for ofport, _, _ in found.addresses)


def test_a_port_with_countless_addresses_takes_no_room_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("KEPT_OF_A_PORT", 3), ("KEPT_OF_ALL", 40), ("MOST_KEPT", 60)):
        monkeypatch.setattr(replies, name, value)
    assert of_ports({1: 40}) == {1: 40}
    assert of_ports({1: 100, 2: 2, 3: 9}) == {1: 40, 2: 2, 3: 3}
    assert of_ports(dict.fromkeys(range(1, 100), 3)).total() == 60


@pytest.mark.slow
def test_addresses_with_uplinks_of_their_own_have_room() -> None:
    """Each of 256 addresses behind a VM port has three flows, and a group of all uplinks."""
    count = 4
    uplinks = tuple(map(OfPort, range(1, 9)))
    vm_ports = [VmPort(OfPort(100 + i), uplinks, hashed=tables.ASSIGNED) for i in range(count)]
    found = [
        Address(n, OfPort(100 + n % count), f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", 0, uplinks)
        for n in range(256 * count)
    ]
    built = pipeline.build(Team(uplinks=uplinks, vm_ports=tuple(vm_ports), addresses=tuple(found)))
    groups = wrapped(Changes(add_groups=tuple(built.groups.values())))
    needed = sum(len(as_stats(flow)) for flow in built.flows.values())
    needed += sum(map(len, map(group_description, groups)))
    rows = (port(f"vnet{i}", 100 + i, ours(unit="source-mac")) for i in range(count))
    room = connections.room(bridge(*rows))
    assert needed < room / 2
    assert 256 * count < room / ROOM_PER_COUNTED


def test_an_address_that_announced_itself_outside_is_elsewhere() -> None:
    entries = [
        learned(tables.ELSEWHERE, MAC, (7, 0xFFF), taught_by=0),
        learned(10, MAC, (8, 0xFFF)),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert read == LearnedRead("br0", ((10, MAC, 8),), elsewhere=((MAC, 7),))


def test_learned_addresses_are_those_behind_vm_ports_once_each() -> None:
    other = "52:54:00:00:00:02"
    entries = [
        learned(10, MAC, (7, 0xFFF)),
        learned(10, MAC, (7, 0xFFF)),
        learned(OFPORT_LOCAL, other, None),
        learned(0, "52:54:00:00:00:03", 7),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert isinstance(read, LearnedRead)
    assert read.addresses == ((10, MAC, 7), (OFPORT_LOCAL, other, 0))


def test_what_unknown_ports_taught_comes_with_the_port_and_with_the_vlan_of_tagged_frames() -> None:
    entries = [
        learned(11, MAC, None, taught_by=tables.FROM_NORMAL | 0x1234),
        learned(10, MAC, (7, 0xFFF), taught_by=tables.FROM_NORMAL),
    ]
    read = Replies().event("br0", reply(Asked.LEARNED, ofproto.OFPMP_FLOW, entries))
    assert read == LearnedRead("br0", (), ((10, MAC, 7), (11, MAC, None)))
