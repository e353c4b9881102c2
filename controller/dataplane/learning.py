"""MAC learning: the VM port of each address, and the source addresses allowed for a VM port.

Tables: LEARN, SET_LOCK. Their flows add learned flows to LOCATION (the VM port of an address),
LOCAL_SOURCE (which recognizes returning frames from the address), LOCK (the address was announced from
this bridge recently) and PORT_OUT (which drops frames from an uplink to a VM port).

Invariant: the switch learns an address only on a VM port that is allowed to send from it, and at
most `ADDRESSES_PER_PORT_MAX` addresses on each port. The flows learned on a port are removed
together with the flow that learned them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from controller.config.vlans import EVERY_VLAN, PortVlans
from controller.dataplane import specs, tables
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import FROM_SOURCE, SAME_VLAN, Kind, Register, Table, cookie
from controller.dataplane.team import Team, VmPort, kept
from policies.model import OfPort

# Actions that lock the source address of an announcement, and that first find out whether it is one.
LOCKS = specs.Resubmit(Table.LOCK), specs.Resubmit(Table.SET_LOCK)
TRY_LOCK = specs.Resubmit(Table.ANNOUNCEMENT), *LOCKS


def flows(team: Team) -> Iterator[FlowSpec]:
    for port in team.vm_ports:
        yield from _of(port, team.hears_everywhere)
    if not team.hears_everywhere:
        routers = [port for port in team.vm_ports if port.vlans.carried == EVERY_VLAN]
        if len(routers) == len(team.vm_ports):
            yield from _beyond_limit(80, tables.BEYOND_LIMIT)
        else:
            yield from _beyond_limit(80, tables.BEYOND_LIMIT, SAME_VLAN)
            for port in routers:
                number = tables.BEYOND_LIMIT | port.ofport
                yield from _beyond_limit(85, number, vm_port=port.ofport)


@kept
def _of(port: VmPort, on_a_lag: bool) -> Iterable[FlowSpec]:
    return (*_learn_from(port), *_guard_addresses(port), *_lock(port, on_a_lag))


def learn_outside() -> specs.Learn:
    """Return the action that learns that the source of a frame from an uplink is outside this bridge.

    The flows for addresses learned on a VM port take precedence, so our own returning frames do no harm.
    """
    elsewhere = SAME_VLAN, tables.TO_SOURCE, tables.TO_ELSEWHERE
    outside, timeout_s = cookie(Kind.OUTSIDE, 0), tables.LEARNED_TIMEOUT_S
    most = tables.OUTSIDE_MAX
    return specs.Learn(Table.LOCATION, outside, timeout_s, elsewhere, priority=5, limit=most)


def learn_closed(ofport: OfPort, uplink: OfPort) -> specs.Learn:
    """Return the action that learns to drop frames from `uplink` to a VM port for a few seconds."""
    ends = (specs.LearnMatch(r, r, 16) for r in (Register.TARGET, Register.UPLINK))
    closed = cookie(Kind.OUTSIDE, uplink << 16 | ofport)
    timeout_s = tables.LOCK_TIMEOUT_S
    return specs.Learn(Table.PORT_OUT, closed, timeout_s, (*ends,), True, priority=50, limit=1)


def _beyond_limit(
    priority: int, number: int, *in_vlan: specs.LearnMatch, vm_port: OfPort | None = None
) -> Iterator[FlowSpec]:
    """Yield flows that learn source addresses beyond a VM port's limit, to recognize returning frames.

    With `in_vlan`, an address is learned in the frame's VLAN, else in all VLANs. The latter is for
    routers with one address in thousands of VLANs, and only for VM ports that carry all VLANs, because
    other ports could cause frames in foreign VLANs to be dropped as reflections. Each frame locks the
    address, because the usual lock may be beyond the limit as well.
    """

    def learn(table: Table, timeout_s: int, *loads: specs.LearnLoad) -> specs.Learn:
        return specs.Learn(
            table,
            cookie(Kind.LEARNED, number),
            timeout_s,
            (*in_vlan, FROM_SOURCE, *loads),
            priority=6 if in_vlan else 5,
            limit=tables.ADDRESSES_PER_PORT_MAX,
            success=Register.LEARNED if table == Table.LOCAL_SOURCE else None,
        )

    of_sender = tables.IS_LOCAL, tables.IS_BEHIND_SENDER
    local = learn(Table.LOCAL_SOURCE, tables.LEARNED_TIMEOUT_S, *of_sender)
    lock = learn(Table.LOCK, tables.LOCK_TIMEOUT_S, tables.IS_LOCKED)
    learned, tried = Register.LEARNED, Register.BEHIND
    again = specs.Resubmit(Table.DESTINATION)
    sender = {} if vm_port is None else {Register.VM_PORT: vm_port}
    first = {**sender, learned: 0, tried: 0}
    yield flow(Table.DESTINATION, priority, first, local, specs.SetField(tried, 1), again)
    succeeded = {**sender, learned: 1, tried: 1}
    yield flow(Table.DESTINATION, priority, succeeded, lock, specs.SetField(tried, 0), again)


def _learn_from(port: VmPort) -> Iterator[FlowSpec]:
    """Yield flows that learn the source of every frame that the VM port is allowed to send."""
    # LEARNED is set before the learn actions, which do not set it in a trace (`ofproto/trace`).
    learn = specs.SetField(Register.LEARNED, 1), *learn_source(port.ofport, port.vlans)
    from_port: specs.Fields = {Register.VM_PORT: port.ofport}
    accepted = [(40, {**from_port, "eth_src": mac}) for mac in port.attached_macs]
    if port.forges:
        accepted.append((20 if port.trusted else 10, from_port))
    else:
        # This flow only counts the frames. The table drops them anyway.
        yield flow(Table.LEARN, 10, from_port)
    for priority, sent in accepted:
        yield flow(Table.LEARN, priority, sent, *learn, goto=Table.DESTINATION)
        flooded = {**sent, "eth_dst": tables.MULTICAST}
        yield flow(Table.LEARN, priority + 5, flooded, *learn, *TRY_LOCK, goto=Table.DESTINATION)


def learn_source(ofport: OfPort, vlans: PortVlans) -> tuple[specs.Learn, specs.Learn]:
    """Return actions that learn the VM port of an address, for frames to and from the address.

    Learned flows have a `hard_timeout`, which each frame from the VM port restarts. With an
    `idle_timeout`, returning frames would keep the flows alive after the address has left.
    """
    location = specs.Learn(
        Table.LOCATION,
        tables.learned_cookie(ofport, vlans),
        tables.LEARNED_TIMEOUT_S,
        (SAME_VLAN, tables.TO_SOURCE, tables.TO_SENDER),
        delete_learned=True,
        limit=tables.ADDRESSES_PER_PORT_MAX,
    )
    local_source = replace(
        location,
        table=Table.LOCAL_SOURCE,
        specs=(SAME_VLAN, FROM_SOURCE, tables.IS_LOCAL, tables.IS_BEHIND_SENDER),
        success=Register.LEARNED,
    )
    return location, local_source


def learned(by: specs.Learn, frame: Mapping[str, int | str]) -> FlowSpec:
    """Return the flow that the switch adds when it executes `by` for a frame with fields `frame`."""
    fields: specs.Fields = {}
    loads: list[specs.LoadBits] = []
    for one in by.specs:
        value = one.source if isinstance(one.source, int) else frame[one.source]
        if isinstance(one, specs.LearnLoad):
            loads.append(specs.LoadBits(one.target, 0, one.bits, int(value)))
        else:
            # A register has more bits than the compared value.
            fields[one.target] = (value, (1 << one.bits) - 1) if isinstance(value, int) else value
    timeout_s = by.hard_timeout_s
    return flow(by.table, by.priority, fields, *loads, cookie=by.cookie, hard_timeout_s=timeout_s)


def _guard_addresses(port: VmPort) -> Iterator[FlowSpec]:
    """Yield flows that drop other VM ports' frames from this port's attached addresses, in its VLANs.

    If the port is trusted, other trusted ports can use the addresses: those ports' flows take precedence.
    """
    for mac in port.attached_macs:
        for in_vlan in tables.in_vlans(port.vlans.carried):
            yield flow(Table.LEARN, 18 if port.trusted else 30, {"eth_src": mac, **in_vlan})


def _lock(port: VmPort, on_a_lag: bool) -> Iterator[FlowSpec]:
    """Yield flows that lock an address for `LOCK_TIMEOUT_S` after this VM port has announced the address.

    While the address is locked, announcements from outside are treated as returning frames. On a
    LAG, no frame should return, so any frame from outside means that the address has moved away, except
    for `LAG_LOCK_TIMEOUT_S` after a frame that the VM port flooded: for unicast, any frame (in frames from
    VM ports, UPLINK is 0, as NIBBLES is in unicast); else a similar one.
    """
    lock = specs.Learn(
        Table.LOCK,
        tables.learned_cookie(port.ofport, port.vlans),
        tables.LAG_LOCK_TIMEOUT_S if on_a_lag else tables.LOCK_TIMEOUT_S,
        (SAME_VLAN, FROM_SOURCE, tables.IS_LOCKED),
        limit=tables.ADDRESSES_PER_PORT_MAX,
    )
    parts = (Register.UPLINK, Register.NIBBLES) if on_a_lag else ()
    similar = (specs.LearnMatch(part, Register.NIBBLES, 32) for part in parts)
    locks = [replace(lock, specs=(one, *lock.specs)) for one in similar] or [lock]
    announces = {Register.VM_PORT: int(port.ofport), Register.ANNOUNCES: 1}
    for locked, table in ((0, Table.UNCACHE_FIRST), (1, Table.UNCACHE_AGAIN)):
        sent = {**announces, Register.LOCKED: locked}
        yield flow(Table.SET_LOCK, 10, sent, *locks, specs.Resubmit(table))
