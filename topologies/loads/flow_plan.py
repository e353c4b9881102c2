"""When flows start, between which end systems, and how large they are: the plan of an open loop.

The plan depends on a seed and not on the network, so it is the same for every contender. A flow
starts at its time, whether or not earlier flows have ended.

Sizes have published distributions, and samples that have exactly their mean.

Both distributions were measured in data centers and published as curves: web search in Figure 4 of
DCTCP, data mining in Figure 2 of VL2. The points are those that the simulations of PIAS (Bai et al.,
NSDI 2015) read from these curves, in packets of 1460 bytes. Between two points, sizes are distributed
evenly.

Traffic generators read the same curves in bytes, and differ in three ways. Their points are of packets of
1500 bytes, so sizes are 3 % larger. For web search, sizes go down to 0 instead of 6 packets. For data
mining, half of the flows have less than 1100 bytes instead of one packet, and 98 % of the flows instead
of 99 % have less than 100 MB, so that the mean is 12.7 MB instead of 7.5 MB. The points in packets are
used here because VL2 says 99 %. VL2 also says that flows of 100 MB to 1 GB have more than 90 % of the bytes.
Here they have 72 %, and 87 % with the points in bytes.

The oracle models an uplink as a link that its flows share equally, as TCP does at best. It places each
flow when it starts, by the remaining bytes of all flows under way, and never moves a flow.

The port of a client, modulo `PLACES`, is the number of the uplink that the oracle has chosen for the
flow. For every other contender, it is an ordinary port.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from topologies.loads.web_load import SEGMENT_PAYLOAD_BYTES, SEGMENT_WIRE_BYTES

PACKET_BYTES = 1460


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """A distribution of flow sizes.

    Attributes:
        name: its name in reports.
        source: the publication that measured it.
        points: pairs of a cumulative probability and a size in bytes; both grow from pair to pair.
    """

    name: str
    source: str
    points: Sequence[tuple[float, float]]

    def mean_between_bytes(self, low: float, high: float) -> float:
        """The mean size of the flows between two cumulative probabilities, of which `low` is lower."""
        total = 0.0
        for (below, least), (above, most) in pairwise(self.points):
            start, end = max(low, below), min(high, above)
            if start < end:
                part = ((start + end) / 2 - below) / (above - below)
                total += (end - start) * (least + part * (most - least))
        return total / (high - low)

    def scaled(self, factor: float) -> SizeDistribution:
        """The same distribution with every size multiplied by a factor."""
        points = tuple((probability, size * factor) for probability, size in self.points)
        return SizeDistribution(self.name, self.source, points)

    def sample_bytes(self, count: int) -> list[int]:
        """Sizes that represent the distribution, in ascending order.

        Each is the mean of one of `count` equal parts of all flows, and at least one byte. Few flows
        carry most of the bytes. Sizes drawn at random would make the load of a run a matter of luck.
        """
        edges = [number / count for number in range(count + 1)]
        means = (self.mean_between_bytes(*ends) for ends in pairwise(edges))
        # Means of equal sizes differ in their last digits, and may be rounded to different ones.
        return sorted(max(1, round(mean)) for mean in means)


def _in_packets(*points: tuple[float, int]) -> tuple[tuple[float, float], ...]:
    return tuple((probability, float(packets * PACKET_BYTES)) for probability, packets in points)


WEB_SEARCH = SizeDistribution(
    "web search",
    "Alizadeh et al., Data Center TCP (DCTCP), SIGCOMM 2010, Figure 4",
    _in_packets(
        (0.0, 6),
        (0.15, 6),
        (0.2, 13),
        (0.3, 19),
        (0.4, 33),
        (0.53, 53),
        (0.6, 133),
        (0.7, 667),
        (0.8, 1333),
        (0.9, 3333),
        (0.97, 6667),
        (1.0, 20_000),
    ),
)
DATA_MINING = SizeDistribution(
    "data mining",
    "Greenberg et al., VL2: A Scalable and Flexible Data Center Network, SIGCOMM 2009, Figure 2",
    _in_packets(
        (0.0, 1),
        (0.5, 1),
        (0.6, 2),
        (0.7, 3),
        (0.8, 7),
        (0.9, 267),
        (0.95, 2107),
        (0.99, 66_667),
        (1.0, 666_667),
    ),
)


# Of a frame: Ethernet, IPv4, and TCP with timestamps.
HEADERS_BYTES = SEGMENT_WIRE_BYTES - SEGMENT_PAYLOAD_BYTES
# What a connection costs besides its data: a SYN, a FIN and an ACK.
CONNECTION_BYTES = (14 + 20 + 40) + 2 * HEADERS_BYTES
# Sizes for the mean of what flows have on the wire.
_SAMPLED = 1000
# The approximate duration of a one-byte flow on an idle network of this bench: connection and request.
BASE_LATENCY_S = 0.001
SERVER_PORT = 7300
# A power of two, because a switch matches the lowest bits of a port.
PLACES = 4
FIRST_CLIENT_PORT, LAST_CLIENT_PORT = 10_000, 60_000


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """One flow: its start in seconds since the start of the load, its VM by number, and its size."""

    start_s: float
    vm: int
    size_bytes: int


# A part of the load: its start and its end in seconds.
Span = tuple[float, float]


def wire_bytes(size_bytes: int) -> int:
    """The bytes that a flow has on the wire, towards its receiver and without retransmissions."""
    segments = math.ceil(size_bytes / SEGMENT_PAYLOAD_BYTES)
    return size_bytes + segments * HEADERS_BYTES + CONNECTION_BYTES


def ideal_s(size_bytes: int, link_bps: float) -> float:
    """The duration of a flow that has a link to itself."""
    return BASE_LATENCY_S + wire_bytes(size_bytes) * 8 / link_bps


def popularity(count: int, seed: int) -> list[float]:
    """The share of the flows that each VM has: Zipf's law with exponent 1, in a random order."""
    weights = [1 / rank for rank in range(1, count + 1)]
    random.Random(seed).shuffle(weights)
    return [weight / sum(weights) for weight in weights]


def flows_for(distribution: SizeDistribution, load_bps: float, duration_s: float) -> int:
    """The number of flows that load the wire at this rate for this time; at least one."""
    sampled = distribution.sample_bytes(_SAMPLED)
    mean_bytes = sum(map(wire_bytes, sampled)) / len(sampled)
    return max(1, round(load_bps * duration_s / 8 / mean_bytes))


def plan_flows(
    distribution: SizeDistribution,
    load_bps: float,
    spans: Sequence[Span],
    shares: Sequence[float],
    seed: int,
) -> list[FlowPlan]:
    """Flows that load the wire at a rate in each span, in the order of their starts.

    Starts are those of a Poisson process whose number of flows in each span is as expected. In each
    span, the sizes are a sample of the distribution in a random order. So every span has the load.
    A flow belongs to a VM with the probability in `shares`.
    """
    chance = random.Random(seed)
    flows: list[FlowPlan] = []
    for start_s, end_s in spans:
        sizes = distribution.sample_bytes(flows_for(distribution, load_bps, end_s - start_s))
        chance.shuffle(sizes)
        starts_s = sorted(chance.uniform(start_s, end_s) for _ in sizes)
        vms = chance.choices(range(len(shares)), shares, k=len(sizes))
        flows += map(FlowPlan, starts_s, vms, sizes)
    return flows


def offered_bps(flows: Sequence[FlowPlan], span: Span) -> float:
    """The rate on the wire that the flows of a span offer."""
    start_s, end_s = span
    total = sum(wire_bytes(f.size_bytes) for f in flows if start_s <= f.start_s < end_s)
    return total * 8 / (end_s - start_s)


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
