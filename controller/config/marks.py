"""Marks tunnel endpoints and the VMs behind patch ports, by comparing the records of all bridges.

The first mark identifies tunnel endpoints: a host that encapsulates VM frames (Geneve, VXLAN, GRE...)
sends them from one of its own addresses, often that of a bridge's port LOCAL or another internal port.
The second mark lists the VMs behind a patch port: an integration bridge is in the same database, and its
VMs' frames pass through a patch port of the attached bridge, where only their addresses differ.

Deriving the marks of hundreds of bridges takes 0.1 s, and every failover changes the database. So marks
are derived again only after a change of data on which the marks of other bridges depend.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controller.config.guests import guests_on
from controller.config.kept_keys import with_uplink_keys
from controller.config.rows import BridgeRow, Endpoint, Guest, InterfaceRow, Ovn, Tunnel

# A bridge's name, a tunnel's type, and the tunnel's ends, with addresses as the kernel writes them.
End = tuple[str, str, Tunnel]


class Facts(NamedTuple):
    """The data from one bridge's record on which the marks of any bridge may depend.

    `tunnels`: the ends of the bridge's tunnels. `patches`: the bridge's patch ports, with their
    peers. `guests`: the bridge's VMs by address, if the bridge has patch ports.
    """

    tunnels: tuple[End, ...]
    patches: Mapping[str, str]
    guests: Mapping[str, Guest]

    @classmethod
    def of(cls, row: BridgeRow) -> Facts:
        patches = {i.name: i.peer for i in row.interfaces if i.peer is not None}
        return cls(tuple(_tunnels(row)), patches, guests_on(row) if patches else {})


class Mark(NamedTuple):
    """The marks of an interface: its role as a tunnel endpoint, or the VMs behind a patch port."""

    endpoint: Endpoint | None = None
    tunnel_peers: tuple[tuple[str, str], ...] = ()
    guests: tuple[Guest, ...] = ()


@dataclass(slots=True)
class Marks:
    """The records of all bridges, with marks. `mark` updates them from a new reading.

    A record counts as changed if it is not the same object as before. `rows`: the bridges with their
    marks and the stored keys of their uplinks, by name. A bridge remains the same object until its
    content changes.
    """

    rows: dict[str, BridgeRow] = field(default_factory=dict)
    # Keyed by interface. Includes endpoints that are not on a bridge.
    _marks: dict[str, Mark] = field(default_factory=dict)
    # Keyed by name: each bridge's record without marks, and the data from this record.
    _came: dict[str, BridgeRow] = field(default_factory=dict)
    _facts: dict[str, Facts] = field(default_factory=dict)
    # The data from which the marks were derived.
    _made_of: tuple[object, ...] = ()

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """The tunnel endpoints, keyed by device."""
        return {name: one.endpoint for name, one in self._marks.items() if one.endpoint}

    def mark(
        self, rows: Iterable[BridgeRow], ovn: Ovn | None, addresses: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Update the marks from new records. `addresses`: the addresses of each device of this host."""
        before, self._came = self._came, {row.name: row for row in rows}
        changed = {name for name, row in self._came.items() if before.get(name) is not row}
        self._facts = {
            name: Facts.of(row) if name in changed else self._facts[name]
            for name, row in self._came.items()
        }
        attached = {name for name, row in self._came.items() if row.attached}
        made_of = self._facts, attached, ovn, addresses
        marked_anew = changed
        if made_of != self._made_of:
            self._made_of, marked_anew = made_of, set(self._came)
            ends = [end for facts in self._facts.values() for end in facts.tunnels]
            if ovn is not None:
                # OVN may not have created a tunnel from these addresses yet.
                pairs = itertools.product(ovn.addresses, ovn.kinds)
                ends += [(ovn.bridge, kind, Tunnel(local_address(text))) for text, kind in pairs]
            self._marks = _endpoints(ends, addresses) | self._patches(attached)
        last = {name: row for name, row in self.rows.items() if name not in changed}
        self.rows = {
            name: self._marked(row, last.get(name)) if name in marked_anew else last[name]
            for name, row in self._came.items()
        }

    def _marked(self, row: BridgeRow, last: BridgeRow | None) -> BridgeRow:
        """Return the bridge with marks and uplinks' keys. `last`: the previous result for an unchanged record."""

        def on(interface: InterfaceRow) -> InterfaceRow:
            mark = self._marks.get(interface.name)
            return interface if mark is None else replace(interface, **mark._asdict())

        made = with_uplink_keys(row).with_interfaces(on)
        return last if last is not None and last == made else made

    def _patches(self, attached: set[str]) -> dict[str, Mark]:
        """Return the patch ports of attached bridges, with the VMs behind each patch port."""
        bridge_of = {patch: name for name, of in self._facts.items() for patch in of.patches}
        return {
            patch: Mark(guests=self._behind(name, peer, bridge_of))
            for name in attached
            for patch, peer in self._facts[name].patches.items()
        }

    def _behind(self, own: str, peer: str, bridge_of: Mapping[str, str]) -> tuple[Guest, ...]:
        """Return the VMs on all bridges that can be reached through a patch port."""
        found: dict[str, Guest] = {}
        seen, ahead = {own}, [peer]
        while ahead:
            # The peer may not be on a bridge yet.
            name = bridge_of.get(ahead.pop())
            if name is not None and name not in seen:
                seen.add(name)
                ahead += self._facts[name].patches.values()
                found |= self._facts[name].guests
        return tuple(found[mac] for mac in sorted(found))


def _endpoints(ends: Iterable[End], addresses: Mapping[str, tuple[str, ...]]) -> dict[str, Mark]:
    """Return the endpoints of these tunnels, keyed by device, with the remote ends of IPv6 tunnels.

    A tunnel uses the device that has its `local_ip`. A tunnel without `local_ip` uses the device with
    the route to its `remote_ip`, which ovs-vswitchd reports.
    """
    device_of: dict[str | None, str] = {a: device for device, of in addresses.items() for a in of}
    found: dict[str, set[tuple[str, End]]] = {}
    for end in ends:
        own, towards = end[-1].local_ip, end[-1].device
        if (device := device_of.get(own, towards)) is not None:
            # The device's address may be unknown.
            sources = addresses.get(device) or ("",) if own is None else (own,)
            found.setdefault(device, set()).update((source, end) for source in sources)
    return {device: _endpoint(of) for device, of in found.items()}


def _endpoint(ends: Iterable[tuple[str, End]]) -> Mark:
    sources = {source for source, _ in ends} - {""}
    kinds, bridges = {kind for _, (_, kind, _) in ends}, {bridge for _, (bridge, *_) in ends}
    pairs = ((source, tunnel.remote_ip or "") for source, (*_, tunnel) in ends)
    over_ipv6 = {pair for pair in pairs if all(":" in address for address in pair)}
    endpoint = Endpoint(*(tuple(sorted(of)) for of in (sources, kinds, bridges)))
    return Mark(endpoint, tuple(sorted(over_ipv6)))


def _tunnels(row: BridgeRow) -> Iterator[End]:
    """Return the ends of a bridge's tunnels. The remote end is None if flows set it."""
    for interface in row.interfaces:
        if (tunnel := interface.tunnel) is not None:
            own, peer = (local_address(text or "") for text in (tunnel.local_ip, tunnel.remote_ip))
            yield row.name, interface.kind, Tunnel(own, tunnel.device, peer)


def local_address(text: str) -> str | None:
    """Return an address as the kernel writes it; None for any other word, such as `flow`."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
