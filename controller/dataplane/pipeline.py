"""The pipeline of a team: every flow and group that its bridge should have from us."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from controller.config.vlans import TRUNK, PortVlans, VlanSet, blocks, classes
from controller.dataplane import assigning, hashing
from controller.dataplane.exits import delivered, leave_by, masked, out_by, register_values
from controller.dataplane.specs import (
    Action,
    Bucket,
    CopyBits,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LearnMatch,
    LoadBits,
    Match,
    MatchValue,
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
    ADDRESSES_PER_PORT_MAX,
    ALL_HOSTS,
    BROADCAST,
    DEPARTED_MAX,
    ELSEWHERE,
    ETH_ARP,
    ETH_FLOW_CONTROL,
    ETH_IPV4,
    ETH_IPV6,
    ETH_RARP,
    ETH_TAGS,
    FROM_BENEATH,
    GROUP_IDS,
    GROUP_REPORTS,
    ICMPV6,
    IGMP,
    LEARNED_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    MULTICAST,
    ND_ADVERTISEMENT,
    NO_ADDRESS,
    OFPP_NORMAL,
    RESERVED_MULTICAST,
    UNICAST,
    VENDORS_MULTICAST,
    VLAN_ID_BITS,
    VLAN_ID_MASK,
    VLAN_PRESENT,
    Kind,
    Register,
    Table,
    beneath_group_id,
    binding_group_id,
    cookie,
    cookie_kind,
    cookie_ofport,
    delivery_group_id,
    inbound_cookie,
    learned_cookie,
    local_group_id,
    openflow_port,
    unicast_group_id,
)
from controller.dataplane.team import Team, VmPort
from policies.model import MAX_UPLINKS, OfPort


def build(team: Team) -> Pipeline:
    """The pipeline of a team; a pure function of it."""
    flows = [*_lookup_flows(), *_reflection_flows(team)]
    for uplink in team.uplinks:
        flows += _uplink_flows(uplink, team)
    for port in team.vm_ports:
        flows += _vm_port_flows(port, team)
        flows += _inbound_flows(port, team)
    flows += _destination_flows(team)
    flows += _never_forwarded()
    flows += _unknown_port_flows(team)
    flows += hashing.flows(team)
    flows += assigning.flows(team)
    confined = [port for port in team.vm_ports if port.is_confined(team.uplinks)]
    groups = [_unicast_group(port, team) for port in confined]
    groups += [_binding_group(port, team) for port in team.vm_ports]
    groups += [_local_group(heard) for heard in _heard(team)]
    groups += [
        _delivery_group(port, uplink, team) for port in team.vm_ports for uplink in team.uplinks
    ]
    if team.floods_beneath and team.normal_takes_any:
        groups += [_beneath_group(uplink, team) for uplink in team.uplinks]
    groups += hashing.groups(team)
    groups += assigning.groups(team)
    return Pipeline({f.key: f for f in flows}, {g.group_id: g for g in groups})


def no_flood(installed: Pipeline) -> frozenset[int] | None:
    """The ports that have the flag where this is installed; None: it does not tell.

    The switch forgets flows and flags together, so the ones tell of the others.
    """
    flows = installed.flows.values()
    flooded = [f for f in flows if (Register.BENEATH.field, 1) not in f.match]
    if not any(f.table == Table.DELIVERY and _TO_NORMAL in f.actions for f in flooded):
        return None
    return frozenset(
        cookie_ofport(f.cookie)
        for f in flows
        if f.table == Table.UPLINK_OUT and cookie_kind(f.cookie) is Kind.FROM_VM
    )


def cut_off(installed: Pipeline) -> frozenset[int]:
    """The uplinks that a rescue keeps NORMAL from flooding to, by the same flag."""
    rescue = [f for f in installed.flows.values() if cookie_kind(f.cookie) is Kind.RESCUE]
    return frozenset(v for f in rescue for k, v in f.match if k == "in_port" and isinstance(v, int))


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


# ---- tables ----------------------------------------------------------------------------


def _uplink_flows(uplink: OfPort, team: Team) -> Iterator[FlowSpec]:
    vlans = team.uplink_vlans.get(uplink, TRUNK)
    came_in = SetField(Register.UPLINK.field, uplink)
    yield from _classify(uplink, vlans, came_in, Table.FROM_UPLINK)
    if vlans != TRUNK:
        yield from _port_out_flows(uplink, vlans)
        yield from _no_inner_tag_leaves(uplink, vlans)
    index = team.uplinks.index(uplink)
    from_uplink, as_it_came = _given_beneath(uplink, team)
    beneath: tuple[Action, ...] = (*as_it_came, _TO_NORMAL) if team.floods_beneath else ()
    for heard in _heard(team):
        groups = tuple(ToGroup(delivery_group_id(p.ofport, index)) for p in heard.ports)
        priority = 10 if heard.elsewhere else 20
        if beneath and team.normal_takes_any:
            once = (*groups, *as_it_came, ToGroup(beneath_group_id(uplink)))
            for unicast in heard.matches(eth_dst=UNICAST, **from_uplink):
                yield FlowSpec(Table.DELIVERY, priority + 5, unicast, once)
        for in_vlan in heard.matches(**from_uplink):
            yield FlowSpec(Table.DELIVERY, priority, in_vlan, (*groups, *beneath))


def _vm_port_flows(port: VmPort, team: Team) -> Iterator[FlowSpec]:
    came_in = SetField(Register.VM_PORT.field, port.ofport)
    yield from _classify(port.ofport, port.vlans, came_in, Table.LEARN)
    # Tag 0 says "no VLAN"; taken off, it would bare a tag behind it.
    for tag in ETH_TAGS:
        inner = match(in_port=openflow_port(port.ofport), vlan_vid=VLAN_PRESENT, eth_type=tag)
        yield FlowSpec(Table.CLASSIFY, 115, inner)
    yield from _learn_from_vm_port(port)
    yield from _guard_addresses(port)
    yield from _port_out_flows(port.ofport, port.vlans)
    target = {Register.TARGET.field: port.ofport}
    yield FlowSpec(Table.EGRESS, 20, match(**target), goto=Table.PORT_OUT)
    actions, goto = delivered(port, team)
    yield FlowSpec(
        Table.EGRESS,
        30,
        match(**target, **{Register.VM_PORT.field: 0}),
        actions,
        goto,
        cookie=cookie(Kind.TO_VM, port.ofport),
    )
    yield FlowSpec(
        Table.UPLINK_OUT,
        10,
        match(**{Register.VM_PORT.field: port.ofport}),
        (ToGroup(binding_group_id(port.ofport)),),
        cookie=cookie(Kind.FROM_VM, port.ofport),
    )


def _inbound_flows(port: VmPort, team: Team) -> Iterator[FlowSpec]:
    """Count by which uplink comes what is for a VM port: whether it follows the port's moves.

    For each uplink that there is, so that a move changes no flow. A LAG is one link upstream.
    """
    for uplink in () if team.hears_everywhere else team.uplinks:
        ends = {Register.TARGET.field: int(port.ofport), Register.UPLINK.field: int(uplink)}
        counts = inbound_cookie(port.ofport, uplink)
        yield FlowSpec(Table.INBOUND, 10, match(**ends), cookie=counts)


def _classify(
    ofport: OfPort, vlans: PortVlans, came_in: SetField, goto: Table
) -> Iterator[FlowSpec]:
    """Give every frame that the port takes its VLAN; what it does not take is dropped.

    From here on frames of VLAN 0 have no tag, unless for its priority, and all others theirs.
    """
    port = openflow_port(ofport)
    # Reserved multicast, and frames that claim to come from a multicast address.
    yield FlowSpec(Table.CLASSIFY, 120, match(in_port=port, eth_dst=RESERVED_MULTICAST))
    yield FlowSpec(Table.CLASSIFY, 120, match(in_port=port, eth_src=MULTICAST))
    tagged = vlans.carried if vlans.takes_tagged else VlanSet()
    if vlans.native is not None:
        in_vlan = (came_in, SetField(Register.VLAN.field, vlans.native))
        tag = SetField("vlan_vid", VLAN_PRESENT | vlans.native)
        push, retag = ((PushVlan(), tag), (tag,)) if vlans.native else ((), ())
        untagged = match(in_port=port, vlan_vid=0)
        priority_tagged = match(in_port=port, vlan_vid=VLAN_PRESENT)
        yield FlowSpec(Table.CLASSIFY, 110, untagged, (*in_vlan, *push), goto)
        yield FlowSpec(Table.CLASSIFY, 110, priority_tagged, (*in_vlan, *retag), goto)
        if not vlans.native:
            # As NORMAL does: a tag that says neither VLAN nor priority goes.
            says_nothing = match(in_port=port, vlan_vid=VLAN_PRESENT, vlan_pcp=0)
            yield FlowSpec(Table.CLASSIFY, 112, says_nothing, (*in_vlan, PopVlan()), goto)
        if tagged:
            tagged |= VlanSet.of(0)
    by_tag = CopyBits("vlan_tci", 0, Register.VLAN.field, 0, VLAN_ID_BITS)
    for value, mask in blocks(tagged):
        vid = masked(VLAN_PRESENT | value, VLAN_PRESENT | mask, VLAN_PRESENT | VLAN_ID_MASK)
        yield FlowSpec(
            Table.CLASSIFY, 100, match(in_port=port, vlan_vid=vid), (came_in, by_tag), goto
        )
    yield FlowSpec(Table.CLASSIFY, 90, match(in_port=port))


def _port_out_flows(ofport: OfPort, vlans: PortVlans) -> Iterator[FlowSpec]:
    """The one way out by a port: frames of VLANs that it carries, tagged as it wants them."""
    out, carried = Output(openflow_port(ofport)), vlans.carried
    target: dict[str, MatchValue] = {Register.TARGET.field: ofport}
    bare = None if vlans.native_tagged else vlans.native
    if bare or (bare == 0 and not vlans.takes_tagged):
        # The switch takes pop_vlan only in a flow that matches tagged frames.
        tagged: dict[str, MatchValue] = {"vlan_vid": (VLAN_PRESENT, VLAN_PRESENT)}
        in_native = match(**target, **tagged, **{Register.VLAN.field: bare})
        yield FlowSpec(Table.PORT_OUT, 20, in_native, (PopVlan(), out))
    if bare and not vlans.takes_tagged:
        carried = VlanSet()
    for value in register_values(carried):
        in_vlan = target if value is None else {**target, Register.VLAN.field: value}
        yield FlowSpec(Table.PORT_OUT, 10, match(**in_vlan), (out,))


def _no_inner_tag_leaves(uplink: OfPort, vlans: PortVlans) -> Iterator[FlowSpec]:
    """A frame with two tags that lost the outer one would go on in the inner one's VLAN."""
    if vlans.native and not vlans.native_tagged:
        in_native = {Register.TARGET.field: uplink, Register.VLAN.field: vlans.native}
        for tag in ETH_TAGS:
            yield FlowSpec(Table.PORT_OUT, 30, match(**in_native, eth_type=tag))


def _learn_from_vm_port(port: VmPort) -> Iterator[FlowSpec]:
    """Learn where the source is: what is sent to it, and what it sent and comes back.

    `hard_timeout`, as every relearning refreshes it; an idle timeout would be refreshed by
    reflections and keep an address alive that has left.
    """
    learned = learned_cookie(port.ofport, port.vlans)
    learn = (
        # The switch writes no result where it only tells what it would do.
        SetField(Register.LEARNED.field, 1),
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
            limit=ADDRESSES_PER_PORT_MAX,
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
            limit=ADDRESSES_PER_PORT_MAX,
            success=Register.LEARNED.field,
        ),
    )
    from_port: dict[str, MatchValue] = {Register.VM_PORT.field: port.ofport}
    lock = (
        Resubmit(Table.ANNOUNCEMENT),
        Resubmit(Table.LOCK),
        Resubmit(Table.SET_LOCK),
    )
    taken = [(40, {**from_port, "eth_src": mac}) for mac in port.attached_macs]
    if port.forges:
        taken.append((10, from_port))
    else:
        # What the table drops anyway, for its counters: that somebody tries.
        yield FlowSpec(Table.LEARN, 10, match(**from_port))
    for priority, sent in taken:
        yield FlowSpec(Table.LEARN, priority, match(**sent), learn, goto=Table.DESTINATION)
        yield FlowSpec(
            Table.LEARN,
            priority + 10,
            match(eth_dst=MULTICAST, **sent),
            (*learn, *lock),
            goto=Table.DESTINATION,
        )
    yield from _lock_flows(port)


def _guard_addresses(port: VmPort) -> Iterator[FlowSpec]:
    """Nobody else sends from the addresses of a VM port where it would hear the answers."""
    for mac in port.attached_macs:
        for value in register_values(port.vlans.carried):
            in_vlan = {} if value is None else {Register.VLAN.field: value}
            yield FlowSpec(Table.LEARN, 30, match(eth_src=mac, **in_vlan))


def _never_forwarded() -> Iterator[FlowSpec]:
    """What is said between switches, and from an address that is none."""
    for reserved in VENDORS_MULTICAST:
        yield FlowSpec(Table.LEARN, 60, match(eth_dst=reserved))
        yield FlowSpec(Table.FROM_UPLINK, 30, match(eth_dst=reserved))
    yield FlowSpec(Table.LEARN, 60, match(eth_type=ETH_FLOW_CONTROL))
    yield FlowSpec(Table.LEARN, 60, match(eth_src=NO_ADDRESS))


def _lock_flows(port: VmPort) -> Iterator[FlowSpec]:
    """An announcement from here locks its address for a moment."""
    lock = Learn(
        Table.LOCK,
        learned_cookie(port.ofport, port.vlans),
        LOCK_TIMEOUT_S,
        (
            _SAME_VLAN,
            LearnMatch("eth_src", "eth_src", 48),
            LearnLoad(1, Register.LOCKED.field, 1),
        ),
        limit=ADDRESSES_PER_PORT_MAX,
    )
    announces = {Register.VM_PORT.field: port.ofport, Register.ANNOUNCES.field: 1}
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        yield FlowSpec(
            Table.SET_LOCK,
            10,
            match(**announces, **{Register.LOCKED.field: locked}),
            (lock, Resubmit(table)),
        )


def _destination_flows(team: Team) -> Iterator[FlowSpec]:
    """Frames from VM ports: to the VM port that is known, else out by the sender's uplink."""
    yield FlowSpec(
        Table.DESTINATION, 10, match(eth_dst=UNICAST), (Resubmit(Table.LOCATION),), Table.EGRESS
    )
    for heard in _heard(team):
        for in_vlan in heard.matches(eth_dst=MULTICAST):
            yield FlowSpec(
                Table.DESTINATION,
                10 if heard.elsewhere else 20,
                in_vlan,
                (ToGroup(heard.group_id),),
                goto=Table.UPLINK_OUT,
            )
    # A report overheard silences other members (RFC 2236 §3, RFC 2710 §4), which would
    # cost them their group at another uplink's snooping switch: reports only go upstream.
    for report in GROUP_REPORTS:
        yield FlowSpec(Table.DESTINATION, 40, match(**report), goto=Table.UPLINK_OUT)
    general_query: dict[str, MatchValue] = {
        "eth_type": ETH_IPV4,
        "ip_proto": IGMP,
        "ipv4_dst": ALL_HOSTS,
    }
    for heard in _heard(team):
        for in_vlan in heard.matches(**general_query):
            yield FlowSpec(
                Table.DESTINATION,
                50 if heard.elsewhere else 60,
                in_vlan,
                (ToGroup(heard.group_id),),
                goto=Table.UPLINK_OUT,
            )
    if not team.hears_everywhere:
        # Nothing tells the reflections of an address that is not learned from what others
        # send, so they are what VM ports at other uplinks hear: one copy.
        unlearned = {Register.LEARNED.field: 0}
        yield FlowSpec(
            Table.DESTINATION, 70, match(eth_dst=MULTICAST, **unlearned), goto=Table.UPLINK_OUT
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
    locate: tuple[Action, ...] = (Resubmit(Table.LOCATION),)
    if not team.hears_everywhere:
        locate += (Resubmit(Table.INBOUND),)
    yield FlowSpec(Table.FROM_UPLINK, 10, match(eth_dst=UNICAST), locate, Table.EGRESS)
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
                limit=DEPARTED_MAX,
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
                limit=DEPARTED_MAX,
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
        for index, address in enumerate(("arp_spa", "arp_tpa")):
            compare.append(CopyBits(address, bit, Register.NIBBLES.field, 4 * index, 4))
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
    # An announcement that is forwarded from the switch's flow cache sets no lock, and its
    # reflection sees none. With and without a lock both therefore depend on another bit (of
    # pkt_mark, but any would do): when the lock comes or ends, revalidation finds the cached
    # flow too wide and deletes it.
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
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
    limit = ADDRESSES_PER_PORT_MAX  # for all of these ports together
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
                Learn(Table.LOCATION, taught, LEARNED_TIMEOUT_S, located, True, 20, limit),
                Learn(Table.LOCAL_SOURCE, taught, LOCK_TIMEOUT_S, local, True, 20, limit),
                Resubmit(Table.CLASSIFY),
            ),
        )
    # The known ports' flows in this table come first, and so do those for no port at all.
    yield FlowSpec(Table.EGRESS, 3, match(**{Register.UPLINK.field: 0}), goto=Table.UPLINK_OUT)
    for uplink in team.uplinks:
        from_uplink, as_it_came = _given_beneath(uplink, team)
        left = match(**from_uplink, **{Register.BENEATH.field: 1})
        yield FlowSpec(Table.DELIVERY, 40, left, (*as_it_came, _TO_NORMAL))
        yield FlowSpec(
            Table.EGRESS,
            3,
            match(**from_uplink),
            (SetField(Register.BENEATH.field, 1), Resubmit(Table.LOCAL_SOURCE)),
            goto=Table.REFLECTION,
        )


# ---- groups ----------------------------------------------------------------------------


def _binding_group(port: VmPort, team: Team) -> GroupSpec:
    """To the first live uplink of the port's order; the switch itself fails over.

    Where the port is hashed that one is its home, and the hash says where to go.
    """

    def leave(uplink: OfPort) -> tuple[Action, ...]:
        if port.hashed is None:
            return leave_by(uplink, team)
        return hashing.spread(port.hashed, home=uplink)

    buckets = tuple(
        Bucket(leave(uplink), watch_port=openflow_port(uplink)) for uplink in port.order
    )
    return GroupSpec(binding_group_id(port.ofport), "ff", buckets)


def _delivery_group(port: VmPort, uplink: OfPort, team: Team) -> GroupSpec:
    """What `uplink` broadcasts reaches the port only while no uplink before it lives.

    The buckets before have no actions: the frame came by another uplink too, and is
    delivered there. So there is one copy, also in a failover nobody told us about. On a LAG it
    came by this one only, whether or not the port may send by it.
    """
    before = () if team.hears_everywhere else port.order
    buckets: list[Bucket] = []
    if uplink in port.order:
        if uplink in before:
            before = before[: before.index(uplink)]
        buckets = [Bucket((), watch_port=openflow_port(u)) for u in before]
        buckets.append(Bucket(out_by(port.ofport), watch_port=openflow_port(uplink)))
    elif team.hears_everywhere and port.order:
        as_unicast = (ToGroup(unicast_group_id(port.ofport)),)
        buckets = [Bucket(as_unicast, watch_port=openflow_port(uplink))]
    group_id = delivery_group_id(port.ofport, team.uplinks.index(uplink))
    return GroupSpec(group_id, "ff", tuple(buckets))


def _unicast_group(port: VmPort, team: Team) -> GroupSpec:
    """To a VM port while an uplink lives that it may use; a move does not change it."""
    buckets = tuple(
        Bucket(out_by(port.ofport), watch_port=openflow_port(uplink))
        for uplink in team.uplinks
        if uplink in port.order
    )
    return GroupSpec(unicast_group_id(port.ofport), "ff", buckets)


def _beneath_group(uplink: OfPort, team: Team) -> GroupSpec:
    """Only from the first uplink that lives: flooded unicast comes by each of them."""
    before = team.uplinks[: team.uplinks.index(uplink)]
    buckets = [Bucket((), watch_port=openflow_port(u)) for u in before]
    buckets.append(Bucket((_TO_NORMAL,), watch_port=openflow_port(uplink)))
    return GroupSpec(beneath_group_id(uplink), "ff", tuple(buckets))


def _given_beneath(uplink: OfPort, team: Team) -> tuple[dict[str, MatchValue], tuple[Action, ...]]:
    """What matches the frames from an uplink, and makes them what they were for NORMAL.

    It takes no tag from an access port, where ours have one.
    """
    vlans = team.uplink_vlans.get(uplink, TRUNK)
    from_uplink: dict[str, MatchValue] = {Register.UPLINK.field: uplink}
    if team.over_normal and vlans.native and not vlans.takes_tagged:
        return {**from_uplink, "vlan_vid": (VLAN_PRESENT, VLAN_PRESENT)}, (PopVlan(),)
    return from_uplink, ()


def _local_group(heard: _Heard) -> GroupSpec:
    """Every local VM port of some VLANs; the switch leaves out the port a frame came in by."""
    return GroupSpec(heard.group_id, "all", tuple(Bucket(out_by(p.ofport)) for p in heard.ports))


@dataclass(frozen=True, slots=True)
class _Heard:
    """VLANs that the same VM ports hear. `elsewhere`: the VLANs that are in no other of these."""

    vlans: VlanSet
    ports: tuple[VmPort, ...]
    elsewhere: bool

    @property
    def group_id(self) -> int:
        return local_group_id(None if self.elsewhere else next(iter(self.vlans)))

    def matches(self, **fields: MatchValue) -> Iterator[Match]:
        """Matches that together cover these VLANs, on a level above those of `elsewhere`."""
        if self.elsewhere:
            yield match(**fields)
            return
        for value in register_values(self.vlans):
            assert value is not None
            yield match(**fields, **{Register.VLAN.field: value})


def _heard(team: Team) -> Iterator[_Heard]:
    largest_first = classes(frozenset(port.vlans.carried for port in team.vm_ports))
    for vlans in largest_first:
        ports = tuple(port for port in team.vm_ports if vlans <= port.vlans.carried)
        yield _Heard(vlans, ports, elsewhere=vlans is largest_first[0])


_TO_NORMAL = Output(OFPP_NORMAL)
_SAME_VLAN = LearnMatch(Register.VLAN.field, Register.VLAN.field, VLAN_ID_BITS)
