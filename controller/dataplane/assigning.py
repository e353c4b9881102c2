"""How addresses behind one VM port leave by uplinks of their own.

Binding group -> HASH (a flow for each address counts it) -> the address's group (the uplink in
force) -> OFF_HOME (as it stands). What is not known yet leaves by the VM port's home, by which the
VM port hears all broadcasts.

Unicast to an address that was silent for so long that the switch has forgotten it comes by the
uplink where switches upstream know it, or by all of them where these have forgotten it, too:
DELIVERY -> the address's group -> OFF_HOME (delivered if it came by the uplink in force). One copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.dataplane import hashing
from controller.dataplane.exits import delivered, out_by
from controller.dataplane.specs import FlowSpec, GroupSpec, MatchValue, SetField, ToGroup, match
from controller.dataplane.tables import ASSIGNED, Kind, Register, Table, cookie, station_group_id
from controller.dataplane.team import Team


def flows(team: Team) -> Iterator[FlowSpec]:
    """Nothing for a team without such VM ports."""
    if all(port.hashed != ASSIGNED for port in team.vm_ports):
        return
    yield hashing.in_hash(ASSIGNED, 0, {}, hashing.BY_HOME)
    if not team.hears_everywhere:
        yield from hashing.for_the_home_to_hear(ASSIGNED, team)
    vm_ports = {port.ofport: port for port in team.vm_ports}
    for station in team.stations:
        vlan: dict[str, MatchValue] = {Register.VLAN.field: station.vlan}
        sent = {**vlan, Register.VM_PORT.field: int(station.ofport), "eth_src": station.mac}
        group = (ToGroup(station_group_id(station.slot)),)
        counts = cookie(Kind.FROM_ADDRESS, station.slot)
        yield replace(hashing.in_hash(ASSIGNED, 10, sent, group), cookie=counts)
        received = {Register.TARGET.field: int(station.ofport), Register.VM_PORT.field: 0}
        actions, goto = delivered(vm_ports[station.ofport], team)
        yield FlowSpec(
            Table.EGRESS,
            40,
            match(**vlan, **received, eth_dst=station.mac),
            actions,
            goto,
            cookie=cookie(Kind.TO_ADDRESS, station.slot),
        )
        if not team.hears_everywhere:
            unknown: dict[str, MatchValue] = {
                r.field: 0 for r in (Register.VM_PORT, Register.TARGET)
            }
            unknown |= {**vlan, "eth_dst": station.mac}
            behind = SetField(Register.HOME.field, int(station.ofport))
            yield FlowSpec(Table.DELIVERY, 30, match(**unknown), (behind, *group))
    if not team.hears_everywhere:
        yield from _delivered_once(team)


def _delivered_once(team: Team) -> Iterator[FlowSpec]:
    """Frames from uplinks in table OFF_HOME: never out, and in by the uplink in force only."""
    from_uplink: dict[str, MatchValue] = {Register.VM_PORT.field: 0}
    yield FlowSpec(Table.OFF_HOME, 40, match(**from_uplink))
    for port in team.vm_ports:
        for uplink in team.uplinks if port.hashed == ASSIGNED else ():
            in_force = {r.field: int(uplink) for r in (Register.UPLINK, Register.TARGET)}
            behind = {Register.HOME.field: int(port.ofport)}
            yield FlowSpec(
                Table.OFF_HOME,
                50,
                match(**from_uplink, **in_force, **behind),
                out_by(port.ofport),
            )


def groups(team: Team) -> Iterator[GroupSpec]:
    """A group for each address: by the first live uplink of its order."""
    for station in team.stations:
        yield hashing.by_first_live(station_group_id(station.slot), station.order)
