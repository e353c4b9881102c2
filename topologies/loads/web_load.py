"""The web load: sessions as in SPECweb2005's Support workload, scaled like the links.

A session downloads a file, waits for a think time, and downloads the next file (a closed loop). As
SPECweb's clients do, it has a line of 100 kB/s. A download meets its quality of service if it gets
90 % of that rate. The ramp increases the number of sessions.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from topologies.graph.layout import Role
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.pace import Pace
from topologies.loads.programs import Programs
from topologies.network import processes
from topologies.network.private_ovs import NICENESS

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


def qos_ratio(downloads: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of complete downloads that reached the required rate; None without downloads.

    Downloads that the end of the load interrupted do not count.
    """
    required_bps = LINE_BPS * REQUIRED_RATE_RATIO
    rates_bps = [
        one["size_bytes"] * 8 / (one["end_s"] - one["start_s"])
        for one in downloads
        if one["complete"]
    ]
    if not rates_bps:
        return None
    return sum(rate_bps >= required_bps for rate_bps in rates_bps) / len(rates_bps)


def received_bytes(downloads: Sequence[Mapping[str, Any]], start_s: float, end_s: float) -> float:
    """The bytes received in a span, if each download has a constant rate."""
    total = 0.0
    for one in downloads:
        lasted_s = one["end_s"] - one["start_s"]
        within_s = min(one["end_s"], end_s) - max(one["start_s"], start_s)
        if within_s > 0 and lasted_s > 0:
            total += one["received_bytes"] * within_s / lasted_s
    return total


def figures(
    downloads: Sequence[Mapping[str, Any]], ramp_s: float, load_s: float, limit_bps: int
) -> dict[str, float]:
    """The figures that only a web load has.

    `steady_throughput_bps` is the throughput after the ramp. It corresponds to the document's
    "little over 13 Gbps".
    """
    steady_bps = received_bytes(downloads, ramp_s, load_s) * 8 / (load_s - ramp_s)
    found = {
        "steady_throughput_bps": steady_bps,
        "steady_share_of_limit": steady_bps / limit_bps,
        "downloads": float(sum(bool(one["complete"]) for one in downloads)),
    }
    if (quality := qos_ratio(downloads)) is not None:
        found["qos_ratio"] = quality
    return found


SEED = 1
PORT = 80
END_TIMEOUT_S = 10.0
# The load in the steady state as a share of one uplink's speed. The document has "little over
# 13 Gbps" on 2 x 10 GbE.
STEADY_SHARE_OF_UPLINK = 1.3


class Direction(StrEnum):
    """The direction of the load from the server's point of view."""

    SEND = "send"
    RECEIVE = "receive"


class WebLoad(Load):
    """The web servers, and the sessions that download from them.

    The loads of the VMs are in proportion to `weights`; without them, they are the same.
    """

    def __init__(
        self, stage: Stage, pace: Pace, direction: Direction, weights: Sequence[float] = ()
    ) -> None:
        layout = stage.layout
        self._pace, self._weights = pace, weights
        self.load_s = pace.load_s
        # The ramp counts, because moves and their cost occur in it.
        self.measured_s = (0.0, pace.load_s)
        self.steady_s = (pace.ramp_s, pace.load_s)
        vms = {
            layout.neighbour(vnic, Role.VM): layout.address(vnic) for vnic in layout.loaded_vnics()
        }
        clients = {name: layout.address(name) for name in layout.nodes(Role.CLIENT)}
        self._total_bps = STEADY_SHARE_OF_UPLINK * max(
            layout.capacity_bps(uplink) for uplink in layout.nodes(Role.UPLINK)
        )
        # Every VM has one client. The VM is the server if it sends, and the user if it receives.
        peer_of = {vm: list(clients)[i % len(clients)] for i, vm in enumerate(vms)}
        if direction is Direction.SEND:
            self._hosts = list(vms)
            self._pairs = [(peer_of[vm], vms[vm]) for vm in vms]
        else:
            self._hosts = sorted(set(peer_of.values()))
            self._pairs = [(vm, clients[peer_of[vm]]) for vm in vms]
        self._limit_bps = layout.limit_bps
        self._ovs = stage.ovs
        self._pids = stage.host_pids
        self._programs = Programs(stage.directory, "web")

    def start(self) -> None:
        """Start the servers and the session processes. The load begins at `start_s`."""
        # Sessions are a closed loop: a switch that waits for the CPU lowers the load below the threshold.
        processes.set_session_niceness(self._ovs.pid("ovs-vswitchd"), NICENESS)
        # Time for the processes to start. A late process would begin all due sessions at once.
        self.start_s = time.monotonic() + 1.5
        keys = [str(index) for index in range(len(self._pairs))]
        sessions = plan_sessions(keys, self._total_bps, self._pace.ramp_s, SEED, self._weights)
        plan = {
            "server_pids": [self._pids[name] for name in self._hosts],
            "start_s": self.start_s,
            "end_s": self.start_s + self.load_s,
            "port": PORT,
            "line_bps": LINE_BPS,
            "file_bytes": FILE_BYTES,
            "think_mean_s": THINK_MEAN_S,
            "sessions": [
                {
                    "pid": self._pids[user],
                    "server": server,
                    "begin_s": session.begin_s,
                    "seed": session.seed,
                }
                for session in sessions
                for user, server in [self._pairs[int(session.server)]]
            ],
        }
        for role in ("serve", "browse"):
            self._programs.start(role, plan)

    def finish(self) -> Outcome:
        """Wait for the sessions to end. `details` has all downloads."""
        left_s = self.start_s + self.load_s - time.monotonic()
        found = self._programs.results("browse", left_s + END_TIMEOUT_S)["downloads"]
        self._programs.signal("serve", signal.SIGTERM)
        self._programs.results("serve", END_TIMEOUT_S)
        downloads = [_relative_to(self.start_s, download) for download in found]
        received_bytes = sum(one["received_bytes"] for one in downloads)
        return Outcome(
            received_bytes=received_bytes,
            throughput_bps=received_bytes * 8 / self.load_s,
            figures=figures(downloads, self._pace.ramp_s, self.load_s, self._limit_bps),
            details=downloads,
        )

    def close(self) -> None:
        """Stop all processes."""
        self._programs.close()


def _relative_to(start_s: float, download: dict[str, Any]) -> dict[str, Any]:
    times = {key: round(download[key] - start_s, 4) for key in ("start_s", "end_s")}
    return {**download, **times}
