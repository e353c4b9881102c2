"""Tunnel endpoints: the ports of bridges by which Open vSwitch sends its tunnels.

A host that sends the frames of its VMs in tunnels (Geneve, VXLAN, GRE...) sends them from an
address of its own, which is often that of a bridge's port LOCAL or of another internal port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from controller.config.rows import BridgeRow, Endpoint, InterfaceRow, Ovn


class TunnelEnd(NamedTuple):
    """This host's end of a tunnel.

    `own`, `peer`: the addresses of both ends, as far as they are set. `towards`: the device towards
    the other end, if it is known. `kind`: the type of the tunnel.
    """

    own: str | None
    towards: str | None
    kind: str
    bridge: str
    peer: str | None = None


def find(
    tunnels: Iterable[TunnelEnd], ovn: Ovn | None, addresses: Mapping[str, tuple[str, ...]]
) -> dict[str, Endpoint]:
    """The endpoints of these tunnels and of OVN's, by device, whether a bridge has that device or not.

    `addresses`: those of each device of this host. A tunnel leaves by the device that has its
    `local_ip`. A tunnel without one leaves by the device that routes to its `remote_ip`, which
    ovs-vswitchd reports.
    """
    device_of: dict[str | None, str] = {a: device for device, of in addresses.items() for a in of}
    found: dict[str, set[tuple[str, str, str]]] = {}
    for own, towards, kind, bridge, _ in (*tunnels, *_of_ovn(ovn)):
        if (device := device_of.get(own, towards)) is not None:
            sources = addresses.get(device) or ("",) if own is None else (own,)
            found.setdefault(device, set()).update((a, kind, bridge) for a in sources)
    return {device: _endpoint(ends) for device, ends in found.items()}


def ipv6_peers(
    tunnels: Iterable[TunnelEnd], endpoints: Mapping[str, Endpoint]
) -> dict[str, tuple[tuple[str, str], ...]]:
    """For each endpoint that has any: its IPv6 addresses, each with the other end of a tunnel, sorted.

    A tunnel whose other end flows decide is not known.
    """
    device_of: dict[str | None, str] = {
        address: device for device, one in endpoints.items() for address in one.addresses
    }
    found: dict[str, set[tuple[str, str]]] = {}
    for own, towards, _, _, peer in tunnels:
        device = device_of.get(own, towards)
        if peer is None or ":" not in peer or device is None or device not in endpoints:
            continue
        sources = endpoints[device].addresses if own is None else (own,)
        found.setdefault(device, set()).update((a, peer) for a in sources if ":" in a)
    return {device: tuple(sorted(pairs)) for device, pairs in found.items() if pairs}


def marked(
    row: BridgeRow,
    endpoints: Mapping[str, Endpoint],
    peers: Mapping[str, tuple[tuple[str, str], ...]],
) -> BridgeRow:
    """The same bridge, which says of each interface which one of these endpoints it is, if any.

    `peers`: those of `ipv6_peers`.
    """

    def of(interface: InterfaceRow) -> InterfaceRow:
        if (endpoint := endpoints.get(interface.name)) is None:
            return interface
        return replace(interface, endpoint=endpoint, tunnel_peers=peers.get(interface.name, ()))

    return row.with_interfaces(of)


def tunnels(row: BridgeRow) -> Iterator[TunnelEnd]:
    """This host's ends of a bridge's tunnels."""
    for interface in row.interfaces:
        if (tunnel := interface.tunnel) is not None:
            own, peer = (local_address(text or "") for text in (tunnel.local_ip, tunnel.remote_ip))
            yield TunnelEnd(own, tunnel.device, interface.kind, row.name, peer)


def _of_ovn(ovn: Ovn | None) -> Iterator[TunnelEnd]:
    """OVN's endpoints, also those that no tunnel uses yet."""
    if ovn is not None:
        for text in ovn.addresses:
            for kind in ovn.kinds:
                yield TunnelEnd(local_address(text), None, kind, ovn.bridge)


def _endpoint(ends: Iterable[tuple[str, str, str]]) -> Endpoint:
    addresses, kinds, bridges = map(set, zip(*ends, strict=True))
    # The address may be unknown.
    return Endpoint(*(tuple(sorted(one - {""})) for one in (addresses, kinds, bridges)))


def local_address(text: str) -> str | None:
    """An address as the kernel writes it; None for anything else, such as `flow`."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
