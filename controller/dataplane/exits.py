"""Ways out of the pipeline, as groups and flows of several tables take them."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config.vlans import TRUNK, VlanSet, blocks
from controller.dataplane.specs import Action, MatchValue, Output, Resubmit, SetField, ToGroup
from controller.dataplane.tables import (
    VLAN_ID_MASK,
    Register,
    Table,
    openflow_port,
    unicast_group_id,
)
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort


def out_by(ofport: OfPort) -> tuple[Action, ...]:
    """By a port, as it wants the VLANs that it carries; frames of others are dropped."""
    return SetField(Register.TARGET.field, ofport), Resubmit(Table.PORT_OUT)


def delivered(port: VmPort, team: Team) -> tuple[tuple[Action, ...], Table | None]:
    """To a VM port, from an uplink: actions, and the table to go on in.

    While none lives that the port may use, it cannot say where it is. Switches upstream would
    flood what is for it by all others, for ever: nothing of that is delivered.
    """
    if port.is_confined(team.uplinks):
        return (ToGroup(unicast_group_id(port.ofport)),), None
    return (), Table.PORT_OUT


def leave_by(uplink: OfPort, team: Team) -> tuple[Action, ...]:
    """The same by an uplink, for which little is to be done if it carries every VLAN."""
    carries_everything = team.uplink_vlans.get(uplink, TRUNK) == TRUNK
    return (Output(openflow_port(uplink)),) if carries_everything else out_by(uplink)


def register_values(vlans: VlanSet) -> Iterator[MatchValue | None]:
    """Values of the VLAN register that cover these VLANs; None: any."""
    for value, mask in blocks(vlans):
        yield masked(value, ~VLAN_ID_MASK & 0xFFFFFFFF | mask, 0xFFFFFFFF) if mask else None


def masked(value: int, mask: int, all_ones: int) -> MatchValue:
    """As the switch says it: without a mask where every bit counts."""
    return value if mask == all_ones else (value, mask)
