"""Tunnel endpoints: the ports of bridges by which Open vSwitch sends its tunnels.

A host that sends the frames of its VMs in tunnels (Geneve, VXLAN, GRE...) sends them from an
address of its own, which is often that of a bridge's port LOCAL or of another internal port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from controller.config.rows import BridgeRow, InterfaceRow, Ovn
from controller.text.wording import tunnels_sent


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a port sends tunnels for. Each tuple is sorted and has no value twice.

    `addresses`: from which they are sent, as far as that is known. `kinds`: the types of the
    tunnels. `bridges`: the bridges that they belong to.
    """

    addresses: tuple[str, ...]
    kinds: tuple[str, ...]
    bridges: tuple[str, ...]

    def __str__(self) -> str:
        return tunnels_sent(self.kinds, self.bridges, self.addresses)


def find(
    rows: Iterable[BridgeRow], ovn: Ovn | None, addresses: Mapping[str, tuple[str, ...]]
) -> dict[str, Endpoint]:
    """The endpoints of all tunnels, by device, whether a bridge has that device or not.

    `addresses`: those of each device of this host. A tunnel leaves by the device that has its
    `local_ip`. A tunnel without one leaves by the device that routes to its `remote_ip`, which
    ovs-vswitchd reports.
    """
    device_of = {address: device for device, of in addresses.items() for address in of}
    found: dict[str, set[tuple[str, str, str]]] = {}
    for own, towards, kind, bridge in (*_tunnels(rows), *_of_ovn(ovn)):
        if own is not None and (device := device_of.get(own)) is not None:
            found.setdefault(device, set()).add((own, kind, bridge))
        elif towards is not None:
            of = addresses.get(towards, ()) if own is None else (own,)
            found.setdefault(towards, set()).update((a, kind, bridge) for a in of or ("",))
    return {device: _endpoint(tunnels) for device, tunnels in found.items()}


# The tunnel's own address, if set; the device towards its other end, if known; its type; its bridge.
_Tunnel = tuple[str | None, str | None, str, str]


def marked(row: BridgeRow, endpoints: Mapping[str, Endpoint]) -> BridgeRow:
    """The same bridge, which says of each interface whether it is one of these endpoints."""

    def of(interface: InterfaceRow) -> InterfaceRow:
        endpoint = endpoints.get(interface.name)
        addresses = endpoint.addresses if endpoint else ()
        sends = endpoint is not None
        if (interface.sends_tunnels, interface.tunnel_addresses) == (sends, addresses):
            return interface
        return replace(interface, sends_tunnels=sends, tunnel_addresses=addresses)

    return row.with_interfaces(of)


def _tunnels(rows: Iterable[BridgeRow]) -> Iterator[_Tunnel]:
    for row in rows:
        for interface in row.interfaces:
            tunnel = interface.tunnel
            if tunnel is not None:
                own = local_address(tunnel.local_ip) if tunnel.local_ip else None
                yield own, tunnel.device, interface.kind, row.name


def _of_ovn(ovn: Ovn | None) -> Iterator[_Tunnel]:
    """OVN's endpoints: also those that no tunnel uses yet."""
    if ovn is not None:
        for text in ovn.addresses:
            for kind in ovn.kinds:
                yield local_address(text), None, kind, ovn.bridge


def _endpoint(tunnels: Iterable[tuple[str, str, str]]) -> Endpoint:
    addresses, kinds, bridges = map(set, zip(*tunnels, strict=True))
    # The address may be unknown.
    return Endpoint(*(tuple(sorted(one - {""})) for one in (addresses, kinds, bridges)))


def local_address(text: str) -> str | None:
    """An address as the kernel writes it; None for anything else, such as `flow`."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
