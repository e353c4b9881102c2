"""Places flows on uplinks by the size of every flow, which is unknown in a real network.

The oracle models an uplink as a link that its flows share equally, as TCP does at best. It places each
flow when it starts, by the remaining bytes of all flows under way, and never moves a flow.

The port of a client, modulo `PLACES`, is the number of the uplink that the oracle has chosen for the
flow. For every other contender, it is an ordinary port.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from topologies.loads.flow_arrivals import FlowPlan, wire_bytes
from topologies.loads.flow_figures import ideal_s

SERVER_PORT = 7300
# A power of two, because a switch matches the lowest bits of a port.
PLACES = 4
FIRST_CLIENT_PORT, LAST_CLIENT_PORT = 10_000, 60_000


@dataclass(slots=True)
class SharedLink:
    """A link whose flows share it equally. Times must not decrease."""

    capacity_bps: float
    _now_s: float = 0.0
    # The bits that each flow would have received if it had been under way since the link's beginning.
    _served_bits: float = 0.0
    # For each flow under way: the value of `_served_bits` at its end, and its time on an idle link.
    _ends: list[tuple[float, float]] = field(default_factory=list)

    def advance(self, now_s: float) -> None:
        """Advance the time."""
        while self._ends:
            at_bits, _ = self._ends[0]
            rate_bps = self.capacity_bps / len(self._ends)
            end_s = self._now_s + (at_bits - self._served_bits) / rate_bps
            if end_s > now_s:
                self._served_bits += (now_s - self._now_s) * rate_bps
                break
            self._now_s, self._served_bits = end_s, at_bits
            del self._ends[0]
        self._now_s = now_s

    def add(self, size_bytes: int) -> None:
        """Start a flow now."""
        at_bits = self._served_bits + wire_bytes(size_bytes) * 8
        bisect.insort(self._ends, (at_bits, ideal_s(size_bytes, self.capacity_bps)))

    def cost(self, size_bytes: int) -> float:
        """The slowdown of one more flow, plus the slowdowns that it adds to the flows under way."""
        size_bits = wire_bytes(size_bytes) * 8.0
        own_bits, added = size_bits, 0.0
        for at_bits, alone_s in self._ends:
            shared_bits = min(at_bits - self._served_bits, size_bits)
            own_bits += shared_bits
            added += shared_bits / self.capacity_bps / alone_s
        return own_bits / self.capacity_bps / ideal_s(size_bytes, self.capacity_bps) + added


def place(flows: Sequence[FlowPlan], capacities_bps: Sequence[float]) -> list[int]:
    """The uplink of each flow by number: of equal costs, the lowest. `flows` are in order of their starts."""
    links = [SharedLink(bps) for bps in capacities_bps]
    found = []
    for flow in flows:
        for link in links:
            link.advance(flow.start_s)
        _, number = min((link.cost(flow.size_bytes), n) for n, link in enumerate(links))
        links[number].add(flow.size_bytes)
        found.append(number)
    return found


def client_ports(clients: Sequence[int], places: Sequence[int]) -> list[int]:
    """A port for each flow, by the number of its client and the uplink chosen by the oracle.

    A client uses a port again only after all others of the same uplink.
    """
    count = (LAST_CLIENT_PORT - FIRST_CLIENT_PORT) // PLACES
    counters: dict[tuple[int, int], itertools.count[int]] = {}
    found = []
    for client, place in zip(clients, places, strict=True):
        number = next(counters.setdefault((client, place), itertools.count())) % count
        found.append(FIRST_CLIENT_PORT + number * PLACES + place)
    return found
