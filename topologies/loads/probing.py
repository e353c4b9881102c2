"""Probe flows between the end systems of a layout, and their loss, duplicates, order and gaps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from topologies.loads import probe
from topologies.network import processes

PORT = 7007
RATE_PPS = 100.0
END_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Flow:
    """Datagrams from one end system to an address of another, by their names in the layout."""

    sender: str
    receiver: str
    address: str


@dataclass(frozen=True, slots=True)
class FlowResult:
    """The datagrams of one flow that were sent and received.

    Attributes:
        sent: the number of datagrams sent, numbered from 0.
        start_s: when the flow began, on the monotonic clock.
        end_s: when the flow ended.
        arrivals: the number and the time of every arrival, in the order of arrival.
        max_delay_s: how late the sender was at worst. The network causes only longer gaps.
    """

    sent: int
    start_s: float
    end_s: float
    arrivals: Sequence[tuple[int, float]]
    max_delay_s: float = 0.0

    @property
    def received(self) -> int:
        """The number of different datagrams that arrived."""
        return len({number for number, _ in self.arrivals})

    @property
    def lost(self) -> int:
        return self.sent - self.received

    @property
    def duplicated(self) -> int:
        """The number of extra copies that arrived."""
        return len(self.arrivals) - self.received

    @property
    def reordered(self) -> int:
        """The number of datagrams whose first copy arrived after a later datagram (RFC 4737)."""
        seen: set[int] = set()
        found, latest = 0, -1
        for number, _ in self.arrivals:
            found += number < latest and number not in seen
            seen.add(number)
            latest = max(latest, number)
        return found

    def longest_gap_s(self, from_s: float = -float("inf"), to_s: float = float("inf")) -> float:
        """The longest time without an arrival, among the gaps that overlap a span.

        The times from the flow's start to the first arrival and from the last arrival to its end
        count as gaps. Without loss, the result is the interval between two datagrams.
        """
        times_s = [at_s for _, at_s in self.arrivals]
        edges_s = [self.start_s, *times_s, max([self.end_s, *times_s[-1:]])]
        gaps_s = [b - a for a, b in pairwise(edges_s) if a < to_s and b > from_s]
        return max(gaps_s, default=0.0)


def figures(results: Sequence[FlowResult]) -> dict[str, float]:
    """The figures of all flows together, and the longest gap of any flow."""
    received = sum(one.received for one in results)
    return {
        "probe_lost": float(sum(one.lost for one in results)),
        "probe_duplicated": float(sum(one.duplicated for one in results)),
        "reordered_ratio": sum(one.reordered for one in results) / max(1, received),
        "longest_gap_ms": max((one.longest_gap_s() for one in results), default=0.0) * 1000,
    }


class Probes:
    """A probe process in every end system with a flow. An instance runs once."""

    def __init__(
        self,
        host_pids: Mapping[str, int],
        flows: Sequence[Flow],
        directory: Path,
        rate_pps: float = RATE_PPS,
        port: int = PORT,
    ) -> None:
        self._host_pids = host_pids
        self._flows = tuple(flows)
        self._directory = directory
        self._interval_s = 1 / rate_pps
        self._port = port
        self.start_s = self.end_s = 0.0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, start_s: float, end_s: float) -> None:
        """Start the probes. They send from `start_s` to `end_s` or `stop`."""
        self.start_s, self.end_s = start_s, end_s
        script = str(Path(probe.__file__).resolve())
        for name in dict.fromkeys(end for f in self._flows for end in (f.sender, f.receiver)):
            own = {i: f.address for i, f in enumerate(self._flows) if f.sender == name}
            plan = {
                "port": self._port,
                "interval_s": self._interval_s,
                "start_s": start_s,
                "end_s": end_s,
                "flows": own,
            }
            path = self._directory / f"{name}.probe-plan.json"
            path.write_text(json.dumps(plan))
            command = [sys.executable, "-P", script, str(path), str(self._results(name))]
            pid = self._host_pids[name]
            self._processes[name] = processes.start_in(pid, command, self._log(name))

    def stop(self) -> None:
        """Tell all probes to stop sending."""
        self.end_s = time.monotonic()
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    def finish(self) -> dict[Flow, FlowResult]:
        """Wait for the probes to end and return the result of each flow.

        Raises:
            RuntimeError: a probe failed; the message has its name and the end of its log.
        """
        results = {}
        deadline_s = max(time.monotonic(), self.end_s) + END_TIMEOUT_S
        for name, process in self._processes.items():
            try:
                status: int | None = process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = None
            if status != 0:
                found = "running" if status is None else f"exit {status}"
                log = self._log(name).read_text(errors="replace")[-500:]
                raise RuntimeError(f"probe of {name}: {found} -> exit 0; its log ends: {log}")
            results[name] = json.loads(self._results(name).read_text())
        arrivals: list[list[tuple[int, float]]] = [[] for _ in self._flows]
        for one in results.values():
            for index, number, at_s in one["arrivals"]:
                arrivals[index].append((number, at_s))
        return {
            flow: FlowResult(
                sent=results[flow.sender]["sent"],
                start_s=self.start_s,
                end_s=self.start_s + max(0, results[flow.sender]["sent"] - 1) * self._interval_s,
                arrivals=of_flow,
                max_delay_s=results[flow.sender]["max_delay_s"],
            )
            for flow, of_flow in zip(self._flows, arrivals, strict=True)
        }

    def close(self) -> None:
        """Stop all probe processes."""
        self.stop()  # all at once, because each one lingers
        for process in self._processes.values():
            processes.end(process)

    def _results(self, name: str) -> Path:
        return self._directory / f"{name}.probe.json"

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.probe.log"
