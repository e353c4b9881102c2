"""Flooding: broadcast, multicast and unknown unicast reach each VM port of the VLAN once.

Tables: DELIVERY, FLOOD, MEMBERSHIP; in DESTINATION and EGRESS, the flows for flooded frames from VM
ports; in PORT_OUT, the flows that drop some flooded frames. Groups: for each class of VLANs, one or more
groups that flood to local VM ports; for each VM port, a delivery group for each uplink.

Invariant: flooded frames arrive from the network on every uplink, and a VM port accepts them only from
the first live uplink in its order. On a LAG, such a frame arrives on one uplink, which may be any uplink.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from controller.config.vlans import VlanSet, classes
from controller.dataplane import normal, specs, tables
from controller.dataplane.output import TO_NORMAL, first_live, if_first_live, out_by
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import BY_UPLINK, FLOODED, MULTICAST, Kind, Register, Table
from controller.dataplane.team import KEPT, Team, VmPort, kept
from policies.model import MAX_UPLINKS, OfPort

ALL_HOSTS = "224.0.0.1"
# A snooping switch never prunes these groups.
LINK_LOCAL_GROUPS = ("224.0.0.0", "255.255.255.0")
LINK_LOCAL_GROUPS_V6 = ("ff02::", "ffff::")


def opens(old: specs.GroupSpec, new: specs.GroupSpec, live: Collection[int]) -> bool:
    """Whether the change from `old` to `new` makes a delivery group accept frames from its uplink.

    False if the switch itself accepts these frames already, because the previous uplink has failed: the
    caller must not drop them. `live`: the ports that carry traffic.
    """
    slot = (new.group_id - tables.GROUP_IDS.start) >> 16
    if not 1 <= slot <= MAX_UPLINKS or not _delivers(new):
        return False
    before_no_more = _yields_to(old) - _yields_to(new)
    return not _delivers(old) or any(uplink in live for uplink in before_no_more)


def held(group: specs.GroupSpec) -> FlowSpec | None:
    """Return a flow that temporarily drops frames from a delivery group's uplink to its VM port.

    The flow has a timeout, in case the service stops. Return None on a static LAG, where buckets do not
    determine a frame's uplink, and each frame arrives on one uplink only.
    """
    ways = [bucket.watch_port for bucket in group.buckets if bucket.actions]
    if len(ways) != 1 or ways[0] is None:
        return None
    ends: specs.Fields = {Register.TARGET: group.group_id & 0xFFFF, Register.UPLINK: ways[0]}
    flooded = {**ends, FLOODED: BY_UPLINK}
    return flow(Table.PORT_OUT, 40, flooded, hard_timeout_s=tables.HELD_TIMEOUT_S)


def is_held(flow: FlowSpec) -> bool:
    """Whether `held` created this flow, which temporarily drops frames from an uplink to a VM port."""
    return flow.table == Table.PORT_OUT and bool(flow.hard_timeout_s)


def _delivers(group: specs.GroupSpec) -> bool:
    return any(bucket.actions for bucket in group.buckets)


def _yields_to(group: specs.GroupSpec) -> set[int | None]:
    return {bucket.watch_port for bucket in group.buckets if not bucket.actions}


def flows(team: Team) -> Iterator[FlowSpec]:
    for uplink in team.uplinks:
        yield from _from_uplink(uplink, team)
    yield from _from_vm_ports(team)
    if not team.hears_everywhere:
        yield from _group_reports()
        for port in team.vm_ports:
            yield from _member(port.ofport)


def _from_uplink(uplink: OfPort, team: Team) -> Iterator[FlowSpec]:
    index = team.uplinks.index(uplink)
    from_uplink, ways = normal.flooded_by(uplink, team)
    for vlan_class in _vlan_classes(team):
        ids = (tables.delivery_group_id(port.ofport, index) for port in vlan_class.ports)
        groups = tuple(map(specs.ToGroup, ids))
        delivered: specs.Actions = (specs.SetField(FLOODED, BY_UPLINK), *groups) if groups else ()
        priority = 10 if vlan_class.is_rest else 20
        for more, destination, to_normal in ways:
            to: specs.Fields = {} if destination is None else {"eth_dst": destination}
            for in_vlan in vlan_class.matches():
                flooded = {**from_uplink, **in_vlan, **to}
                yield flow(Table.DELIVERY, priority + more, flooded, *delivered, *to_normal)


def _from_vm_ports(team: Team) -> Iterator[FlowSpec]:
    """Yield flows that send VM ports' flooded frames to local VM ports and out on the sender's uplink."""
    out = specs.Resubmit(Table.UPLINK_OUT)
    for vlan_class in _vlan_classes(team):
        local = tuple(specs.ToGroup(group_id) for group_id, _ in vlan_class.groups())
        priority = 10 if vlan_class.is_rest else 20
        for in_vlan in vlan_class.matches():
            yield flow(Table.FLOOD, priority, in_vlan, *local, out)
    multicast = {"eth_dst": MULTICAST}
    yield flow(Table.DESTINATION, 10, multicast, goto=Table.FLOOD)
    if not team.hears_everywhere:
        # If a frame's source is not learned, the returning frame is not recognized, and VM ports on other
        # uplinks would receive two copies. So local VM ports receive only the returning frame.
        unlearned = {Register.LEARNED: 0}
        yield flow(Table.DESTINATION, 70, {**multicast, **unlearned}, goto=Table.UPLINK_OUT)
        unknown = {Register.TARGET: 0, Register.UPLINK: 0}
        yield flow(Table.EGRESS, 15, {**unknown, **unlearned}, goto=Table.UPLINK_OUT)


@kept
def _group_reports() -> Iterator[FlowSpec]:
    """Yield flows that keep members of a multicast group from receiving other members' reports.

    A member that receives another member's report sends none (RFC 2236 section 3, RFC 2710 section 4).
    The snooping switch on the member's uplink would then stop forwarding the group's frames. All other VM
    ports receive reports, including a router that queries for members: the router's queries to a group
    look like reports. With IGMPv3 and MLDv2, members always send their reports.
    """
    igmp: specs.Fields = {**tables.IGMP_MESSAGE, "eth_dst": MULTICAST}
    mld: specs.Fields = {**tables.icmpv6(tables.MLD_V1_REPORT), "eth_dst": MULTICAST}
    sender = specs.LearnMatch(Register.VM_PORT, Register.VM_PORT, 16)
    learned, timeout_s = tables.cookie(Kind.LEARNED, tables.MEMBERSHIP), tables.LEARNED_TIMEOUT_S
    is_router = specs.Learn(Table.MEMBERSHIP, learned, timeout_s, (sender,), priority=20)
    reports = (specs.SetField(FLOODED, tables.REPORT), specs.Resubmit(Table.MEMBERSHIP))
    for report in (igmp, mld):
        yield flow(Table.DESTINATION, 40, report, *reports, goto=Table.FLOOD)
    unpruned = {**igmp, "ipv4_dst": LINK_LOCAL_GROUPS}, {**mld, "ipv6_dst": LINK_LOCAL_GROUPS_V6}
    for report in unpruned:
        yield flow(Table.DESTINATION, 45, report, goto=Table.FLOOD)
    yield flow(Table.DESTINATION, 50, {**igmp, "ipv4_dst": ALL_HOSTS}, is_router, goto=Table.FLOOD)


@kept
def _member(ofport: OfPort) -> Iterator[FlowSpec]:
    """Yield a flow that learns to drop other members' reports of a group that the VM port reported."""
    is_member = specs.Learn(
        Table.PORT_OUT,
        tables.cookie(Kind.LEARNED, tables.MEMBERSHIP | ofport),
        tables.LEARNED_TIMEOUT_S,
        (
            tables.SAME_VLAN,
            specs.LearnMatch(Register.VM_PORT, Register.TARGET, 16),
            specs.LearnMatch("eth_dst", "eth_dst", 48),
            specs.LearnMatch(FLOODED, FLOODED, 64),
        ),
        priority=50,
        limit=tables.GROUPS_PER_PORT_MAX,
    )
    yield flow(Table.MEMBERSHIP, 10, {Register.VM_PORT: ofport}, is_member)


def groups(team: Team) -> Iterator[specs.GroupSpec]:
    for vlan_class in _vlan_classes(team):
        for group_id, ports in vlan_class.groups():
            # The switch does not send a frame out on the port that received the frame.
            buckets = tuple(specs.Bucket(out_by(port.ofport)) for port in ports)
            yield specs.GroupSpec(group_id, "all", buckets)
    hears_everywhere, is_static_lag = team.hears_everywhere, team.is_static_lag
    for port in team.vm_ports:
        for index in range(len(team.uplinks)):
            yield _delivery_group(
                port.ofport, port.order, index, team.uplinks, hears_everywhere, is_static_lag
            )


# Cached between pipelines, because most moves change the groups of few VM ports.
@functools.lru_cache(maxsize=KEPT)
def _delivery_group(
    ofport: OfPort,
    order: tuple[OfPort, ...],
    index: int,
    uplinks: tuple[OfPort, ...],
    hears_everywhere: bool,
    is_static_lag: bool,
) -> specs.GroupSpec:
    """Return the group that delivers an uplink's flooded frames if no earlier uplink in `order` is live.

    The buckets of earlier uplinks have no actions: the frame has arrived on those uplinks as well, and
    is delivered from the first live one. So the VM port receives one copy, even before the service has
    detected a failover. On a LAG, the frame has arrived on one uplink only, which need not be in `order`.

    `index`: the position of the uplink in `uplinks`.
    """
    uplink, group_id = uplinks[index], tables.delivery_group_id(ofport, index)
    if is_static_lag:
        return first_live(group_id, ((u, out_by(ofport)) for u in uplinks if u in order))
    if uplink in order:
        before = () if hears_everywhere else order[: order.index(uplink)]
        return if_first_live(group_id, before, uplink, out_by(ofport))
    by_any = [(uplink, (specs.ToGroup(tables.Group.UNICAST.id_of(ofport)),))]
    return first_live(group_id, by_any if hears_everywhere and order else ())


@dataclass(frozen=True, slots=True)
class _VlanClass:
    """A class of VLANs that the same VM ports carry.

    `is_rest`: this is the largest class, whose flows match any VLAN. The flows of all other classes have
    a higher priority.
    """

    vlans: VlanSet
    ports: tuple[VmPort, ...]
    is_rest: bool

    def groups(self) -> Iterator[tuple[int, tuple[VmPort, ...]]]:
        """Yield (ID, VM ports) of each group; all of these groups together flood to `self.ports`."""
        lowest = None if self.is_rest else next(iter(self.vlans))
        most = tables.PORTS_PER_LOCAL_GROUP_MAX
        for part in range(max(1, -(-len(self.ports) // most))):
            yield tables.local_group_id(lowest, part), self.ports[part * most : (part + 1) * most]

    def matches(self) -> Iterator[specs.Fields]:
        """Yield matches that together cover the VLANs of the class."""
        if self.is_rest:
            yield {}
            return
        for in_vlan in tables.in_vlans(self.vlans):
            assert in_vlan, "only the largest class may have an empty match"
            yield in_vlan


def _vlan_classes(team: Team) -> Iterator[_VlanClass]:
    largest_first = classes(frozenset(port.vlans.flooded for port in team.vm_ports))
    for vlans in largest_first:
        ports = tuple(port for port in team.vm_ports if vlans <= port.vlans.flooded)
        yield _VlanClass(vlans, ports, is_rest=vlans is largest_first[0])


def no_flood(installed: specs.Pipeline) -> frozenset[int] | None:
    """Return the ports with the flag `no-flood`, derived from the installed flows; None if unknown.

    The flags can be derived because a switch that loses its flows also loses the flags. If another program
    has deleted some of the flows, the other ones suffice.
    """
    flows = installed.flows.values()
    flooded = [f for f in flows if (Register.NORMAL, 1) not in f.match]
    from_us = (Table.DELIVERY, Table.NO_UPLINK)
    if not any(f.table in from_us and TO_NORMAL in f.actions for f in flooded):
        return None
    of_ports = (Kind.FROM_VM, Kind.TO_VM)
    return frozenset(
        tables.cookie_ofport(f.cookie) for f in flows if tables.cookie_kind(f.cookie) in of_ports
    )


def cut_off(installed: specs.Pipeline) -> frozenset[int]:
    """Return the uplinks on which `ovs-lbt rescue` set the flag `no-flood`, based on installed flows."""
    rescue = [f for f in installed.flows.values() if tables.cookie_kind(f.cookie) is Kind.RESCUE]
    return frozenset(v for f in rescue for k, v in f.match if k == "in_port" and isinstance(v, int))
