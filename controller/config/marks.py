"""What the records of bridges say about each other, kept up to date from one reading to the next.

Which ports are tunnel endpoints, and which VMs are behind patch ports, depends on other bridges. To
find that out for hundreds of bridges takes a tenth of a second, and the database changes with every
failover. So only records that have changed are looked at again, and those that depend on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.config import endpoints, guests
from controller.config.endpoints import TunnelEnd
from controller.config.guests import Trail
from controller.config.rows import BridgeRow, Endpoint, Ovn

NONE: frozenset[str] = frozenset()


@dataclass(slots=True)
class Marks:
    """The records of all bridges, with marks. `mark` takes a new reading of them.

    A record counts as changed if it is another object than before. `rows`: by name, the bridges with
    their marks. Each is the same object for as long as nothing in it changes. `endpoints`: by device.
    """

    rows: dict[str, BridgeRow] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    # By name: the bridges as they came; the same with endpoints only; and what was found in them.
    _came: dict[str, BridgeRow] = field(default_factory=dict)
    _with_endpoints: dict[str, BridgeRow] = field(default_factory=dict)
    _tunnels: dict[str, tuple[TunnelEnd, ...]] = field(default_factory=dict)
    _interfaces: dict[str, frozenset[str]] = field(default_factory=dict)
    _trails: dict[str, Trail] = field(default_factory=dict)
    # By device: the other ends of tunnels from its IPv6 addresses.
    _peers: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    # By interface.
    _bridge_of: dict[str, str] = field(default_factory=dict)

    def mark(
        self, rows: Iterable[BridgeRow], ovn: Ovn | None, addresses: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Mark these records. `ovn`, `addresses`: as `endpoints.find` takes them."""
        before, self._came = self._came, {row.name: row for row in rows}
        gone = before.keys() - self._came.keys()
        for name in gone:
            del self._with_endpoints[name], self._tunnels[name], self._trails[name]
        changed = {name for name, row in self._came.items() if before.get(name) is not row}
        for name in changed:
            self._tunnels[name] = tuple(endpoints.tunnels(self._came[name]))
        tunnels = list(itertools.chain(*self._tunnels.values()))
        found = endpoints.find(tunnels, ovn, addresses)
        peers = endpoints.ipv6_peers(tunnels, found)
        if (found, peers) != (self.endpoints, self._peers):
            self.endpoints, self._peers, changed = found, peers, set(self._came)
        for name in changed:
            self._with_endpoints[name] = endpoints.marked(self._came[name], found, peers)
        self._mark_guests(changed | gone)

    def _mark_guests(self, changed: set[str]) -> None:
        """Mark the patch ports of bridges that have changed, and of those that lead to them."""
        moved, marked = self._moved(changed), dict[str, BridgeRow]()
        for name in self._came:
            trail = self._trails.get(name)
            if trail is None or name in changed or trail.leads_to(changed, moved):
                marked[name], self._trails[name] = guests.followed(
                    self._with_endpoints[name], self._with_endpoints, self._bridge_of
                )
            else:
                marked[name] = self.rows[name]
        self.rows = marked

    def _moved(self, changed: set[str]) -> frozenset[str]:
        """The interfaces of changed bridges that have come or gone."""
        moved = NONE
        for name in changed:
            row = self._with_endpoints.get(name)
            now = frozenset(interface.name for interface in row.interfaces) if row else NONE
            moved |= now ^ self._interfaces.get(name, NONE)
            self._interfaces[name] = now
            if row is None:
                del self._interfaces[name]
        if moved:
            self._bridge_of = {i: name for name, of in self._interfaces.items() for i in of}
        return moved
