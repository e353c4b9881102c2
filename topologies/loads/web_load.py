"""The web load of a layout: web servers, and sessions that download from them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from topologies.compare.pace import Pace
from topologies.graph.layout import Role
from topologies.loads import web_figures, web_server, web_sessions, workload
from topologies.loads.load import Load, Outcome, Stage
from topologies.network import processes
from topologies.network.private_ovs import NICENESS

SEED = 1
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
        self._directory = stage.directory
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
        self._servers: list[subprocess.Popen[bytes]] = []
        self._users: dict[str, subprocess.Popen[bytes]] = {}
        self._end_s = 0.0

    def start(self) -> None:
        """Start the servers and the session processes. The load begins at `start_s`."""
        # Sessions are a closed loop: a switch that waits for the CPU lowers the load below the threshold.
        processes.set_session_niceness(self._ovs.pid("ovs-vswitchd"), NICENESS)
        files = self._directory / "files"
        web_server.make_files(files, workload.FILE_BYTES)
        for name in self._hosts:
            directory = self._directory / "web" / name
            self._servers.append(web_server.start(self._pids[name], directory, files))
        # Time for the processes to start. A late process would begin all due sessions at once.
        self.start_s = time.monotonic() + 1.5
        self._end_s = self.start_s + self.load_s
        keys = [str(index) for index in range(len(self._pairs))]
        sessions = workload.plan_sessions(
            keys, self._total_bps, self._pace.ramp_s, SEED, self._weights
        )
        by_user: dict[str, list[dict[str, Any]]] = {}
        for session in sessions:
            user, server = self._pairs[int(session.server)]
            one = {"server": server, "begin_s": session.begin_s, "seed": session.seed}
            by_user.setdefault(user, []).append(one)
        for user, own in by_user.items():
            plan = {
                "start_s": self.start_s,
                "end_s": self._end_s,
                "port": web_server.PORT,
                "line_bps": workload.LINE_BPS,
                "file_bytes": workload.FILE_BYTES,
                "think_mean_s": workload.THINK_MEAN_S,
                "sessions": own,
            }
            path = self._directory / f"{user}.plan.json"
            path.write_text(json.dumps(plan))
            script = str(Path(web_sessions.__file__).resolve())
            self._users[user] = processes.start_in(
                self._pids[user],
                [sys.executable, "-P", script, str(path), str(self._results(user))],
                self._log(user),
            )

    def finish(self) -> Outcome:
        """Wait for the sessions to end. `details` has all downloads."""
        for host, server in zip(self._hosts, self._servers, strict=True):
            if server.poll() is not None:
                logs = (self._directory / "web" / host).glob("*.log")
                ends = " ".join(log.read_text(errors="replace")[-500:] for log in logs)
                raise RuntimeError(
                    f"web server on {host}: exit {server.poll()} -> running; its logs end: {ends}"
                )
        downloads: list[dict[str, Any]] = []
        for user, process in self._users.items():
            status = process.wait(timeout=max(0.0, self._end_s - time.monotonic()) + 10)
            if status:
                log = self._log(user).read_text(errors="replace")[-500:]
                raise RuntimeError(f"web sessions of {user}: exit {status} -> 0; log ends: {log}")
            results = map(json.loads, self._results(user).read_text().splitlines())
            downloads += [_relative_to(self.start_s, download) for download in results]
        received_bytes = sum(one["received_bytes"] for one in downloads)
        return Outcome(
            received_bytes=received_bytes,
            throughput_bps=received_bytes * 8 / self.load_s,
            figures=web_figures.figures(downloads, self._pace.ramp_s, self.load_s, self._limit_bps),
            details=downloads,
        )

    def close(self) -> None:
        """Stop all processes."""
        for process in (*self._users.values(), *self._servers):
            processes.end(process)

    def _results(self, user: str) -> Path:
        return self._directory / f"{user}.results.jsonl"

    def _log(self, user: str) -> Path:
        return self._directory / f"{user}.log"


def _relative_to(start_s: float, download: dict[str, Any]) -> dict[str, Any]:
    times = {key: round(download[key] - start_s, 4) for key in ("start_s", "end_s")}
    return {**download, **times}
