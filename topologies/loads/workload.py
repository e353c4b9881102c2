"""The web load: sessions as in SPECweb2005's Support workload, scaled like the links.

A session downloads a file, waits for a think time, and downloads the next file (a closed loop). As
SPECweb's clients do, it has a line of 100 kB/s. A download meets its quality of service if it gets
90 % of that rate. The ramp increases the number of sessions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

LINE_BPS = 800_000
REQUIRED_RATE_RATIO = 0.9
# Ten to twenty times smaller than Support's files. The links are a hundred times slower, and a run
# needs enough downloads to distinguish 99.9 % from 99.8 %.
FILE_BYTES = (120_000, 160_000, 200_000)
THINK_MEAN_S = 0.4

# A full segment at an MTU of 1500, with Ethernet, IPv4, and TCP with timestamps.
SEGMENT_PAYLOAD_BYTES = 1448
SEGMENT_WIRE_BYTES = 1514
# Measured: the small receive window makes some segments short.
_SHORT_SEGMENTS_RATIO = 1.03


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The session of one user: its server, its start, and its random seed."""

    server: str
    begin_s: float
    seed: int


def wire_bps_per_session() -> float:
    """The mean rate of a session on the wire, without congestion."""
    body_bytes = sum(FILE_BYTES) / len(FILE_BYTES)
    segments = body_bytes / SEGMENT_PAYLOAD_BYTES
    wire_bytes = segments * SEGMENT_WIRE_BYTES * _SHORT_SEGMENTS_RATIO
    cycle_s = body_bytes * 8 / LINE_BPS + THINK_MEAN_S
    return wire_bytes * 8 / cycle_s


def plan_sessions(
    servers: Sequence[str],
    total_bps: float,
    ramp_s: float,
    seed: int,
    weights: Sequence[float] = (),
) -> list[SessionPlan]:
    """Sessions that together load the wire with `total_bps` after the ramp.

    The sessions of a server begin at even intervals during the ramp, and the servers take turns. The
    load thus grows linearly. The loads of the servers are in proportion to `weights`; without them,
    they are the same.
    """
    shares = weights or [1.0] * len(servers)
    begins = []
    for place, (server, share) in enumerate(zip(servers, shares, strict=True)):
        count = round(total_bps * share / sum(shares) / wire_bps_per_session())
        begins += [
            (ramp_s * (index + place / len(servers)) / count, place, server)
            for index in range(count)
        ]
    seeds = random.Random(seed)
    return [
        SessionPlan(server, begin_s, seeds.getrandbits(32)) for begin_s, _, server in sorted(begins)
    ]
