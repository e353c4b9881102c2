"""The web load: sessions as in SPECweb2005's Support workload, scaled like the links.

A session downloads a file, waits for a think time, and downloads the next file (a closed loop). As
SPECweb's clients do, it has a line of 100 kB/s. A download meets its quality of service if it gets
90 % of that rate. The ramp increases the number of sessions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from topologies.graph.layout import Role
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.pace import Pace
from topologies.network import processes
from topologies.network.private_ovs import NICENESS

LINE_BPS = 800_000
REQUIRED_RATE_RATIO = 0.9
# Ten to twenty times smaller than Support's files. The links are a hundred times slower, and a run
# needs enough downloads to distinguish 99.9 % from 99.8 %.
FILE_BYTES = (120_000, 160_000, 200_000)
THINK_MEAN_S = 0.4
SEED = 1
PORT = 80
# Time for the programs to start. A late one would begin all due sessions at once.
READY_S = 1.5
END_TIMEOUT_S = 10.0
# The load in the steady state as a share of one uplink's speed. The document has "little over
# 13 Gbps" on 2 x 10 GbE.
STEADY_SHARE_OF_UPLINK = 1.3

# A full segment at an MTU of 1500, with Ethernet, IPv4, and TCP with timestamps.
SEGMENT_PAYLOAD_BYTES = 1448
SEGMENT_WIRE_BYTES = 1514
# Measured: the small receive window makes some segments short.
_SHORT_SEGMENTS_RATIO = 1.03


class Direction(StrEnum):
    """The direction of the load from the server's point of view."""

    SEND = "send"
    RECEIVE = "receive"


def wire_bps_per_session() -> float:
    """The mean rate of a session on the wire, without congestion."""
    body_bytes = sum(FILE_BYTES) / len(FILE_BYTES)
    segments = body_bytes / SEGMENT_PAYLOAD_BYTES
    wire_bytes = segments * SEGMENT_WIRE_BYTES * _SHORT_SEGMENTS_RATIO
    cycle_s = body_bytes * 8 / LINE_BPS + THINK_MEAN_S
    return wire_bytes * 8 / cycle_s


def plan_sessions(
    weights: Sequence[float], total_bps: float, ramp_s: float, seed: int
) -> list[tuple[int, dict[str, float]]]:
    """Sessions that together load the wire with `total_bps` after the ramp.

    Each has the number of its server, and its start and random seed. The sessions of a server begin at
    even intervals during the ramp, and the servers take turns. The load thus grows linearly. The loads
    of the servers are in proportion to `weights`.
    """
    begins = []
    for server, weight in enumerate(weights):
        count = round(total_bps * weight / sum(weights) / wire_bps_per_session())
        begins += [
            (ramp_s * (index + server / len(weights)) / count, server) for index in range(count)
        ]
    seeds = random.Random(seed)
    return [
        (server, {"begin_s": begin_s, "seed": seeds.getrandbits(32)})
        for begin_s, server in sorted(begins)
    ]


def figures(
    downloads: Sequence[Mapping[str, Any]], ramp_s: float, load_s: float, limit_bps: int
) -> dict[str, float]:
    """The figures that only a web load has.

    `steady_throughput_bps` is the throughput after the ramp, if each download has a constant rate. It
    corresponds to the document's "little over 13 Gbps". `qos_ratio` is the share of complete downloads
    that reached the required rate; downloads that the end of the load interrupted do not count.
    """
    steady_bytes, rates_bps = 0.0, []
    for one in downloads:
        lasted_s = one["end_s"] - one["start_s"]
        within_s = min(one["end_s"], load_s) - max(one["start_s"], ramp_s)
        if within_s > 0 and lasted_s > 0:
            steady_bytes += one["received_bytes"] * within_s / lasted_s
        if one["complete"]:
            rates_bps.append(one["size_bytes"] * 8 / lasted_s)
    steady_bps = steady_bytes * 8 / (load_s - ramp_s)
    found = {
        "steady_throughput_bps": steady_bps,
        "steady_share_of_limit": steady_bps / limit_bps,
        "downloads": float(len(rates_bps)),
    }
    if rates_bps:
        reached = sum(rate_bps >= LINE_BPS * REQUIRED_RATE_RATIO for rate_bps in rates_bps)
        found["qos_ratio"] = reached / len(rates_bps)
    return found


class WebLoad(Load):
    """The web servers, and the sessions that download from them.

    The loads of the VMs are in proportion to `weights`; without them, they are the same.
    """

    def __init__(
        self, stage: Stage, pace: Pace, direction: Direction, weights: Sequence[float] = ()
    ) -> None:
        super().__init__(stage)
        self._pace = pace
        self.load_s = pace.load_s
        # The ramp counts, because moves and their cost occur in it.
        self.measured_s = (0.0, pace.load_s)
        self.steady_s = (pace.ramp_s, pace.load_s)
        layout = stage.layout
        clients = layout.nodes(Role.CLIENT)
        # Every VM has one client. The VM is the server if it sends, and the user if it receives.
        ends = [
            ((layout.neighbour(vnic, Role.VM), vnic), (clients[i % len(clients)],) * 2)
            for i, vnic in enumerate(layout.loaded_vnics())
        ]
        if direction is Direction.RECEIVE:
            ends = [(client, vm) for vm, client in ends]
        self._servers = sorted({name for (name, _), _ in ends})
        # The user and the server's address of each VM.
        self._pairs = [(user, layout.address(nic)) for (_, nic), (user, _) in ends]
        self._weights = weights or [1.0] * len(ends)
        self._programs = self._programs_of("web")

    def start(self) -> None:
        """Start the servers and the session processes. The load begins at `start_s`."""
        # Sessions are a closed loop: a switch that waits for the CPU lowers the load below the threshold.
        ovs, layout, pids = self._stage.ovs, self._stage.layout, self._stage.host_pids
        processes.set_session_niceness(ovs.pid("ovs-vswitchd"), NICENESS)
        self.start_s = time.monotonic() + READY_S
        total_bps = STEADY_SHARE_OF_UPLINK * max(layout.capacities_bps.values())
        sessions = plan_sessions(self._weights, total_bps, self._pace.ramp_s, SEED)
        plan = {
            "server_pids": [pids[name] for name in self._servers],
            "start_s": self.start_s,
            "end_s": self.start_s + self.load_s,
            "port": PORT,
            "line_bps": LINE_BPS,
            "file_bytes": FILE_BYTES,
            "think_mean_s": THINK_MEAN_S,
            "sessions": [
                {"pid": pids[user], "server": server, **session}
                for number, session in sessions
                for user, server in [self._pairs[number]]
            ],
        }
        for role in ("serve", "browse"):
            self._programs.start(role, plan)

    def finish(self) -> Outcome:
        """Wait for the sessions to end."""
        results = self._programs.results("browse", self._left_s() + END_TIMEOUT_S)
        self._programs.stop("serve")
        self._programs.results("serve", END_TIMEOUT_S)
        downloads = [
            {**one, **{key: round(one[key] - self.start_s, 4) for key in ("start_s", "end_s")}}
            for one in results["downloads"]
        ]
        received_bytes = sum(one["received_bytes"] for one in downloads)
        return Outcome(
            received_bytes=received_bytes,
            throughput_bps=received_bytes * 8 / self.load_s,
            figures=figures(
                downloads, self._pace.ramp_s, self.load_s, self._stage.layout.limit_bps
            ),
        )
