"""Features of a bridge that the NORMAL action supports and our pipeline does not."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config.rows import PREFIX, BridgeRow


def not_done(row: BridgeRow) -> tuple[str, ...]:
    """The features in use that NORMAL supports and our pipeline does not, one line each.

    Sampling (NetFlow, sFlow, IPFIX) does not depend on NORMAL and continues.
    """
    return tuple(_not_done(row))


def _not_done(row: BridgeRow) -> Iterator[str]:
    bridge = f"Bridge {row.name}"
    for column, on in (("stp_enable", row.stp_enable), ("rstp_enable", row.rstp_enable)):
        if on:
            yield f"{bridge} {column}: an uplink that spanning tree blocks counts as usable"
    if row.mcast_snooping_enable:
        effect = "multicast goes to every VM port of its VLAN, member or not"
        yield f"{bridge} mcast_snooping_enable: {effect}"
    if row.flood_vlans:
        vlans = ", ".join(map(str, row.flood_vlans))
        yield f"{bridge} flood_vlans: ovs-lbt learns addresses in VLAN {vlans} instead of flooding"
    for name in row.mirrors:
        yield f"{bridge} mirrors: the output port of mirror {name} also receives ordinary traffic"
    for port in row.ports:
        if port.vlan_mode == "dot1q-tunnel":
            effect = f"the port works as an access port of VLAN {port.tag or 0}, not as a tunnel"
            yield f"Port {port.name} vlan_mode: {effect}"
        if port.protected and PREFIX + "protected" not in port.external_ids:
            yield f"Port {port.name} protected: the port can reach other protected ports"
