"""The load: web sessions as in SPECweb2005's Support workload, scaled like the links.

A session downloads a file, thinks, and downloads the next (a closed loop). It sits
behind a line of 100 kB/s as SPECweb's clients do, and a download is within its quality
of service if it gets 90 % of that line. What ramps up is the number of sessions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

LINE_BPS = 800_000
REQUIRED_RATE_RATIO = 0.9
# Ten to twenty times smaller than Support's files, as the links are a hundred times slower
# and a run must still have enough downloads to tell 99.9 % from 99.8 %.
FILE_BYTES = (120_000, 160_000, 200_000)
THINK_MEAN_S = 0.4

# Ethernet, IPv4, and TCP with timestamps, for each full segment of an MTU of 1500.
_SEGMENT_PAYLOAD_BYTES = 1448
_SEGMENT_WIRE_BYTES = 1514
_HTTP_HEADER_BYTES = 250
# Measured: the receive window, held back by the line, cuts some segments short.
_SHORT_SEGMENTS_RATIO = 1.03


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One user: whom they download from, and from when on."""

    server: str
    begin_s: float
    seed: int


def wire_bps_per_session() -> float:
    """What a session puts on an uplink in the mean, while nothing holds it up."""
    body_bytes = sum(FILE_BYTES) / len(FILE_BYTES)
    segments = (body_bytes + _HTTP_HEADER_BYTES) / _SEGMENT_PAYLOAD_BYTES
    wire_bytes = segments * _SEGMENT_WIRE_BYTES * _SHORT_SEGMENTS_RATIO
    cycle_s = body_bytes * 8 / LINE_BPS + THINK_MEAN_S
    return wire_bytes * 8 / cycle_s


def plan_sessions(
    servers: Sequence[str], total_bps: float, ramp_s: float, seed: int
) -> list[SessionPlan]:
    """Sessions that together load the wire with `total_bps` from `ramp_s` on.

    They begin one by one, evenly over the ramp and in turn over the servers, so that
    the load grows in a straight line and is the same for every server at any time.
    """
    per_server = round(total_bps / len(servers) / wire_bps_per_session())
    count = per_server * len(servers)
    seeds = random.Random(seed)
    return [
        SessionPlan(
            server=servers[index % len(servers)],
            begin_s=ramp_s * index / count,
            seed=seeds.getrandbits(32),
        )
        for index in range(count)
    ]
