"""Reports features of a bridge that the NORMAL action supports, but our pipeline does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from controller.config.rows import BridgeRow
from controller.config.vlans import port_vlans


def not_done(row: BridgeRow, uplinks: Collection[str], lag: bool) -> tuple[str, ...]:
    """Return a line for each feature in use that NORMAL supports, but our pipeline does not.

    Sampling (NetFlow, sFlow, IPFIX) does not depend on NORMAL and continues. `uplinks`: the names of
    the uplinks. `lag`: whether the upstream switch treats the uplinks as one link.
    """
    return (*_not_done(row), *multiplied(row, uplinks), *returned(row, uplinks, lag))


def multiplied(row: BridgeRow, uplinks: Collection[str]) -> Iterator[str]:
    """Report the mirrors whose frames are sent on several plain uplinks.

    Open vSwitch itself sends mirrored frames to every port that carries the output VLAN. A bond counts
    as one port.
    """
    for mirror in row.mirrors:
        by = _carry(row, uplinks, mirror.output_vlan, inside=True)
        if len(by) > 1:
            found = f"Bridge {row.name} mirrors: {mirror.name} sends VLAN {mirror.output_vlan} on {', '.join(by)}"
            yield f"{found}, which form a loop; set trunks without that VLAN on all uplinks but one"


def returned(row: BridgeRow, uplinks: Collection[str], lag: bool) -> Iterator[str]:
    """Report mirrors whose frames return on other members of a bond, because they bypass our flows.

    The source of a mirrored frame is an address in another VLAN, so it looks like another host's frame.
    """
    bond = next((p for p in row.ports if {i.name for i in p.interfaces} == {*uplinks}), None)
    for mirror in row.mirrors if bond is not None and not lag else ():
        by, to = (_carry(row, uplinks, mirror.output_vlan, inside) for inside in (True, False))
        if by and to:
            found = f"Bridge {row.name} mirrors: {', '.join(to)} may receive each frame"
            remedy = "use LACP, use output_port instead of output_vlan, or remove the VLAN from these ports"
            yield f"{found} of mirror {mirror.name} (output_vlan {mirror.output_vlan}) twice; {remedy}"


def _carry(row: BridgeRow, uplinks: Collection[str], vlan: int | None, inside: bool) -> list[str]:
    """Return the ports that carry a VLAN: uplinks (`inside`) or other ports. A bond is one port."""
    return [
        port.name
        for port in row.ports
        if vlan is not None
        and all((i.name in uplinks) == inside for i in port.interfaces)
        and vlan in port_vlans(port.vlan_mode, port.tag, port.trunks).carried
    ]


def _not_done(row: BridgeRow) -> Iterator[str]:
    bridge = f"Bridge {row.name}"
    for column, on in (("stp_enable", row.stp_enable), ("rstp_enable", row.rstp_enable)):
        if on:
            effect = "VM ports stay on an uplink that spanning tree blocks"
            yield f"{bridge} {column}: while the service is down, {effect}"
    if row.mcast_snooping_enable:
        effect = "multicast reaches every VM port of its VLAN, not only group members"
        yield f"{bridge} mcast_snooping_enable: {effect}"
    if row.flood_vlans:
        vlans = ", ".join(map(str, row.flood_vlans))
        yield f"{bridge} flood_vlans: ovs-lbt learns addresses in VLAN {vlans} instead of flooding"
    for port in row.ports:
        if port.vlan_mode == "dot1q-tunnel":
            effect = f"the port works as an access port of VLAN {port.tag or 0}, not as a tunnel"
            yield f"Port {port.name} vlan_mode: {effect}"
