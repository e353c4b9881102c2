"""The OpenFlow pipeline: table ids, registers, cookies, group ids and the specs they make.

docs/architecture.md draws it. A spec is a value: two that are equal install the same flow
or group. Flows of ours carry `COOKIE_PREFIX`, groups lie in `GROUP_IDS`; nothing else on
the bridge is ours.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from controller.config import MAX_UPLINKS, OFPORT_LOCAL
from policies.model import OfPort

OFPP_LOCAL = 0xFFFFFFFE
OFPP_NORMAL = 0xFFFFFFFA


class Table(IntEnum):
    """What each table does; numbers from LOCATION on are look-ups that return."""

    CLASSIFY = 0
    LEARN = 1
    FROM_UPLINK = 2
    DESTINATION = 3
    EGRESS = 4
    UPLINK_OUT = 5
    # 6 is kept for the buckets of hashed units.
    REFLECTION = 7
    DEPARTURE = 8
    DELIVERY = 9
    LOCATION = 20
    LOCAL_SOURCE = 21
    LOCK = 22
    ANNOUNCEMENT = 23
    SAME_NIBBLE = 24
    GRATUITOUS = 25
    SET_LOCK = 26
    UNCACHE_FIRST = 27
    UNCACHE_AGAIN = 28


class Register(IntEnum):
    """Registers, by number. Zero means "not set" in each."""

    VM_PORT = 0  # ofport the frame came in by, when that is a VM port
    UPLINK = 1  # ofport the frame came in by, when that is an uplink
    VLAN = 2  # VLAN id; 0 for untagged frames
    TARGET = 3  # VM port the destination address is behind, or ELSEWHERE
    LOCAL = 4  # 1: the source address is behind a VM port
    LOCKED = 5  # 1: the source address announced itself from here a moment ago
    ANNOUNCES = 6  # 1: the frame announces its source address
    NIBBLES = 7  # bits 0-3 and 4-7 are compared; bit 8 says that some pair differed
    BENEATH = 8  # 1: the frame is left to what is underneath our pipeline

    @property
    def field(self) -> str:
        return f"reg{self.value}"


ELSEWHERE = 0xFFFF
LEARNED_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 5

COOKIE_PREFIX = 0x6C6274 << 40
COOKIE_PREFIX_MASK = 0xFFFFFF << 40
COOKIE_KIND_MASK = COOKIE_PREFIX_MASK | 0xFF << 32


class Kind(IntEnum):
    """What a flow's cookie says it is; the low 32 bits are the ofport it belongs to."""

    FIXED = 0
    FROM_VM = 1  # counts what a VM port sends to uplinks
    TO_VM = 2  # counts what uplinks bring for a VM port
    LEARNED = 3  # made by the switch itself: never ours to compare


GROUP_IDS = range(0x6C000000, 0x6D000000)
_LOCAL_BUM_SLOT = 0xF0
_LOCAL_BUM_ANY_VLAN = 0xFFFF
_BENEATH_SLOT = 0xF1
# In the cookie of what unknown ports teach, where other learned flows have an ofport.
FROM_BENEATH = 1 << 31

# Reserved multicast (IEEE 802.1D table 7-10): a bridge never forwards it.
RESERVED_MULTICAST = ("01:80:c2:00:00:00", "ff:ff:ff:ff:ff:f0")
MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")
UNICAST = ("00:00:00:00:00:00", "01:00:00:00:00:00")
BROADCAST = "ff:ff:ff:ff:ff:ff"
VLAN_PRESENT = 0x1000
VLAN_ID_BITS = 12
ETH_ARP, ETH_RARP, ETH_IPV4, ETH_IPV6 = 0x0806, 0x8035, 0x0800, 0x86DD
IGMP, ICMPV6 = 2, 58
ND_ADVERTISEMENT = 136
MLD_REPORTS = (131, 132, 143)
ALL_HOSTS = "224.0.0.1"

MatchValue = int | str | tuple[int, int] | tuple[str, str]
Match = tuple[tuple[str, MatchValue], ...]


# ---- actions ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    port: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    group_id: int


@dataclass(frozen=True, slots=True)
class SetField:
    field: str
    value: int


@dataclass(frozen=True, slots=True)
class CopyBits:
    """Copy `bits` bits of one field to another."""

    source: str
    source_bit: int
    target: str
    target_bit: int
    bits: int


@dataclass(frozen=True, slots=True)
class LoadBits:
    """Set `bits` bits of a register."""

    target: str
    target_bit: int
    bits: int
    value: int


@dataclass(frozen=True, slots=True)
class PushVlan:
    pass


@dataclass(frozen=True, slots=True)
class PopVlan:
    pass


@dataclass(frozen=True, slots=True)
class Resubmit:
    table: int


@dataclass(frozen=True, slots=True)
class LearnMatch:
    """The learned flow matches `target` on the frame's present value of `source`."""

    source: str
    target: str
    bits: int


@dataclass(frozen=True, slots=True)
class LearnLoad:
    """The learned flow loads a constant, or the frame's present value of a field."""

    source: str | int
    target: str
    bits: int


@dataclass(frozen=True, slots=True)
class Learn:
    """Add a flow to `table`. `delete_learned`: it goes when the flow that taught it goes."""

    table: int
    cookie: int
    hard_timeout_s: int
    specs: tuple[LearnMatch | LearnLoad, ...]
    delete_learned: bool = False
    priority: int = 10


Action = Output | ToGroup | SetField | CopyBits | LoadBits | PushVlan | PopVlan | Resubmit | Learn


# ---- specs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow. (table, priority, match) identify it; the rest is what it does."""

    table: int
    priority: int
    match: Match
    actions: tuple[Action, ...] = ()
    goto: int | None = None
    cookie: int = COOKIE_PREFIX

    @property
    def key(self) -> tuple[int, int, Match]:
        return (self.table, self.priority, self.match)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A group's bucket; `watch_port` None: not watched (only in ALL groups)."""

    actions: tuple[Action, ...]
    watch_port: int | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`kind` is `ff` (fast failover: the first live bucket) or `all`."""

    group_id: int
    kind: str
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class VmPort:
    """A VM port as the pipeline needs it; `order`: its uplinks' ofports, the one in force first."""

    ofport: OfPort
    order: tuple[OfPort, ...]
    access_vlan: int | None = None
    attached_mac: str | None = None


@dataclass(frozen=True, slots=True)
class Team:
    """One bridge as the pipeline needs it.

    `uplinks` in configured order (their positions number the delivery groups).
    `hears_everywhere`: the upstream switch sends one copy only (static LAG, LACP), so a VM
    port accepts broadcast from any uplink. `over_normal`: what we do not know is left to
    the flows underneath (a bond's NORMAL) instead of dropped.

    `no_flood`: the ports that NORMAL does not flood to. While all VM ports are among them,
    NORMAL is given what uplinks flood, for ports that came while the service was dead; else
    it would deliver a second copy. `normal_takes_any`: NORMAL takes unicast from whichever
    uplink it comes by (balance-slb), so it is given what is flooded by one uplink only.
    """

    uplinks: tuple[OfPort, ...]
    vm_ports: tuple[VmPort, ...]
    hears_everywhere: bool = False
    over_normal: bool = False
    normal_takes_any: bool = False
    no_flood: frozenset[int] = frozenset()

    @property
    def floods_beneath(self) -> bool:
        """Whether NORMAL is given what uplinks flood."""
        return self.over_normal and self.no_flood.issuperset(p.ofport for p in self.vm_ports)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All flows and groups that a bridge should have from us."""

    flows: Mapping[tuple[int, int, Match], FlowSpec]
    groups: Mapping[int, GroupSpec]


EMPTY = Pipeline({}, {})


def build(team: Team) -> Pipeline:
    """The pipeline of a team; a pure function of it."""
    flows = [*_lookup_flows(), *_reflection_flows(team)]
    for uplink in team.uplinks:
        flows += _uplink_flows(uplink, team)
    for port in team.vm_ports:
        flows += _vm_port_flows(port)
    flows += _destination_flows(team)
    flows += _unknown_port_flows(team)
    groups = [_binding_group(port) for port in team.vm_ports]
    groups += [_local_group(vlan, team) for vlan in _vlans(team)]
    groups += [
        _delivery_group(port, uplink, team) for port in team.vm_ports for uplink in team.uplinks
    ]
    if team.floods_beneath and team.normal_takes_any:
        groups += [_beneath_group(uplink, team) for uplink in team.uplinks]
    return Pipeline({f.key: f for f in flows}, {g.group_id: g for g in groups})


def binding_group_id(ofport: int) -> int:
    """The group that carries a VM port's traffic to its uplink."""
    return GROUP_IDS.start | ofport


def delivery_group_id(ofport: int, uplink_index: int) -> int:
    """The group that delivers to a VM port what an uplink broadcasts."""
    return GROUP_IDS.start | (uplink_index + 1) << 16 | ofport


def local_group_id(vlan: int | None) -> int:
    """The group of the local VM ports of a VLAN (None: those that carry any VLAN)."""
    return GROUP_IDS.start | _LOCAL_BUM_SLOT << 16 | (_LOCAL_BUM_ANY_VLAN if vlan is None else vlan)


def beneath_group_id(uplink: int) -> int:
    """The group that gives NORMAL the unicast that an uplink floods."""
    return GROUP_IDS.start | _BENEATH_SLOT << 16 | uplink


def no_flood(installed: Pipeline) -> frozenset[int] | None:
    """The ports that have the flag where this is installed; None: it does not tell.

    The switch forgets flows and flags together, so the ones tell of the others.
    """
    flows = installed.flows.values()
    flooded = [f for f in flows if (Register.BENEATH.field, 1) not in f.match]
    if not any(f.table == Table.DELIVERY and _TO_NORMAL in f.actions for f in flooded):
        return None
    return frozenset(
        f.cookie & 0xFFFFFFFF
        for f in flows
        if f.table == Table.UPLINK_OUT and cookie_kind(f.cookie) is Kind.FROM_VM
    )


def opens(old: GroupSpec, new: GroupSpec) -> bool:
    """Whether a delivery group will deliver where it did not: fewer uplinks come before it."""
    slot = (new.group_id - GROUP_IDS.start) >> 16
    if not 1 <= slot <= MAX_UPLINKS or not _delivers(new):
        return False
    return not _delivers(old) or not _yields_to(new) >= _yields_to(old)


def _delivers(group: GroupSpec) -> bool:
    return any(bucket.actions for bucket in group.buckets)


def _yields_to(group: GroupSpec) -> set[int | None]:
    return {bucket.watch_port for bucket in group.buckets if not bucket.actions}


def cookie(kind: Kind, ofport: int) -> int:
    return COOKIE_PREFIX | kind << 32 | ofport


def cookie_kind(value: int) -> Kind | None:
    """What a flow of ours is; None for somebody else's."""
    if value & COOKIE_PREFIX_MASK != COOKIE_PREFIX:
        return None
    return Kind(value >> 32 & 0xFF)


def match(**fields: MatchValue) -> Match:
    return tuple(sorted(fields.items()))


def openflow_port(ofport: int) -> int:
    """An ofport as OpenFlow 1.3 writes it: LOCAL is 32 bits wide there, 16 in registers."""
    return OFPP_LOCAL if ofport == OFPORT_LOCAL else ofport


# ---- tables ----------------------------------------------------------------------------


def _uplink_flows(uplink: OfPort, team: Team) -> Iterator[FlowSpec]:
    port = openflow_port(uplink)
    yield from _never_forwarded(port)
    yield FlowSpec(
        Table.CLASSIFY,
        100,
        match(in_port=port),
        (
            SetField(Register.UPLINK.field, uplink),
            CopyBits("vlan_tci", 0, Register.VLAN.field, 0, VLAN_ID_BITS),
        ),
        goto=Table.FROM_UPLINK,
    )
    for vlan in _vlans(team):
        listeners = _carrying(vlan, team.vm_ports)
        index = team.uplinks.index(uplink)
        deliver = tuple(ToGroup(delivery_group_id(p.ofport, index)) for p in listeners)
        priority = 10 if vlan is None else 20
        by_uplink: dict[str, MatchValue] = {Register.UPLINK.field: uplink}
        beneath: tuple[Action, ...] = (_TO_NORMAL,) if team.floods_beneath else ()
        if beneath and team.normal_takes_any:
            unicast = _in_vlan(vlan, eth_dst=UNICAST, **by_uplink)
            once = (*deliver, ToGroup(beneath_group_id(uplink)))
            yield FlowSpec(Table.DELIVERY, priority + 5, unicast, once)
        yield FlowSpec(Table.DELIVERY, priority, _in_vlan(vlan, **by_uplink), (*deliver, *beneath))


def _vm_port_flows(port: VmPort) -> Iterator[FlowSpec]:
    yield from _classify_vm_port(port)
    yield from _learn_from_vm_port(port)
    target: dict[str, MatchValue] = {Register.TARGET.field: port.ofport}
    to_port: tuple[Action, ...] = (Output(openflow_port(port.ofport)),)
    if port.access_vlan:
        # The switch takes pop_vlan only in a flow that matches tagged frames.
        target["vlan_vid"] = (VLAN_PRESENT, VLAN_PRESENT)
        to_port = (PopVlan(), *to_port)
    yield FlowSpec(Table.EGRESS, 20, match(**target), to_port)
    yield FlowSpec(
        Table.EGRESS,
        30,
        match(**target, **{Register.VM_PORT.field: 0}),
        to_port,
        cookie=cookie(Kind.TO_VM, port.ofport),
    )
    yield FlowSpec(
        Table.UPLINK_OUT,
        10,
        match(**{Register.VM_PORT.field: port.ofport}),
        (ToGroup(binding_group_id(port.ofport)),),
        cookie=cookie(Kind.FROM_VM, port.ofport),
    )
    if port.attached_mac:
        vlan = {Register.VLAN.field: port.access_vlan or 0}
        yield FlowSpec(
            Table.LOCATION,
            5,
            match(eth_dst=port.attached_mac, **vlan),
            (SetField(Register.TARGET.field, port.ofport),),
        )
        yield FlowSpec(
            Table.LOCAL_SOURCE,
            5,
            match(eth_src=port.attached_mac, **vlan),
            (SetField(Register.LOCAL.field, 1),),
        )


def _never_forwarded(port: int) -> Iterator[FlowSpec]:
    """Reserved multicast, and frames that claim to come from a multicast address."""
    yield FlowSpec(Table.CLASSIFY, 120, match(in_port=port, eth_dst=RESERVED_MULTICAST))
    yield FlowSpec(Table.CLASSIFY, 120, match(in_port=port, eth_src=MULTICAST))


def _classify_vm_port(port: VmPort) -> Iterator[FlowSpec]:
    """Give every frame its VLAN; an access port's frames travel tagged inside."""
    in_port = openflow_port(port.ofport)
    known = SetField(Register.VM_PORT.field, port.ofport)
    yield from _never_forwarded(in_port)
    if port.access_vlan is None:
        vlan = CopyBits("vlan_tci", 0, Register.VLAN.field, 0, VLAN_ID_BITS)
        yield FlowSpec(Table.CLASSIFY, 100, match(in_port=in_port), (known, vlan), goto=Table.LEARN)
        return
    in_vlan = (known, SetField(Register.VLAN.field, port.access_vlan))
    tag = SetField("vlan_vid", VLAN_PRESENT | port.access_vlan)
    untagged = match(in_port=in_port, vlan_vid=0)
    priority_tagged = match(in_port=in_port, vlan_vid=VLAN_PRESENT)
    push, retag = ((PushVlan(), tag), (tag,)) if port.access_vlan else ((), (PopVlan(),))
    yield FlowSpec(Table.CLASSIFY, 110, untagged, (*in_vlan, *push), goto=Table.LEARN)
    yield FlowSpec(Table.CLASSIFY, 110, priority_tagged, (*in_vlan, *retag), goto=Table.LEARN)
    yield FlowSpec(Table.CLASSIFY, 100, match(in_port=in_port))


def _learn_from_vm_port(port: VmPort) -> Iterator[FlowSpec]:
    """Learn where the source is: what is sent to it, and what it sent and comes back.

    `hard_timeout`, as every relearning refreshes it; an idle timeout would be refreshed by
    reflections and keep an address alive that has left.
    """
    learned = cookie(Kind.LEARNED, port.ofport)
    learn = (
        Learn(
            Table.LOCATION,
            learned,
            LEARNED_TIMEOUT_S,
            (
                _SAME_VLAN,
                LearnMatch("eth_src", "eth_dst", 48),
                LearnLoad(Register.VM_PORT.field, Register.TARGET.field, 16),
            ),
            delete_learned=True,
        ),
        Learn(
            Table.LOCAL_SOURCE,
            learned,
            LEARNED_TIMEOUT_S,
            (
                _SAME_VLAN,
                LearnMatch("eth_src", "eth_src", 48),
                LearnLoad(1, Register.LOCAL.field, 1),
            ),
            delete_learned=True,
        ),
    )
    from_port = {Register.VM_PORT.field: port.ofport}
    lock = (
        Resubmit(Table.ANNOUNCEMENT),
        Resubmit(Table.LOCK),
        Resubmit(Table.SET_LOCK),
    )
    yield FlowSpec(Table.LEARN, 10, match(**from_port), learn, goto=Table.DESTINATION)
    yield FlowSpec(
        Table.LEARN,
        20,
        match(eth_dst=MULTICAST, **from_port),
        (*learn, *lock),
        goto=Table.DESTINATION,
    )


def _destination_flows(team: Team) -> Iterator[FlowSpec]:
    """Frames from VM ports: to the VM port that is known, else out by the sender's uplink."""
    yield FlowSpec(
        Table.DESTINATION, 10, match(eth_dst=UNICAST), (Resubmit(Table.LOCATION),), Table.EGRESS
    )
    for vlan in _vlans(team):
        yield FlowSpec(
            Table.DESTINATION,
            10 if vlan is None else 20,
            _in_vlan(vlan, eth_dst=MULTICAST),
            (ToGroup(local_group_id(vlan)),),
            goto=Table.UPLINK_OUT,
        )
    # A report overheard silences other members (RFC 2236 §3, RFC 2710 §4), which would
    # cost them their group at another uplink's snooping switch: reports only go upstream.
    reports = [match(eth_type=ETH_IPV4, ip_proto=IGMP)]
    reports += [match(eth_type=ETH_IPV6, ip_proto=ICMPV6, icmpv6_type=t) for t in MLD_REPORTS]
    for report in reports:
        yield FlowSpec(Table.DESTINATION, 40, report, goto=Table.UPLINK_OUT)
    general_query: dict[str, MatchValue] = {
        "eth_type": ETH_IPV4,
        "ip_proto": IGMP,
        "ipv4_dst": ALL_HOSTS,
    }
    for vlan in _vlans(team):
        yield FlowSpec(
            Table.DESTINATION,
            50 if vlan is None else 60,
            _in_vlan(vlan, **general_query),
            (ToGroup(local_group_id(vlan)),),
            goto=Table.UPLINK_OUT,
        )
    # Known VM ports are handled above these; no address there, or one known to be elsewhere.
    for unknown in (0, ELSEWHERE):
        target = {Register.TARGET.field: unknown}
        yield FlowSpec(
            Table.EGRESS,
            10,
            match(**target, **{Register.UPLINK.field: 0}),
            goto=Table.UPLINK_OUT,
        )
        yield FlowSpec(
            Table.EGRESS,
            5,
            match(**target),
            (Resubmit(Table.LOCAL_SOURCE),),
            goto=Table.REFLECTION,
        )


def _reflection_flows(team: Team) -> Iterator[FlowSpec]:
    """Frames from uplinks: what we sent comes back and is dropped, unless it says "I moved"."""
    local = {Register.LOCAL.field: 1}
    yield FlowSpec(
        Table.FROM_UPLINK, 10, match(eth_dst=UNICAST), (Resubmit(Table.LOCATION),), Table.EGRESS
    )
    yield FlowSpec(
        Table.FROM_UPLINK,
        10,
        match(eth_dst=MULTICAST),
        (Resubmit(Table.LOCAL_SOURCE),),
        Table.REFLECTION,
    )
    yield FlowSpec(Table.REFLECTION, 10, match(**{Register.LOCAL.field: 0}), (), Table.DELIVERY)
    yield FlowSpec(
        Table.REFLECTION,
        10,
        match(eth_dst=MULTICAST, **local),
        (Resubmit(Table.ANNOUNCEMENT), Resubmit(Table.LOCK)),
        Table.DEPARTURE,
    )
    elsewhere = cookie(Kind.LEARNED, 0)
    yield FlowSpec(
        Table.DEPARTURE,
        10,
        match(**{Register.ANNOUNCES.field: 1, Register.LOCKED.field: 0}),
        (
            Learn(
                Table.LOCATION,
                elsewhere,
                LEARNED_TIMEOUT_S,
                (
                    _SAME_VLAN,
                    LearnMatch("eth_src", "eth_dst", 48),
                    LearnLoad(ELSEWHERE, Register.TARGET.field, 16),
                ),
            ),
            Learn(
                Table.LOCAL_SOURCE,
                elsewhere,
                LEARNED_TIMEOUT_S,
                (
                    _SAME_VLAN,
                    LearnMatch("eth_src", "eth_src", 48),
                    LearnLoad(0, Register.LOCAL.field, 1),
                ),
            ),
            Resubmit(Table.UNCACHE_FIRST),
        ),
        goto=Table.DELIVERY,
    )
    yield FlowSpec(
        Table.DEPARTURE,
        10,
        match(**{Register.ANNOUNCES.field: 1, Register.LOCKED.field: 1}),
        (Resubmit(Table.UNCACHE_AGAIN),),
    )


def _lookup_flows() -> Iterator[FlowSpec]:
    """Is this frame an announcement: RARP, unsolicited NA, or ARP about its own address?"""
    announces = SetField(Register.ANNOUNCES.field, 1)
    yield FlowSpec(
        Table.ANNOUNCEMENT, 10, match(eth_type=ETH_RARP, eth_dst=BROADCAST), (announces,)
    )
    yield FlowSpec(
        Table.ANNOUNCEMENT,
        10,
        match(eth_type=ETH_IPV6, ip_proto=ICMPV6, icmpv6_type=ND_ADVERTISEMENT, eth_dst=MULTICAST),
        (announces,),
    )
    compare: list[Action] = []
    for bit in range(0, 32, 4):
        for index, field in enumerate(("arp_spa", "arp_tpa")):
            compare.append(CopyBits(field, bit, Register.NIBBLES.field, 4 * index, 4))
        compare.append(Resubmit(Table.SAME_NIBBLE))
    yield FlowSpec(
        Table.ANNOUNCEMENT,
        10,
        match(eth_type=ETH_ARP, eth_dst=BROADCAST),
        (*compare, Resubmit(Table.GRATUITOUS)),
    )
    # OpenFlow cannot compare two fields; 16 flows compare four bits at a time.
    for nibble in range(16):
        same = (nibble << 4 | nibble, 0xFF)
        yield FlowSpec(Table.SAME_NIBBLE, 10, match(**{Register.NIBBLES.field: same}))
    yield FlowSpec(Table.SAME_NIBBLE, 0, (), (LoadBits(Register.NIBBLES.field, 8, 1, 1),))
    yield FlowSpec(
        Table.GRATUITOUS, 10, match(**{Register.NIBBLES.field: (0, 0x100)}), (announces,)
    )
    lock = Learn(
        Table.LOCK,
        cookie(Kind.LEARNED, 0),
        LOCK_TIMEOUT_S,
        (
            _SAME_VLAN,
            LearnMatch("eth_src", "eth_src", 48),
            LearnLoad(1, Register.LOCKED.field, 1),
        ),
    )
    # An announcement that is forwarded from the switch's flow cache sets no lock, and its
    # reflection sees none. With and without a lock both therefore depend on another bit (of
    # pkt_mark, but any would do): when the lock comes or ends, revalidation finds the cached
    # flow too wide and deletes it.
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        yield FlowSpec(
            Table.SET_LOCK,
            10,
            match(**{Register.ANNOUNCES.field: 1, Register.LOCKED.field: locked}),
            (lock, Resubmit(table)),
        )
        yield FlowSpec(table, 10, match(pkt_mark=(0, 1 << locked)))


def _unknown_port_flows(team: Team) -> Iterator[FlowSpec]:
    """Without a bond underneath, NORMAL would join the uplinks into a loop: drop instead.

    Over a bond, frames from a port that nobody told us about (its VM was started while the
    service was dead) go on to NORMAL, but are learned from first: unicast from uplinks for
    such an address is then left to NORMAL, and not delivered to the port of before the VM's
    power cycle. And what comes back of its broadcasts is dropped, as any reflection; that is
    learned for a moment only, as each frame does it anew, and the VM may leave while nobody
    tells us. The VLAN of an untagged frame is not known here, so its address is learned for
    all of them. What was learned is forgotten whenever the ports without flooding change:
    the flow that taught it goes, for the cookie is another one.
    """
    if not team.over_normal:
        yield FlowSpec(Table.CLASSIFY, 1, ())
        return
    numbers = ",".join(map(str, sorted(team.no_flood))).encode()
    taught = cookie(Kind.LEARNED, FROM_BENEATH | zlib.crc32(numbers))
    tag = LearnMatch("vlan_tci", Register.VLAN.field, VLAN_ID_BITS)
    for tags, vlan in ((0, ()), ((VLAN_PRESENT, VLAN_PRESENT), (tag,))):
        located: tuple[LearnMatch | LearnLoad, ...] = (
            *vlan,
            LearnMatch("eth_src", "eth_dst", 48),
            LearnLoad("in_port", Register.TARGET.field, 16),
        )
        local: tuple[LearnMatch | LearnLoad, ...] = (
            *vlan,
            LearnMatch("eth_src", "eth_src", 48),
            LearnLoad(1, Register.LOCAL.field, 1),
        )
        yield FlowSpec(
            Table.CLASSIFY,
            1,
            match(vlan_vid=tags, eth_src=UNICAST, **{Register.BENEATH.field: 0}),
            (
                SetField(Register.BENEATH.field, 1),
                Learn(Table.LOCATION, taught, LEARNED_TIMEOUT_S, located, True, priority=20),
                Learn(Table.LOCAL_SOURCE, taught, LOCK_TIMEOUT_S, local, True, priority=20),
                Resubmit(Table.CLASSIFY),
            ),
        )
    # The known ports' flows in this table come first, and so do those for no port at all.
    yield FlowSpec(Table.EGRESS, 3, match(**{Register.UPLINK.field: 0}), goto=Table.UPLINK_OUT)
    for uplink in team.uplinks:
        by_uplink: dict[str, MatchValue] = {Register.UPLINK.field: uplink}
        left = match(**by_uplink, **{Register.BENEATH.field: 1})
        yield FlowSpec(Table.DELIVERY, 40, left, (_TO_NORMAL,))
        yield FlowSpec(
            Table.EGRESS,
            3,
            match(**by_uplink),
            (SetField(Register.BENEATH.field, 1), Resubmit(Table.LOCAL_SOURCE)),
            goto=Table.REFLECTION,
        )


# ---- groups ----------------------------------------------------------------------------


def _binding_group(port: VmPort) -> GroupSpec:
    """To the first live uplink of the port's order; the switch itself fails over."""
    buckets = tuple(
        Bucket((Output(openflow_port(uplink)),), watch_port=openflow_port(uplink))
        for uplink in port.order
    )
    return GroupSpec(binding_group_id(port.ofport), "ff", buckets)


def _delivery_group(port: VmPort, uplink: OfPort, team: Team) -> GroupSpec:
    """What `uplink` broadcasts reaches the port only while no uplink before it lives.

    The buckets before have no actions: the frame came by another uplink too, and is
    delivered there. So there is one copy, also in a failover nobody told us about.
    """
    pop = (PopVlan(),) if port.access_vlan else ()
    deliver = (*pop, Output(openflow_port(port.ofport)))
    before = () if team.hears_everywhere else port.order
    buckets: list[Bucket] = []
    if uplink in port.order:
        if uplink in before:
            before = before[: before.index(uplink)]
        buckets = [Bucket((), watch_port=openflow_port(u)) for u in before]
        buckets.append(Bucket(deliver, watch_port=openflow_port(uplink)))
    group_id = delivery_group_id(port.ofport, team.uplinks.index(uplink))
    return GroupSpec(group_id, "ff", tuple(buckets))


def _beneath_group(uplink: OfPort, team: Team) -> GroupSpec:
    """Only from the first uplink that lives: flooded unicast comes by each of them."""
    before = team.uplinks[: team.uplinks.index(uplink)]
    buckets = [Bucket((), watch_port=openflow_port(u)) for u in before]
    buckets.append(Bucket((_TO_NORMAL,), watch_port=openflow_port(uplink)))
    return GroupSpec(beneath_group_id(uplink), "ff", tuple(buckets))


def _local_group(vlan: int | None, team: Team) -> GroupSpec:
    """Every local VM port of a VLAN; the switch leaves out the port a frame came in by."""
    buckets = tuple(
        Bucket((*((PopVlan(),) if p.access_vlan else ()), Output(openflow_port(p.ofport))))
        for p in _carrying(vlan, team.vm_ports)
    )
    return GroupSpec(local_group_id(vlan), "all", buckets)


def _vlans(team: Team) -> list[int | None]:
    """VLANs with access ports, and None for every other one."""
    return [None, *sorted({p.access_vlan for p in team.vm_ports if p.access_vlan is not None})]


def _carrying(vlan: int | None, ports: Iterable[VmPort]) -> list[VmPort]:
    """The ports that hear a VLAN: its access ports and those that carry any."""
    return [p for p in ports if p.access_vlan is None or p.access_vlan == vlan]


def _in_vlan(vlan: int | None, **fields: MatchValue) -> Match:
    return match(**fields) if vlan is None else match(**fields, **{Register.VLAN.field: vlan})


_TO_NORMAL = Output(OFPP_NORMAL)
_SAME_VLAN = LearnMatch(Register.VLAN.field, Register.VLAN.field, VLAN_ID_BITS)
