"""Bindings: what a VM port sends leaves by the uplink that it is bound to.

Tables: UPLINK_OUT. Groups: one for each VM port, its binding.

Invariant: a move changes the VM port's binding group, and no flow. If the uplink goes down, the
switch itself changes over to the next one of the VM port's order.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.dataplane import hashing
from controller.dataplane.normal import by_any_uplink
from controller.dataplane.output import ALWAYS, first_live, leave_by
from controller.dataplane.specs import Actions, FlowSpec, GroupSpec, ToGroup, flow
from controller.dataplane.tables import Kind, Register, Table, binding_group_id, cookie
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort


def flows(team: Team) -> Iterator[FlowSpec]:
    for port in team.vm_ports:
        group, counts = ToGroup(binding_group_id(port.ofport)), cookie(Kind.FROM_VM, port.ofport)
        sent = {Register.VM_PORT: port.ofport}
        yield flow(Table.UPLINK_OUT, 10, sent, group, cookie=counts)


def groups(team: Team) -> Iterator[GroupSpec]:
    for port in team.vm_ports:
        ways = ((uplink, _leave(port, uplink, team)) for uplink in port.order)
        yield first_live(binding_group_id(port.ofport), ways, by_any_uplink(port, team))
    if team.over_normal:
        yield ALWAYS


def _leave(port: VmPort, uplink: OfPort, team: Team) -> Actions:
    """Out by the uplink; if the VM port is hashed, the uplink is its home and the hash decides."""
    if port.hashed is None:
        return leave_by(uplink, team)
    lane = port.order[0] if team.has_lanes(port.hashed) else None
    return hashing.spread(port.hashed, home=uplink, lane=lane)
