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
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
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
FIRST_CLIENT_PORT, CLIENT_PORTS = 10_000, 50_000


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


def client_port(number: int) -> int:
    """The port of a client for a flow: the same for every contender, because their hashes use it."""
    return FIRST_CLIENT_PORT + number % CLIENT_PORTS
