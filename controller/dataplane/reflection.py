"""Reflections: drops ovs-lbt's own frames that return from the network, and detects departed addresses.

An address has moved away if an uplink receives an announcement of the address: a frame from which
switches learn the new location of the frame's source address.

Tables: REFLECTION, DEPARTURE, PRESENT, ABSENT; the look-ups ANNOUNCEMENT, SAME_NIBBLE, GRATUITOUS,
UNCACHE_FIRST and UNCACHE_AGAIN; in FROM_UPLINK, the flow for multicast. Groups: one for each VM port,
which continues in PRESENT or ABSENT.

Invariant: a frame from an uplink with a source address behind a VM port is dropped, unless the frame
announces that the address has moved away. An address that was announced from this bridge in the last
`LOCK_TIMEOUT_S` seconds has not moved away. On a LAG, every frame is an announcement, unless this bridge
has flooded a similar frame from the address in the last `LAG_LOCK_TIMEOUT_S` seconds. So a router on
another host can use the address of a router VM at the same time.

Invariant: without a LAG, register ANNOUNCES is 1 only for RARP, for neighbour advertisements to a group,
and for ARP about the sender's own address.

Invariant: addresses learned on a VM port are valid while the port exists and its link is up. After
that, frames to these addresses are sent to the network, and frames from these addresses that arrive
from the network are not reflections. The switch itself checks this. So a VM that leaves while the
service is not running can be reached on the new host even if the VM's announcement is lost.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from controller.dataplane import specs, tables
from controller.dataplane.learning import learn_outside
from controller.dataplane.output import first_live
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import BROADCAST, MULTICAST, Group, Register, Table
from controller.dataplane.team import KEPT, Team, VmPort, kept
from policies.model import OFPORT_LOCAL, OfPort


def flows(team: Team) -> Iterator[FlowSpec]:
    yield from _similar_frames() if team.hears_everywhere else _announcements()
    yield from _reflections(team.hears_everywhere)
    for port in team.vm_ports:
        learned = {Register.LOCAL: 1, Register.BEHIND: port.ofport}
        yield flow(Table.REFLECTION, 20, learned, *by_presence(port))


@kept
def _announcements() -> Iterator[FlowSpec]:
    """Yield flows that recognize announcements. They are the same for every team without a LAG."""
    announces = specs.SetField(Register.ANNOUNCES, 1)
    rarp: specs.Fields = {"eth_type": tables.ETH_RARP, "eth_dst": BROADCAST}
    yield flow(Table.ANNOUNCEMENT, 10, rarp, announces)
    advertises = {**tables.icmpv6(tables.ND_ADVERTISEMENT), "eth_dst": MULTICAST}
    yield flow(Table.ANNOUNCEMENT, 10, advertises, announces)
    compare: list[specs.Action] = []
    for bit in range(0, 32, 4):
        for index, address in enumerate(("arp_spa", "arp_tpa")):
            compare.append(specs.CopyBits(address, bit, Register.NIBBLES, 4 * index, 4))
        compare.append(specs.Resubmit(Table.SAME_NIBBLE))
    arp: specs.Fields = {"eth_type": tables.ETH_ARP, "eth_dst": BROADCAST}
    yield flow(Table.ANNOUNCEMENT, 10, arp, *compare, specs.Resubmit(Table.GRATUITOUS))
    # OpenFlow cannot compare two fields. These 16 flows compare four bits at a time.
    for nibble in range(16):
        yield flow(Table.SAME_NIBBLE, 10, {Register.NIBBLES: (nibble << 4 | nibble, 0xFF)})
    yield flow(Table.SAME_NIBBLE, 0, {}, specs.LoadBits(Register.NIBBLES, 8, 1, 1))
    yield flow(Table.GRATUITOUS, 10, {Register.NIBBLES: (0, 0x100)}, announces)


@kept
def _similar_frames() -> Iterator[FlowSpec]:
    """Yield flows that copy a part of a multicast frame's addresses. A returning frame has it as well."""
    announces = specs.SetField(Register.ANNOUNCES, 1)
    sender = specs.CopyBits("arp_spa", 0, Register.NIBBLES, 8, 8)
    any_group = announces, specs.CopyBits("eth_dst", 0, Register.NIBBLES, 0, 8)
    yield flow(Table.ANNOUNCEMENT, 0, {}, announces)
    yield flow(Table.ANNOUNCEMENT, 5, {"eth_dst": MULTICAST}, *any_group)
    arp, ipv4, ipv6 = tables.ETH_ARP, tables.ETH_IPV4, tables.ETH_IPV6
    for eth_type, address in ((arp, "arp_tpa"), (ipv4, "ipv4_src"), (ipv6, "ipv6_src")):
        part = specs.CopyBits(address, 0, Register.NIBBLES, 16, 16)
        more = (sender,) if eth_type == arp else ()
        frames: specs.Fields = {"eth_type": eth_type, "eth_dst": MULTICAST}
        yield flow(Table.ANNOUNCEMENT, 10, frames, *any_group, part, *more)


@kept
def _reflections(on_a_lag: bool) -> Iterator[FlowSpec]:
    """Yield flows for frames from uplinks. These flows depend only on whether the uplinks are a LAG."""
    # Frames that can announce that an address has moved away, and look-ups to determine whether they do.
    frames: specs.Fields = {} if on_a_lag else {"eth_dst": MULTICAST}
    look_up = specs.Resubmit(Table.ANNOUNCEMENT), specs.Resubmit(Table.LOCK)
    # Announcements forwarded from the switch's flow cache would set no lock, and returning ones would
    # not find a lock. So cached flows also match an unused bit of pkt_mark: one bit with a lock, another
    # bit without a lock. When a lock begins or ends, revalidation then deletes the cached flow, because
    # the cached flow's match is too wide.
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        yield flow(table, 10, {"pkt_mark": (0, 1 << locked)})
    local_source = specs.Resubmit(Table.LOCAL_SOURCE)
    yield flow(Table.FROM_UPLINK, 10, {"eth_dst": MULTICAST}, local_source, goto=Table.REFLECTION)
    elsewhere = {Register.LOCAL: 0}
    yield flow(Table.REFLECTION, 10, elsewhere, learn_outside(), goto=Table.DELIVERY)
    local = {**frames, Register.LOCAL: 1}
    yield flow(Table.REFLECTION, 10, local, *look_up, goto=Table.DEPARTURE)
    departed = *_learn_departure(), specs.Resubmit(Table.UNCACHE_FIRST)
    moved, ours = ({Register.ANNOUNCES: 1, Register.LOCKED: locked} for locked in (0, 1))
    yield flow(Table.DEPARTURE, 10, moved, *departed, goto=Table.DELIVERY)
    again = specs.Resubmit(Table.UNCACHE_AGAIN)
    yield flow(Table.DEPARTURE, 10, ours, again)
    # Frames to or from an address learned on a VM port: PRESENT if the port exists, else ABSENT.
    from_vm = {Register.UPLINK: 0}
    announced = *look_up, specs.Resubmit(Table.DEPARTURE)
    yield flow(Table.PRESENT, 20, from_vm, specs.Resubmit(Table.PORT_OUT))
    yield flow(Table.PRESENT, 10, frames, *announced)
    # Departures are learned in both tables, because a port may be added again after the VM has moved.
    yield flow(Table.ABSENT, 20, from_vm, specs.Resubmit(Table.FLOOD))
    yield flow(Table.ABSENT, 10, frames, specs.SetField(Register.LOCAL, 0), *announced)
    if on_a_lag:
        # If an address leaves together with its port, the address's lock is ignored.
        gone = {Register.LOCKED: 1, Register.LOCAL: 0}
        yield flow(Table.DEPARTURE, 15, gone, goto=Table.DELIVERY)
    else:
        yield flow(Table.ABSENT, 5, {}, specs.Resubmit(Table.DELIVERY))
        silent = {Register.ANNOUNCES: 0, Register.LOCAL: 0}
        yield flow(Table.DEPARTURE, 5, silent, goto=Table.DELIVERY)


def _learn_departure() -> tuple[specs.Learn, specs.Learn]:
    """Return actions that overwrite the learned flows of an address that has moved away."""
    learned, most = tables.cookie(tables.Kind.LEARNED, 0), tables.DEPARTED_MAX
    elsewhere = tables.SAME_VLAN, tables.TO_SOURCE, tables.TO_ELSEWHERE
    not_local = tables.SAME_VLAN, tables.FROM_SOURCE, specs.LearnLoad(0, Register.LOCAL, 1)
    timeout_s = tables.LEARNED_TIMEOUT_S
    return (
        specs.Learn(Table.LOCATION, learned, timeout_s, elsewhere, limit=most),
        specs.Learn(Table.LOCAL_SOURCE, learned, timeout_s, not_local, limit=most),
    )


def by_presence(port: VmPort) -> specs.Actions:
    """Return actions that continue in table PRESENT if the port exists, and in table ABSENT if not."""
    if port.ofport == OFPORT_LOCAL:
        return (specs.Resubmit(Table.PRESENT),)
    return (specs.ToGroup(Group.PRESENCE.id_of(port.ofport)),)


def groups(team: Team) -> Iterator[specs.GroupSpec]:
    for port in team.vm_ports:
        if port.ofport == OFPORT_LOCAL:
            # LOCAL always exists, and `ovs-ctl restart` cannot restore buckets that watch LOCAL.
            continue
        yield _presence(port.ofport, team.uplinks)


# Cached between pipelines, because a move does not change these groups.
@functools.lru_cache(maxsize=KEPT)
def _presence(ofport: OfPort, uplinks: tuple[OfPort, ...]) -> specs.GroupSpec:
    # Each bucket must watch a port. Without a live uplink, frames could not leave anyway.
    absent = ((uplink, (specs.Resubmit(Table.ABSENT),)) for uplink in uplinks)
    present = ofport, (specs.Resubmit(Table.PRESENT),)
    return first_live(Group.PRESENCE.id_of(ofport), [present, *absent])
