"""When flows start, between which end systems, and how large they are: the plan of an open loop.

The plan depends on a seed and not on the network, so it is the same for every contender. A flow
starts at its time, whether or not earlier flows have ended.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.loads.flow_sizes import SizeDistribution
from topologies.loads.workload import SEGMENT_PAYLOAD_BYTES, SEGMENT_WIRE_BYTES

# Of a frame: Ethernet, IPv4, and TCP with timestamps.
HEADERS_BYTES = SEGMENT_WIRE_BYTES - SEGMENT_PAYLOAD_BYTES
# What a connection costs besides its data: a SYN, a FIN and an ACK.
CONNECTION_BYTES = (14 + 20 + 40) + 2 * HEADERS_BYTES
# Sizes for the mean of what flows have on the wire.
_SAMPLED = 1000


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """One flow: its start in seconds since the start of the load, its VM by number, and its size."""

    start_s: float
    vm: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the load, from its start to its end in seconds."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


def wire_bytes(size_bytes: int) -> int:
    """The bytes that a flow has on the wire, towards its receiver and without retransmissions."""
    segments = math.ceil(size_bytes / SEGMENT_PAYLOAD_BYTES)
    return size_bytes + segments * HEADERS_BYTES + CONNECTION_BYTES


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
    for span in spans:
        sizes = distribution.sample_bytes(flows_for(distribution, load_bps, span.duration_s))
        chance.shuffle(sizes)
        starts_s = sorted(chance.uniform(span.start_s, span.end_s) for _ in sizes)
        vms = chance.choices(range(len(shares)), shares, k=len(sizes))
        flows += map(FlowPlan, starts_s, vms, sizes)
    return flows


def offered_bps(flows: Sequence[FlowPlan], span: Span) -> float:
    """The rate on the wire that the flows of a span offer."""
    total = sum(wire_bytes(f.size_bytes) for f in flows if span.start_s <= f.start_s < span.end_s)
    return total * 8 / span.duration_s
