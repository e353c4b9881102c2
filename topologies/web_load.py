"""The web load of a layout: servers on one side, sessions on the other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from topologies import processes, web_server, web_sessions, workload
from topologies.graph import Layout, Role
from topologies.pace import Pace

SEED = 1
# What the uplinks carry in the steady state, as a share of one uplink's speed: the
# document's "little over 13 Gbps" of 2 x 10 GbE.
STEADY_SHARE_OF_UPLINK = 1.3


class Direction(StrEnum):
    """Which way the load goes, as the server sees it."""

    SEND = "send"
    RECEIVE = "receive"


class WebLoad:
    """The web servers, and the sessions that download from them."""

    def __init__(
        self, layout: Layout, host_pids: Mapping[str, int], direction: Direction, directory: Path
    ) -> None:
        self._directory = directory
        vms = {
            layout.neighbour(vnic, Role.VM): layout.address(vnic) for vnic in layout.loaded_vnics()
        }
        clients = {name: layout.address(name) for name in layout.nodes(Role.CLIENT)}
        self._total_bps = STEADY_SHARE_OF_UPLINK * max(
            layout.capacity_bps(uplink) for uplink in layout.nodes(Role.UPLINK)
        )
        # Every VM has one peer. Sending, a VM serves that client; receiving, the other way.
        peer_of = {vm: list(clients)[i % len(clients)] for i, vm in enumerate(vms)}
        if direction is Direction.SEND:
            self._hosts = list(vms)
            self._pairs = [(peer_of[vm], vms[vm]) for vm in vms]
        else:
            self._hosts = sorted(set(peer_of.values()))
            self._pairs = [(vm, clients[peer_of[vm]]) for vm in vms]
        self._pids = dict(host_pids)
        self._servers: list[subprocess.Popen[bytes]] = []
        self._users: dict[str, subprocess.Popen[bytes]] = {}
        self.start_s = 0.0
        self._end_s = 0.0

    def start(self, pace: Pace) -> None:
        """Start the servers and the sessions' processes; the load begins at `start_s`."""
        files = self._directory / "files"
        web_server.make_files(files, workload.FILE_BYTES)
        for name in self._hosts:
            place = self._directory / "web" / name
            self._servers.append(web_server.start(self._pids[name], place, files))
        # Time for the processes to start; what begins late would begin all at once.
        self.start_s = time.monotonic() + 1.5
        self._end_s = self.start_s + pace.load_s
        keys = [str(index) for index in range(len(self._pairs))]
        sessions = workload.plan_sessions(keys, self._total_bps, pace.ramp_s, SEED)
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

    def finish(self) -> list[dict[str, Any]]:
        """Wait for the sessions to end; every download of theirs.

        Raises:
            RuntimeError: a server or a process of sessions did not live to the end.
        """
        for host, server in zip(self._hosts, self._servers, strict=True):
            if server.poll() is not None:
                logs = (self._directory / "web" / host).glob("*.log")
                said = " ".join(log.read_text(errors="replace")[-500:] for log in logs)
                raise RuntimeError(f"web server of {host}: exit {server.poll()} -> runs; {said}")
        downloads: list[dict[str, Any]] = []
        for user, process in self._users.items():
            status = process.wait(timeout=max(0.0, self._end_s - time.monotonic()) + 10)
            if status:
                log = self._log(user).read_text(errors="replace")[-500:]
                raise RuntimeError(f"web sessions of {user}: exit {status} -> 0; log ends: {log}")
            downloads += map(json.loads, self._results(user).read_text().splitlines())
        return downloads

    def close(self) -> None:
        """End all processes."""
        for process in (*self._users.values(), *self._servers):
            processes.end(process)

    def _results(self, user: str) -> Path:
        return self._directory / f"{user}.results.jsonl"

    def _log(self, user: str) -> Path:
        return self._directory / f"{user}.log"
