"""What the records of bridges say about each other, kept up to date from one reading to the next.

Two marks on an interface depend on other bridges. One says that it is a tunnel endpoint: a host that
sends the frames of its VMs in tunnels (Geneve, VXLAN, GRE...) uses an address of its own, often that of
a bridge's port LOCAL or of another internal port. The other names the VMs behind a patch port: an
integration bridge is in the same database, and its VMs' frames pass a patch port of the attached
bridge, where only their addresses differ.

To derive the marks of hundreds of bridges takes a tenth of a second, and the database changes with every
failover. So marks are derived again only if a record changes what it says about other bridges.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controller.config.guests import guests_on
from controller.config.rows import BridgeRow, Endpoint, Guest, InterfaceRow, Ovn


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


class Facts(NamedTuple):
    """What marks of any bridge may depend on in the record of one.

    `tunnels`: this host's ends of its tunnels. `patches`: its patch ports, with their peers. `guests`:
    its VMs by address, if patch ports may lead to them.
    """

    tunnels: tuple[TunnelEnd, ...]
    patches: Mapping[str, str]
    guests: Mapping[str, Guest]

    @classmethod
    def of(cls, row: BridgeRow) -> Facts:
        patches = {i.name: i.peer for i in row.interfaces if i.peer is not None}
        return cls(tuple(_tunnels(row)), patches, guests_on(row) if patches else {})


class Mark(NamedTuple):
    """The marks of an interface, as fields of its record."""

    endpoint: Endpoint | None = None
    tunnel_peers: tuple[tuple[str, str], ...] = ()
    guests: tuple[Guest, ...] = ()


@dataclass(slots=True)
class Marks:
    """The records of all bridges, with marks. `mark` takes a new reading of them.

    A record counts as changed if it is another object than before. `rows`: by name, the bridges with
    their marks. Each is the same object for as long as nothing in it changes.
    """

    rows: dict[str, BridgeRow] = field(default_factory=dict)
    # By interface. Endpoints are here whether a bridge has them or not.
    _marks: dict[str, Mark] = field(default_factory=dict)
    # By name: the bridges as they came, and what was found in them.
    _came: dict[str, BridgeRow] = field(default_factory=dict)
    _facts: dict[str, Facts] = field(default_factory=dict)
    # What the marks were made of.
    _made_of: tuple[object, ...] = ()

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """The tunnel endpoints, by device."""
        return {name: one.endpoint for name, one in self._marks.items() if one.endpoint}

    def mark(
        self, rows: Iterable[BridgeRow], ovn: Ovn | None, addresses: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Mark these records. `addresses`: those of each device of this host."""
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
            self._marks = _endpoints([*ends, *_of_ovn(ovn)], addresses)
            self._marks |= self._patches(attached)
        last = {name: row for name, row in self.rows.items() if name not in changed}
        self.rows = {
            name: self._marked(row, last.get(name)) if name in marked_anew else last[name]
            for name, row in self._came.items()
        }

    def _marked(self, row: BridgeRow, last: BridgeRow | None) -> BridgeRow:
        """The bridge with its marks. `last`: the same with those from before, if it has not changed."""

        def on(interface: InterfaceRow) -> InterfaceRow:
            mark = self._marks.get(interface.name)
            return interface if mark is None else replace(interface, **mark._asdict())

        made = row.with_interfaces(on)
        return last if last is not None and last == made else made

    def _patches(self, attached: set[str]) -> dict[str, Mark]:
        """The patch ports of attached bridges, with the VMs behind them."""
        bridge_of = {patch: name for name, of in self._facts.items() for patch in of.patches}
        return {
            patch: Mark(guests=self._behind(name, peer, bridge_of))
            for name in attached
            for patch, peer in self._facts[name].patches.items()
        }

    def _behind(self, own: str, peer: str, bridge_of: Mapping[str, str]) -> tuple[Guest, ...]:
        """The VMs on the bridge that a patch port leads to, and on those that lead on from there."""
        found: dict[str, Guest] = {}
        seen, ahead = {own}, [peer]
        while ahead:
            # A peer may be on no bridge yet.
            name = bridge_of.get(ahead.pop())
            if name is not None and name not in seen:
                seen.add(name)
                ahead += self._facts[name].patches.values()
                found |= self._facts[name].guests
        return tuple(found[mac] for mac in sorted(found))


def _endpoints(
    ends: Iterable[TunnelEnd], addresses: Mapping[str, tuple[str, ...]]
) -> dict[str, Mark]:
    """The endpoints of these tunnels by device, with the other ends of tunnels over IPv6.

    A tunnel leaves by the device that has its `local_ip`. A tunnel without one leaves by the device
    that routes to its `remote_ip`, which ovs-vswitchd reports.
    """
    device_of: dict[str | None, str] = {a: device for device, of in addresses.items() for a in of}
    found: dict[str, set[tuple[str, TunnelEnd]]] = {}
    for end in ends:
        if (device := device_of.get(end.own, end.towards)) is not None:
            # The address may be unknown.
            sources = addresses.get(device) or ("",) if end.own is None else (end.own,)
            found.setdefault(device, set()).update((source, end) for source in sources)
    return {device: _endpoint(of) for device, of in found.items()}


def _endpoint(ends: Iterable[tuple[str, TunnelEnd]]) -> Mark:
    sources = {source for source, _ in ends} - {""}
    kinds, bridges = {end.kind for _, end in ends}, {end.bridge for _, end in ends}
    over_ipv6 = {(s, e.peer) for s, e in ends if ":" in s and e.peer is not None and ":" in e.peer}
    endpoint = Endpoint(*(tuple(sorted(of)) for of in (sources, kinds, bridges)))
    return Mark(endpoint, tuple(sorted(over_ipv6)))


def _tunnels(row: BridgeRow) -> Iterator[TunnelEnd]:
    """This host's ends of a bridge's tunnels. An other end that flows decide is not known."""
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


def local_address(text: str) -> str | None:
    """An address as the kernel writes it; None for anything else, such as `flow`."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
