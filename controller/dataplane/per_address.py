"""Address units (`unit=source-mac`): each address behind a VM port has its own uplink.

Binding group -> HASH (one flow for each address, which counts frames) -> the address's group (its first
live uplink) -> OFF_HOME (sends the frame out unchanged). Frames from an unknown address leave on the VM
port's home, on which the VM port receives all broadcasts.

The switch forgets an address that has been silent for `LEARNED_TIMEOUT_S`. Unicast to the address then
arrives on the uplink where upstream switches know the address, or if they have forgotten it, on every
uplink: DELIVERY -> the address's group -> OFF_HOME (delivers frames from the address's uplink).

Tables: in HASH, EGRESS, DELIVERY and OFF_HOME, the flows for these addresses and their VM ports.
Groups: one for each address.

Invariant: a move changes only the address's group. A forgotten address receives one copy of unicast.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.dataplane import hashing
from controller.dataplane.output import out_by
from controller.dataplane.specs import Fields, FlowSpec, GroupSpec, SetField, ToGroup, flow
from controller.dataplane.tables import ASSIGNED, Kind, Register, Table, address_group_id, cookie
from controller.dataplane.team import Team
from controller.dataplane.unicast import to_vm_port


def flows(team: Team) -> Iterator[FlowSpec]:
    """Yield the flows for address units and their VM ports; none if the team has no such VM ports."""
    if all(port.hashed != ASSIGNED for port in team.vm_ports):
        return
    yield hashing.in_hash(ASSIGNED, 0, hashing.BY_HOME)
    if not team.hears_everywhere:
        yield from hashing.for_the_home_to_hear(ASSIGNED, team)
    vm_ports = {port.ofport: port for port in team.vm_ports}
    for address in team.addresses:
        ofport = address.ofport
        in_vlan: Fields = {Register.VLAN: address.vlan}
        group = ToGroup(address_group_id(address.slot))
        hashed = {Register.HASHED: ASSIGNED, **in_vlan, Register.VM_PORT: ofport}
        sent = {**hashed, "eth_src": address.mac}
        yield flow(Table.HASH, 10, sent, group, cookie=cookie(Kind.FROM_ADDRESS, address.slot))
        unknown = {**in_vlan, Register.VM_PORT: 0, "eth_dst": address.mac}
        received = {**unknown, Register.TARGET: int(ofport)}
        actions, goto = to_vm_port(vm_ports[ofport], team)
        counts = cookie(Kind.TO_ADDRESS, address.slot)
        yield flow(Table.EGRESS, 40, received, *actions, goto=goto, cookie=counts)
        if not team.hears_everywhere:
            # This also applies if the switch learned the address from returning frames on an uplink.
            yield flow(Table.DELIVERY, 30, unknown, SetField(Register.HOME, int(ofport)), group)
    if not team.hears_everywhere:
        yield from _delivered_once(team)


def _delivered_once(team: Team) -> Iterator[FlowSpec]:
    """Yield flows that deliver unicast to a forgotten address only from the address's uplink.

    Frames from an uplink never leave on an uplink.
    """
    yield flow(Table.OFF_HOME, 40, {Register.VM_PORT: 0})
    for port in team.vm_ports:
        for uplink in team.uplinks if port.hashed == ASSIGNED else ():
            by_own = {Register.UPLINK: uplink, Register.TARGET: uplink, Register.VM_PORT: 0}
            delivered = {**by_own, Register.HOME: port.ofport}
            yield flow(Table.OFF_HOME, 50, delivered, *out_by(port.ofport))


def groups(team: Team) -> Iterator[GroupSpec]:
    """Yield each address's group, which sends frames out on the address's first live uplink."""
    for address in team.addresses:
        yield hashing.by_first_live(address_group_id(address.slot), address.order)
