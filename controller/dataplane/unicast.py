"""Unicast: sends frames to the VM port of the destination address, or out on an uplink.

Tables: EGRESS, INBOUND; in DESTINATION and FROM_UPLINK, the flow for unicast; in NO_UPLINK, the flows
that learn to drop frames from uplinks. Groups: one for each VM port that cannot use every uplink.

Invariant: unicast from an uplink reaches a VM port only while one of the VM port's allowed uplinks
is live. The switch checks this, so a move changes no flow and no group of this module.

Invariant: if upstream switches know a VM port on one uplink (`VmPort.known_on`), unicast that arrives on
other uplinks is a flooded copy, and is delivered like broadcasts: from the first live uplink in the port's
order. If the port has sent frames out on another uplink since then, unicast is accepted there as well.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from controller.dataplane import specs, tables
from controller.dataplane.learning import TRY_LOCK, learn_closed, learn_outside
from controller.dataplane.output import first_live, out_by
from controller.dataplane.reflection import by_presence
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import UNICAST, Group, Kind, Register, Table
from controller.dataplane.team import KEPT, Team, VmPort
from policies.model import OfPort


def to_vm_port(port: VmPort, team: Team) -> tuple[specs.Actions, Table | None]:
    """Return the actions and the next table that deliver a frame from an uplink to a VM port.

    While no allowed uplink of the VM port is live, the VM cannot be announced on any uplink. Upstream
    switches would continue to flood frames for the VM to all other uplinks, so frames from these are
    dropped. When an allowed uplink is live again, frames arrive on all uplinks until the VM is announced.
    So the switch learns to drop frames from the other uplinks for `LOCK_TIMEOUT_S`.
    """
    if port.is_confined(team.uplinks):
        return (specs.ToGroup(Group.UNICAST.id_of(port.ofport)),), None
    return (), Table.PORT_OUT


def flows(team: Team) -> Iterator[FlowSpec]:
    unicast, location = {"eth_dst": UNICAST}, specs.Resubmit(Table.LOCATION)
    yield flow(Table.DESTINATION, 10, unicast, location, goto=Table.EGRESS)
    locate: specs.Actions = (learn_outside(), location)
    if not team.hears_everywhere:
        locate += (specs.Resubmit(Table.INBOUND),)
    yield flow(Table.FROM_UPLINK, 10, unicast, *locate, goto=Table.EGRESS)
    if any(port.known_on for port in team.vm_ports):
        yield flow(Table.EGRESS, 40, {Register.TARGET: tables.DONE})
    for port in team.vm_ports:
        target = {Register.TARGET: port.ofport}
        yield flow(Table.EGRESS, 20, target, *by_presence(port))
        from_uplink = {**target, Register.VM_PORT: 0}
        counts = tables.cookie(Kind.TO_VM, port.ofport)
        actions, goto = to_vm_port(port, team)
        yield flow(Table.EGRESS, 30, from_uplink, *actions, goto=goto, cookie=counts)
        yield from _by_uplink(port, team)
    yield from _to_unknown(team)


def _to_unknown(team: Team) -> Iterator[FlowSpec]:
    """Yield flows for frames to an unknown address, or to an address known to be outside the bridge."""
    lock = TRY_LOCK if team.hears_everywhere else ()
    local_source = specs.Resubmit(Table.LOCAL_SOURCE)
    for unknown, goto in ((0, Table.FLOOD), (tables.ELSEWHERE, Table.UPLINK_OUT)):
        target = {Register.TARGET: unknown}
        from_vm = {**target, Register.UPLINK: 0}
        yield flow(Table.EGRESS, 10, from_vm, *(lock if unknown == 0 else ()), goto=goto)
        yield flow(Table.EGRESS, 5, target, local_source, goto=Table.REFLECTION)


def _by_uplink(port: VmPort, team: Team) -> Iterator[FlowSpec]:
    """Yield flows that count frames from each uplink to a VM port, to detect when they follow a move.

    There is a flow for each uplink, so that a move changes no flow; on a LAG, there are no such flows.
    For uplinks that are not allowed, there are also flows that learn to drop frames to the port.
    """
    for uplink in () if team.hears_everywhere else team.uplinks:
        ends = {Register.TARGET: int(port.ofport), Register.UPLINK: int(uplink)}
        counts, actions = tables.inbound_cookie(port.ofport, uplink), specs.Actions()
        if port.known_on not in (None, uplink):
            group_id = tables.delivery_group_id(port.ofport, team.uplinks.index(uplink))
            actions = (specs.ToGroup(group_id), specs.SetField(Register.TARGET, tables.DONE))
        yield flow(Table.INBOUND, 10, ends, *actions, cookie=counts)
        if uplink not in port.order:
            yield flow(Table.NO_UPLINK, 10, ends, learn_closed(port.ofport, uplink))
    if port.known_on is not None:
        yield opens(port.ofport, port.known_on)


# Cached, because the desired pipeline is compared with these flows after each event.
@functools.lru_cache(maxsize=KEPT)
def opens(ofport: OfPort, known_on: OfPort) -> FlowSpec:
    """Return the flow that learns to accept unicast from an uplink other than `known_on`.

    A frame from the VM port leaves on that uplink, in register TARGET, because `known_on` has failed. Later,
    upstream switches may still use that uplink, until they forget the address or the service runs again.
    """
    ends = ((Register.VM_PORT, Register.TARGET), (Register.TARGET, Register.UPLINK))
    accepted = tuple(specs.LearnMatch(source, target, 16) for source, target in ends)
    cookie = tables.cookie(Kind.OUTSIDE, known_on << 16 | ofport)
    timeout_s = tables.LEARNED_TIMEOUT_S
    learn = specs.Learn(Table.INBOUND, cookie, timeout_s, accepted, True, priority=20)
    return flow(
        Table.INBOUND, 10, {Register.VM_PORT: ofport}, learn, specs.Resubmit(Table.PORT_OUT)
    )


def groups(team: Team) -> Iterator[specs.GroupSpec]:
    for port in team.vm_ports:
        if port.is_confined(team.uplinks):
            out, close = out_by(port.ofport), (specs.Resubmit(Table.NO_UPLINK),)
            ways = [(u, out) for u in team.uplinks if u in port.order]
            if not team.hears_everywhere:
                ways += [(u, close) for u in team.uplinks if u not in port.order]
            yield first_live(Group.UNICAST.id_of(port.ofport), ways)
