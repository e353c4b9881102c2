"""The web load of a layout: web servers, and sessions that download from them."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from topologies.compare.pace import Pace
from topologies.graph.layout import Role
from topologies.loads import web_figures, workload
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.programs import Programs
from topologies.network import processes
from topologies.network.private_ovs import NICENESS

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
        sessions = workload.plan_sessions(
            keys, self._total_bps, self._pace.ramp_s, SEED, self._weights
        )
        plan = {
            "server_pids": [self._pids[name] for name in self._hosts],
            "start_s": self.start_s,
            "end_s": self.start_s + self.load_s,
            "port": PORT,
            "line_bps": workload.LINE_BPS,
            "file_bytes": workload.FILE_BYTES,
            "think_mean_s": workload.THINK_MEAN_S,
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
            figures=web_figures.figures(downloads, self._pace.ramp_s, self.load_s, self._limit_bps),
            details=downloads,
        )

    def close(self) -> None:
        """Stop all processes."""
        self._programs.close()


def _relative_to(start_s: float, download: dict[str, Any]) -> dict[str, Any]:
    times = {key: round(download[key] - start_s, 4) for key in ("start_s", "end_s")}
    return {**download, **times}
